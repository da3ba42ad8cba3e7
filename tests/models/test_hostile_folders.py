"""Folders of models from elsewhere: whatever they contain, they open or end in one line; nothing in
them runs, nothing outside them is read.
"""

import json
import re
import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import (
    AutoModel,
    AutoTokenizer,
    GPT2Config,
    GPT2Model,
    LlamaConfig,
    LlamaForCausalLM,
)

from dr_book.export import save_for_others
from dr_lib.errors import InputError
from dr_lib.lab.inputs import model_digest, open_checkpoint
from dr_lib.models import (
    CrossEncoder,
    DenseEncoder,
    LateInteraction,
    SentenceEncoder,
    load_masked_lm,
    open_encoder,
    save_masked_lm,
    with_fresh_head,
)
from dr_lib.places import find_model
from dr_lib.tokens import load_tokenizer

INNER = "bert.encoder.layer.1.attention.self.query.weight"
EVIL = "from pathlib import Path\nPath({!r}).write_text('ran')\nclass Evil: pass\n"


def config(**changes) -> Callable[[Path], None]:
    """Change entries of the configuration."""

    def change(folder: Path) -> None:
        path = folder / "config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | changes))

    return change


def write(name: str, content: str | bytes) -> Callable[[Path], None]:
    """Put a file in place of another."""
    content = content if isinstance(content, bytes) else content.encode()
    return lambda folder: (folder / name).write_bytes(content) and None


def modules(*paths: str, kind: str = "sentence_transformers.models.Transformer") -> Callable:
    return write(
        "modules.json", json.dumps([{"idx": 0, "name": "0", "path": paths[0], "type": kind}])
    )


def weights_at(place: str) -> Callable[[Path], None]:
    """Move the weights and put their new path into an index."""

    def change(folder: Path) -> None:
        target = folder / place
        target.parent.mkdir(parents=True, exist_ok=True)
        names = list(load_file(folder / "model.safetensors"))
        (folder / "model.safetensors").rename(target)
        index = {"metadata": {}, "weight_map": dict.fromkeys(names, place)}
        (folder / "model.safetensors.index.json").write_text(json.dumps(index))

    return change


def number(value: float) -> Callable[[Path], None]:
    """One invalid number in the weights."""

    def change(folder: Path) -> None:
        weights = load_file(folder / "model.safetensors")
        next(iter(weights.values())).view(-1)[7] = value
        save_file(weights, folder / "model.safetensors", {"format": "pt"})

    return change


def names(change: Callable[[str], str]) -> Callable[[Path], None]:
    """Rename weights; those with an empty new name are left out."""

    def rename(folder: Path) -> None:
        weights = load_file(folder / "model.safetensors")
        renamed = {change(name): tensor for name, tensor in weights.items() if change(name)}
        save_file(renamed, folder / "model.safetensors", {"format": "pt"})

    return rename


def without(part: str) -> Callable[[Path], None]:
    return names(lambda name: "" if part in name else name)


LACKING: dict[str, tuple[Callable[[Path], None], str]] = {
    "one tensor": (without(INNER), "layer.1.attention.self.query.weight"),
    "a layer": (without("layer.0."), "layer.0.attention.output.LayerNorm.bias"),
    "word embeddings": (without("word_embeddings"), "embeddings.word_embeddings.weight"),
    "all, by a prefix": (names("foo.{}".format), "begin with 'foo."),
    "all, by that of a wrapper": (names("module.{}".format), "begin with 'module."),
    "all, by another prefix in their midst": (
        names(lambda name: name.replace("bert.", "lm_q.")),
        "embeddings.LayerNorm.bias",
    ),
}


def code(folder: Path) -> None:
    (folder / "evil.py").write_text(EVIL.format(str(folder.parent / "owned")))
    config(
        auto_map=dict.fromkeys(("AutoConfig", "AutoModel", "AutoModelForMaskedLM"), "evil.Evil")
    )(folder)


def module_of_code(folder: Path) -> None:
    (folder / "evil.py").write_text(EVIL.format(str(folder.parent / "owned")))
    modules("", kind="evil.Evil")(folder)


def pickled(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_text(f"cos\nsystem\n(S'touch {folder.parent}/owned'\ntR.")


def cut(folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-50])


DEEP = '{"a":' * 100_000 + "1" + "}" * 100_000
REFUSED: dict[str, Callable[[Path], None]] = {
    "attention of a hub": config(attn_implementation="org/kernel"),
    "attention of a hub, old key": config(_attn_implementation="org/kernel"),
    "attention of a hub, inner key": config(_attn_implementation_internal="org/kernel"),
    "attention of a hub by part": config(attn_implementation={"": "org/kernel:forward"}),
    "attention of a hub within": config(text_config={"attn_implementation": "org/kernel"}),
    "experts of a hub": config(experts_implementation="org/kernel"),
    "kernels of a hub": config(kernel_config={"kernel_mapping": {"Linear": "org/kernel:Linear"}}),
    "ten million layers": config(num_hidden_layers=10_000_000),
    "layers beyond the file's": config(num_hidden_layers=500),
    "labels without end": config(num_labels=10**6),
    "deep configuration": write("config.json", DEEP),
    "configuration is a list": write("config.json", "[1, 2]"),
    "configuration is no JSON": write("config.json", "{"),
    "configuration is not a text": write("config.json", b"\xff\xfe{"),
    "no head": config(num_attention_heads=0),
    "heads are a word": config(num_attention_heads="two"),
    "unknown activation": config(hidden_act="nosuch"),
    "padding beyond the vocabulary": config(pad_token_id=10**9),
    "unknown type": config(model_type="nosuch"),
    "weights above the folder": weights_at("../w.safetensors"),
    "weights below the folder": weights_at("inner/w.safetensors"),
    "hidden weights": weights_at(".w.safetensors"),
    "weights of another kind": weights_at("w.bin"),
    "tokenizer is no JSON": write("tokenizer.json", "{"),
    "index of nonsense": write("model.safetensors.index.json", "[]"),
    "weights cut short": cut,
    "weights with a huge header": write("model.safetensors", struct.pack("<Q", 2**60) + b"{}"),
    "weights are pickled": pickled,
    "not a number": number(np.nan),
    "infinite": number(np.inf),
    "an adapter": write("adapter_config.json", "{}"),
    "modules above the folder": modules("../other"),
    "modules in a hidden place": modules(".other"),
    "modules elsewhere": modules("/etc"),
    "modules are a number": write("modules.json", "7"),
    "modules are bare names": write("modules.json", '["a"]'),
}
# refused in one line or opened without harm, as the library decides
EITHER: dict[str, Callable[[Path], None]] = {
    "code of its own": code,
    "code of another": config(auto_map={"AutoModelForMaskedLM": "org/repo--evil.Evil"}),
    "module of its own": module_of_code,
    "module of Python": modules("", kind="os.system"),
    "quantised": config(quantization_config={"quant_method": "bitsandbytes", "load_in_8bit": True}),
    "no layer": config(num_hidden_layers=0),
    "fewer than no layers": config(num_hidden_layers=-1),
    "no width": config(hidden_size=0),
    "huge width": config(hidden_size=2**30),
    "huge vocabulary": config(vocab_size=2**40),
    "architectures are a number": config(architectures=3),
    "dropout of 7": config(hidden_dropout_prob=7),
    "tokenizer has code": write(
        "tokenizer_config.json", '{"auto_map": {"AutoTokenizer": ["evil.Evil", null]}}'
    ),
}  # fmt: skip
# found when the model is built or its weights are read, not when its configuration is
LATER = {name for name in REFUSED if name.startswith("weights")}
LATER |= {"not a number", "infinite"}
LATER |= {"no head", "unknown activation", "padding beyond the vocabulary"}
WAYS = {
    "masked LM": load_masked_lm,
    "sentence encoder": SentenceEncoder,
    "base of a recipe": lambda folder: open_checkpoint(str(folder)),
}


@pytest.fixture
def folder(tmp_path, tiny_bert, tiny_tokenizer) -> Path:
    """A small valid model, with the files that sentence-transformers needs."""
    save_masked_lm(tiny_bert(), tiny_tokenizer, tmp_path / "model")
    return tmp_path / "model"


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", [*REFUSED, *EITHER])
def test_a_hostile_folder_ends_in_one_line_and_runs_nothing(folder, kind, way, counted):
    (REFUSED | EITHER)[kind](folder)
    # code that needs only configuration and tokenizer works if only the weights are wrong
    harmless = kind in EITHER or (way == "base of a recipe" and kind in LATER)
    try:
        WAYS[way](folder)
    except InputError as error:
        assert "\n" not in str(error) and str(folder.parent) in error.where
    else:
        assert harmless, "opened"
    assert not (folder.parent / "owned").exists(), "its code ran"
    counted("hostile folders of models", 1)


@pytest.mark.parametrize("way", WAYS)
def test_the_sound_folder_opens(folder, way):
    """Unread files may contain anything: all-MiniLM-L6-v2 lists its data in such a file."""
    write("data_config.json", '[{"name": "stackexchange", "lines": 10009, "weight": 1}]')(folder)
    WAYS[way](folder)


WEIGHED = {name: WAYS[name] for name in ("masked LM", "sentence encoder")} | {
    "retriever of a recipe": open_encoder,
    "start of an encoder": DenseEncoder.from_pretrained,
    "start of a re-ranker": CrossEncoder.from_pretrained,
    "start of late interaction": LateInteraction.from_pretrained,
    "encoder without a head": with_fresh_head,
}


@pytest.mark.parametrize("way", WEIGHED)
@pytest.mark.parametrize("kind", LACKING)
def test_weights_that_are_missing_are_named_on_every_way(folder, kind, way):
    """Otherwise the library draws them at random, differently each time."""
    change, named = LACKING[kind]
    change(folder)
    with pytest.raises(InputError, match=r"lacks \d+ weights") as caught:
        WEIGHED[way](folder)
    assert named in str(caught.value), caught.value


def test_a_pooler_that_nothing_reads_may_be_missing(folder):
    """A masked LM has none; if pooling reads the last layer, vectors do not depend on it."""
    assert not any("pooler" in name for name in load_file(folder / "model.safetensors"))
    texts = ["a text", "another"]
    first, second = (SentenceEncoder(folder).encode(texts) for _ in range(2))
    np.testing.assert_array_equal(first, second)


def test_texts_are_cut_to_the_positions_that_there_are(folder, tiny_tokenizer):
    """A folder may say that its texts are longer, and the library believes it."""
    positions = json.loads((folder / "config.json").read_text())["max_position_embeddings"]
    write("sentence_bert_config.json", json.dumps({"max_seq_length": 9 * positions}))(folder)
    words = ["text"] * 8 * positions
    found = SentenceEncoder(folder).encode([" ".join(words), " ".join(words[: positions - 2])])
    np.testing.assert_allclose(found[0], found[1], atol=1e-6)


@pytest.fixture
def composed(folder) -> Path:
    """The valid model in sentence-transformers' format: modules.json, 1_Pooling (cls)."""
    encoder = DenseEncoder.from_pretrained(folder, pooling="cls", passage_length=24, title="none")
    save_for_others(encoder, folder.parent / "composed")
    (folder.parent / "composed" / "dense.json").unlink()
    return folder.parent / "composed"


def changed(name: str, **changes) -> Callable[[Path], None]:
    """Change entries of a JSON file; None removes an entry."""

    def change(folder: Path) -> None:
        values = json.loads((folder / name).read_text()) | changes
        write(name, json.dumps({key: value for key, value in values.items() if value}))(folder)

    return change


def removed(name: str) -> Callable[[Path], None]:
    def remove(folder: Path) -> None:
        place = folder / name
        shutil.rmtree(place) if place.is_dir() else place.unlink()

    return remove


def smaller_vocabulary(folder: Path) -> None:
    weights = load_file(folder / "model.safetensors")
    (name,) = (name for name in weights if "word_embeddings" in name)
    weights[name] = weights[name][:-1].contiguous()
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    config(vocab_size=len(weights[name]))(folder)


def without_pooling(folder: Path) -> None:
    listed = json.loads((folder / "modules.json").read_text())
    write("modules.json", json.dumps(listed[:1]))(folder)


def decoder(folder: Path) -> None:
    """A decoder that is padded on the left and counts its positions from there."""
    tokenizer = load_tokenizer(folder)
    sizes = {"n_positions": 64, "n_embd": 8, "n_layer": 1, "n_head": 1}
    GPT2Model(GPT2Config(vocab_size=len(tokenizer), **sizes)).save_pretrained(folder)
    write("1_Pooling/config.json", '{"embedding_dimension": 8, "pooling_mode": "mean"}')(folder)
    changed("tokenizer_config.json", padding_side="left")(folder)


SENTENCES = "sentence_bert_config.json"
NONSENSE: dict[str, tuple[Callable[[Path], None], str]] = {
    "no tokenizer": (removed("tokenizer.json"), "composed: makes one vector of all texts"),
    "texts of no token": (changed(SENTENCES, max_seq_length=2), "makes one vector of all texts"),
    "no number of tokens": (changed(SENTENCES, max_seq_length="9"), "composed: cannot be loaded"),
    "fewer than no tokens": (changed(SENTENCES, max_seq_length=-9), "composed: cannot be loaded"),
    "no list of modules": (removed("modules.json"), "modules.json: is missing, though 1_Pooling"),
    "no pooling": (removed("1_Pooling"), "1_Pooling: is missing or empty"),
    "pooling in no list": (without_pooling, "composed: the checkpoint lacks 2 weights (pooler"),
    "tokenizer of more tokens": (smaller_vocabulary, "its tokenizer has"),
    "depends on its neighbours": (decoder, "makes other vectors of a text beside longer ones"),
    "broken": (write(SENTENCES, "{"), f"{SENTENCES} line 1: not valid JSON"),
    "not fetched": (
        write("tokenizer.json", "version https://git-lfs.github.com/spec/v1\noid"),
        "tokenizer.json: only names a file that was not fetched",
    ),
    "pickled module": (write("1_Pooling/pytorch_model.bin", "?"), "1_Pooling: holds weights in pi"),
    "prompts are numbers": (
        changed("config_sentence_transformers.json", prompts={"query": 3}),
        "config_sentence_transformers.json: its prompts are not a mapping of texts",
    ),
    "other sizes": (config(intermediate_size=8), "weights of the sizes in config.json"),
}


@pytest.mark.parametrize("kind", NONSENSE)
def test_an_encoder_that_would_answer_nonsense_is_refused(composed, kind):
    change, told = NONSENSE[kind]
    change(composed)
    with pytest.raises(InputError, match=re.escape(told)) as caught:
        SentenceEncoder(composed)
    assert "\n" not in str(caught.value)


READ = ("config.json", "tokenizer.json", "tokenizer_config.json", "modules.json", SENTENCES)
READ += ("config_sentence_transformers.json", "1_Pooling/config.json")
BROKEN = {
    "cut": lambda content: content[: len(content) // 2],
    "empty": lambda _: b"",
    "no UTF-8": lambda content: content.replace(b'"', b'"\xe9', 1),
    "another kind": lambda content: b"[1, 2]" if content[:1] == b"{" else b"{}",
}


@pytest.mark.parametrize("name", READ)
def test_of_broken_json_the_file_is_named_and_the_way_out(composed, name):
    content = (composed / name).read_bytes()
    for kind, change in BROKEN.items():
        write(name, change(content))(composed)
        with pytest.raises(InputError, match=re.escape(str(composed / name))) as caught:
            SentenceEncoder(composed)
        assert "Save the model again" in caught.value.fix, kind


def test_a_model_that_writes_opens_with_the_pooling_that_its_folder_names(composed):
    """As in public encoders based on one; otherwise its pooling is unknown."""
    tokenizer, sizes = load_tokenizer(composed), {"hidden_size": 8, "intermediate_size": 16}
    sizes |= {"num_hidden_layers": 1, "num_attention_heads": 1, "max_position_embeddings": 64}
    LlamaForCausalLM(LlamaConfig(vocab_size=len(tokenizer), **sizes)).save_pretrained(composed)
    pooling = '{"embedding_dimension": 8, "pooling_mode": "lasttoken"}'
    write("1_Pooling/config.json", pooling)(composed)
    assert open_encoder(composed).encode(["a text"]).shape == (1, 8)
    for name in ("modules.json", "1_Pooling", "2_Normalize"):
        removed(name)(composed)
    with pytest.raises(InputError, match="is not an encoder but a LlamaForCausalLM"):
        open_encoder(composed)


def test_the_old_layout_opens_and_its_weights_are_looked_at(composed):
    """The transformer in a subfolder, as saved by early versions of the library."""
    texts, inner = ["a text", "another"], composed / "0_Transformer"
    expected = SentenceEncoder(composed).encode(texts)
    inner.mkdir()
    for path in [path for path in composed.iterdir() if path.is_file()]:
        if path.name not in ("modules.json", "config_sentence_transformers.json"):
            path.rename(inner / path.name)
    listed = json.loads((composed / "modules.json").read_text())
    listed[0]["path"] = inner.name
    write("modules.json", json.dumps(listed))(composed)
    np.testing.assert_array_equal(SentenceEncoder(composed).encode(texts), expected)
    without("layer.0.attention.self.query")(inner)
    with pytest.raises(InputError, match=r"lacks \d+ weights"):
        SentenceEncoder(composed)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_weights_in_half_precision_are_computed_with_in_float32(composed, dtype):
    """Otherwise vectors have lengths of 0.998 to 1.002 on a processor, and rankings change."""
    weights = load_file(composed / "model.safetensors")
    halves = {name: tensor.to(dtype) for name, tensor in weights.items()}
    save_file(halves, composed / "model.safetensors", {"format": "pt"})
    config(dtype=str(dtype).removeprefix("torch."))(composed)
    tokenizer = AutoTokenizer.from_pretrained(composed)
    model = AutoModel.from_pretrained(composed, dtype=torch.float32).eval()
    with torch.no_grad():
        vector = model(**tokenizer("a text", return_tensors="pt"))[0][0, 0]
    expected = (vector / vector.norm()).numpy()
    np.testing.assert_allclose(SentenceEncoder(composed).encode(["a text"])[0], expected, atol=1e-6)


@pytest.mark.parametrize("key", ["max_window_layers", "every_n_layers"])
def test_a_number_that_counts_no_layers_may_be_any(folder, key):
    config(**{key: 10_000})(folder)
    for open_by in WAYS.values():
        open_by(folder)


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("way", ["masked LM", "sentence encoder"])
def test_weights_that_are_no_numbers_are_said_on_every_way(folder, value, way):
    number(value)(folder)
    with pytest.raises(InputError, match="is finite"):
        WAYS[way](folder)


def test_what_the_digest_of_a_folder_covers_is_all_that_is_read(folder):
    """Weights in several files: each change of one changes the digest."""
    weights = load_file(folder / "model.safetensors")
    names = sorted(weights)
    halves = {"model-1.safetensors": names[::2], "model-2.safetensors": names[1::2]}
    for file, part in halves.items():
        save_file({name: weights[name] for name in part}, folder / file, {"format": "pt"})
    (folder / "model.safetensors").unlink()
    index = {name: file for file, part in halves.items() for name in part}
    (folder / "model.safetensors.index.json").write_text(
        json.dumps({"metadata": {}, "weight_map": index})
    )
    before = model_digest(folder)
    whole = load_masked_lm(folder).state_dict()
    torch.testing.assert_close(whole[names[1]], weights[names[1]])
    save_file({name: 1.3 * weights[name] for name in names[1::2]}, folder / "model-2.safetensors")
    assert model_digest(folder) != before


def test_a_model_of_a_hub_may_be_asked_for_by_revision(folder, monkeypatch):
    asked = []

    def fetch(name, *, revision, local_files_only, **_):
        asked.append((name, revision, local_files_only))
        return str(folder)

    monkeypatch.setattr("huggingface_hub.snapshot_download", fetch)
    for name, revision in (("org/model@1a2b3c", "1a2b3c"), ("org/model", None)):
        load_masked_lm(name)
        assert asked[-1] == ("org/model", revision, False)
        assert find_model(name) == folder and asked[-1][1] == revision
        load_tokenizer(name)
        assert asked[-1] == ("org/model", revision, False)
    # equal content, equal key, by whatever name
    digests = {open_checkpoint(name).model.digest for name in ("org/model@1a2b3c", "org/model")}
    assert digests == {model_digest(folder)}

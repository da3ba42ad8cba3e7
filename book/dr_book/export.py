"""Export: a trained model as a folder that sentence-transformers and transformers open unchanged,
with its card, and the ranking of a run as a TREC run file.

The card, `README.md`, describes the model, its use, its training, its scores and its licences. Its
template is `card.md` beside this file; the tests run its Python code. Text from a record or a
collection is escaped. Page of the book: practice/own-corpus.
"""

import html
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml
from huggingface_hub import ModelCard, ModelCardData
from safetensors.torch import save_file
from tokenizers.processors import TemplateProcessing

from dr_book.measured import mean_intervals
from dr_book.search import SAVED, collection_of, open_models
from dr_book.systems import check_outside
from dr_book.tables import spell
from dr_lib import objectives, places
from dr_lib.collections import Collection
from dr_lib.errors import InputError
from dr_lib.files import check_replaceable, fresh_folder, read_json, write_json, write_text
from dr_lib.lab import Record, models_of, ranking_of
from dr_lib.lab.records import save_records
from dr_lib.models import CrossEncoder, DenseEncoder
from dr_lib.retrieval import one_word, write_run
from dr_lib.tokens import load_tokenizer

TEMPLATE = Path(__file__).with_name("card.md")
EXPORT = "exported model"
# sentence-transformers' name of the identity activation
IDENTITY = "torch.nn.modules.linear.Identity"
POOLINGS = (
    "cls_token",
    "mean_tokens",
    "max_tokens",
    "mean_sqrt_len_tokens",
    "weightedmean_tokens",
    "lasttoken",
)


def export(source: Record | Path | str, to: Path | str, *, name: str | None = None) -> list[Path]:
    """Write the model or models of a run, each as a folder with a card.

    Args:
        source: a record of this machine, the file of one, or a folder with a saved encoder.
        to: the new folder; an earlier export is replaced. If a run has two encoders or a re-ranker,
            each gets a subfolder.
        name: title of the card; by default from the record, else from the folder's name.

    Returns:
        The folders written.

    Raises:
        InputError: `source` has no finished model, or one that was not trained here; `to` is inside
            a folder that is read, or contains something other than an export.
    """
    if isinstance(source, Record):
        models, record = models_of(source), source
    else:
        models, record = open_models(Path(source).expanduser())
    for kind, model in models.items():
        if (model / "late_interaction.json").is_file():
            fix = "Use its folder as it is: dr-lib search --reranker opens it."
            raise InputError(
                f"the {kind} is a late-interaction model, which sentence-transformers cannot open",
                where=model,
                fix=fix,
            )
        # it would be saved with settings that it was not trained with
        if not any((model / file).is_file() for file in SAVED):
            fix = "sentence-transformers opens its folder as it is."
            raise InputError(
                f"the {kind} was not fine-tuned here, so there is nothing to export",
                where=model,
                fix=fix,
            )
    target, collection = Path(to).expanduser(), _trained_on(record)
    check_replaceable(target, EXPORT)
    _check_outside(target, record, models.values())
    inside = {kind: kind if len(models) > 1 else "" for kind in models}
    with fresh_folder(target, EXPORT) as draft:
        for kind, model in models.items():
            title = name or (f"{record.label}: {record.study}" if record else model.resolve().name)
            _write(model, draft / inside[kind], f"{title} ({kind})", record, collection)
    return [target / place for place in inside.values()]


def export_run(record: Record, to: Path | str) -> list[Path]:
    """Write the ranking of a run as a TREC run file, and beside it the judgements that it was
    measured by (`.qrels`). In both, ids are encoded by `retrieval.one_word`.

    From the two, trec_eval and ir-measures compute the record's measures.

    Args:
        record: of this machine.
        to: the file; judgements go to the same name with the suffix `.qrels`.

    Returns:
        The two files.

    Raises:
        InputError: a file of that name exists or would be inside the collection, the run was not
            made on this machine, or its collection has changed.
    """
    target = Path(to).expanduser()
    files = [target, target.with_name(f"{target.name}.qrels")]
    if there := next((file for file in files if file.exists()), None):
        raise InputError("already exists", where=there, fix="Name a new file.")
    _check_outside(target, record)
    searched, ranking = collection_of(record, searched=True), ranking_of(record)
    grades = searched.qrels(record.evaluation["split"])
    judged = (
        f"{one_word(query)} 0 {one_word(passage)} {grade}\n"
        for query in ranking.query_ids
        for passage, grade in grades.get(query, {}).items()
    )
    write_run(ranking, target, searched.passages["id"], places.slug(record.label))
    write_text(files[1], "".join(judged))
    return files


def _check_outside(target: Path, record: Record | None, models: Iterable[Path] = ()) -> None:
    """Refuse to write into a model's folder, or into the collection of a run: a record has its name
    and no path, so any folder of that name above the target counts.
    """
    names = [record.recipe["collection"]["name"]] if record else []
    above = [folder for folder in Path(target).resolve().parents if folder.name in names]
    for read in (*models, *names, *above):
        check_outside(target, read)


def _trained_on(record: Record | None) -> Collection | None:
    """The collection of a run, or None if it cannot be opened: a record has no path, and a folder
    may have changed since.
    """
    try:
        return collection_of(record) if record else None
    except InputError:
        return None


def _write(
    source: Path, folder: Path, name: str, record: Record | None, collection: Collection | None
) -> None:
    """Write one model with its card, and its record if there is one."""
    kind: Any = CrossEncoder if (source / "cross_encoder.json").is_file() else DenseEncoder
    model = kind.from_pretrained(source)
    save_for_others(model, folder)
    card(model, name, record, collection).save(folder / "README.md")
    if record:
        save_records([record], folder / "record.json")


def save_for_others(model: DenseEncoder | CrossEncoder, folder: Path) -> None:
    """Save a model as a folder that sentence-transformers, as well as `from_pretrained`, opens.

    Adds to `save` the maximum length of a text, and for an encoder `modules.json` with its modules
    (pooling, projection, normalisation) and the similarity, under names that every version of
    sentence-transformers knows: those of its own writer open only in its newest version. A `[MASK]`
    in a text is plain text there too, as in `TokenStore`.
    """
    model.save(folder)
    _add(folder / "tokenizer_config.json", split_special_tokens=True)
    if isinstance(model, CrossEncoder):
        _add(folder / "config.json", sentence_transformers={"activation_fn": IDENTITY})
        _read_as_trained(model.settings.length, folder)
    else:
        write_modules(model, folder)


def write_modules(encoder: DenseEncoder, folder: Path) -> None:
    """Write the files that tell sentence-transformers how an encoder's vectors are computed and
    compared.
    """
    settings, hidden = encoder.settings, encoder.encoder.config.hidden_size
    pooled = {"cls": "cls_token", "mean": "mean_tokens"}[settings.pooling]
    modes = {f"pooling_mode_{name}": name == pooled for name in POOLINGS}
    steps = [("Pooling", {"word_embedding_dimension": hidden, "include_prompt": True} | modes, {})]
    if settings.projection:
        linear, norm = encoder.projection.linear, encoder.projection.norm
        shape = {
            "in_features": hidden,
            "out_features": hidden,
            "bias": True,
            "activation_function": IDENTITY,
        }
        steps.append(("Dense", shape, linear.state_dict(prefix="linear.")))
        steps.append(("LayerNorm", {"dimension": hidden}, norm.state_dict(prefix="norm.")))
    if settings.normalise:
        steps.append(("Normalize", {}, {}))
    modules = [
        {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"}
    ]
    for place, (kind, config, weights) in enumerate(steps, 1):
        path, whole = f"{place}_{kind}", f"sentence_transformers.models.{kind}"
        modules.append({"idx": place, "name": str(place), "path": path, "type": whole})
        # git does not keep empty folders
        write_json(folder / path / "config.json", config)
        if weights:
            save_file(weights, folder / path / "model.safetensors")
    similarity = "cosine" if settings.normalise else "dot"
    compared = {"prompts": {}, "default_prompt_name": None, "similarity_fn_name": similarity}
    write_json(folder / "modules.json", modules)
    write_json(
        folder / "sentence_bert_config.json",
        {"max_seq_length": settings.passage_length, "do_lower_case": False},
    )
    write_json(folder / "config_sentence_transformers.json", compared)
    _read_as_trained(settings.passage_length, folder)


def _read_as_trained(longest: int, folder: Path) -> None:
    """Make the tokenizer of a folder truncate, pad and frame texts as `TokenStore` does, whatever
    the base model's did: MPNet's puts two [SEP] between a title and its text, some put none.
    """
    # token types distinguish a title from its text, if the model has two
    segments = read_json(folder / "config.json").get("type_vocab_size", 2)
    types = ["token_type_ids"] if segments > 1 else []
    how = {"model_input_names": ["input_ids", *types, "attention_mask"]}
    how |= dict.fromkeys(("padding_side", "truncation_side"), "right")
    tokenizer = load_tokenizer(folder)
    (first, start), (last, end) = framing = [
        (token, tokenizer.convert_tokens_to_ids(token))
        for token in (tokenizer.cls_token, tokenizer.sep_token)
    ]
    word = tokenizer("a", add_special_tokens=False).input_ids
    pair = tokenizer("a", "a", return_token_type_ids=True)
    ids, kinds = [start, *word, end, *word, end], [0] * (len(word) + 2) + [1] * (len(word) + 1)
    if (pair.input_ids, pair.token_type_ids) != (ids, kinds):
        single = f"{first} $A {last}"
        tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
            single=single, pair=f"{single} $B:1 {last}:1", special_tokens=framing
        )
        tokenizer.backend_tokenizer.save(str(folder / "tokenizer.json"))
        how["tokenizer_class"] = "PreTrainedTokenizerFast"  # other classes frame by their own rules
    _add(folder / "tokenizer_config.json", model_max_length=longest, **how)


def _add(file: Path, **entries: Any) -> None:
    write_json(file, read_json(file) | entries)


def card(
    model: DenseEncoder | CrossEncoder,
    name: str,
    record: Record | None = None,
    collection: Collection | None = None,
) -> ModelCard:
    """The card of a model.

    Args:
        model: a retriever's encoder or a re-ranker.
        name: its name, on one line.
        record: of the run that trained it, if known.
        collection: what it was trained on, for its licence, and the generator of its queries, if
            any.
    """
    task = "text-ranking" if isinstance(model, CrossEncoder) else "sentence-similarity"
    about: dict[str, Any] = {"library_name": "sentence-transformers", "pipeline_tag": task}
    values = {
        "name": name,
        "task": task,
        "model": model,
        "record": record,
        "collection": collection,
        "references": references(record.recipe["objective"]["name"] if record else ""),
    }
    if record:
        about |= {
            "datasets": [plain(record.trained_on["name"])],
            "base_model": plain(record.data["base"]["name"]),
        }
        scores = {
            f"{measure}, %": spell(mean_intervals({"": [record]}, measure)[""])
            for measure in sorted(record.means)  # the order in a record read from disk
        }
        made = made_on(record.machine, record.commit)
        values |= {"recipe": record.recipe, "scores": scores, **made}
    return write_card(TEMPLATE, about, values)


def write_card(template: Path, about: dict[str, Any], values: dict[str, Any]) -> ModelCard:
    """A card from a template, which also receives the functions that turn values into Markdown.

    Args:
        template: the file.
        about: front matter of this card besides licence and tags.
        values: variables of the template; `recipe` is shown as YAML.
    """
    tags = ["sentence-transformers", "transformers", "dense-retrieval", *about.pop("tags", [])]
    data = ModelCardData(license="other", license_name="see-licences-below", tags=tags, **about)
    values |= {"recipe": yaml.safe_dump(values.get("recipe"), allow_unicode=True)}
    markup = {"plain": plain, "fence": _fence, "rows": _rows}
    return ModelCard.from_template(data, template_path=str(template), **values, **markup)


def made_on(facts: dict[str, Any], commit: dict[str, Any]) -> dict[str, str]:
    """Machine and commit, as named on a card."""
    machine = ", ".join([str(facts.get("cpu")), *(facts.get("gpus") or [])])
    return {
        "machine": machine,
        "commit": f"{commit.get('id')}{' with changes' if commit.get('changed') else ''}",
    }


def references(method: str) -> str:
    """BibTeX entries of the papers behind a pre-training method, and of BM25, whose negatives
    retrievers learn from.

    Args:
        method: one-word name of the objective; one without papers gives only BM25's entry.

    Returns:
        The entries from the book's list; "" if the book is not installed.

    Example:
        >>> [entry.split("{")[1].split(",")[0] for entry in references("simlm").split("\\n\\n")]
        ['simlm', 'robertson2009']
    """
    path = places.project_root() / "book" / "references.bib"
    text = path.read_text(encoding="utf-8") if path.is_file() else ""
    papers = objectives.method(method).cites if method in objectives.names() else ()
    entries = {
        entry[1]: entry[0].strip()
        for entry in re.finditer(r"^@\w+\{([^,]+),.*?^\}", text, re.M | re.S)
    }
    return "\n\n".join(entries[key] for key in (*papers, "robertson2009") if key in entries)


def _rows(facts: dict[str, Any]) -> str:
    """A Markdown table of two columns."""
    return "\n".join(
        [
            "| | |",
            "|---|---|",
            *(f"| {plain(name)} | {plain(value)} |" for name, value in facts.items()),
        ]
    )


def _fence(text: str, language: str) -> str:
    """A block of code, whatever it contains."""
    fence = "`" * max(3, 1 + max((len(run) for run in re.findall("`+", text)), default=0))
    return f"{fence}{language}\n{text.rstrip()}\n{fence}"


def plain(value: Any) -> str:
    r"""A value as Markdown that shows exactly its characters, on one line.

    Example:
        >>> plain("<b> | [a](b)")
        '&lt;b&gt; \\| \\[a\\](b)'
    """
    text = " ".join(str(value).split())
    return re.sub(r"([\\`*_\[\]|#~$])", r"\\\1", html.escape(text, quote=False))

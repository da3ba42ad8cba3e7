"""The machine in a record, and the table of memory against a count of every tensor of a step, on a
device without values.
"""

import getpass
import json
import platform
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
import yaml
from bench_device import Size, electra_generator, masked_lm, texts
from bench_simlm_step import bench_tokenizer
from counting import count_step
from transformers import BertConfig, BertForMaskedLM

from dr_lib import lab, objectives, places
from dr_lib.errors import InputError
from dr_lib.lab import checks
from dr_lib.lab.checks import UNIT, Step, bert_weights
from dr_lib.lab.inputs import Shape
from dr_lib.models import bert
from dr_lib.objectives.condenser import Siblings
from dr_lib.objectives.contrastive import Contrastive
from dr_lib.objectives.master import MasterBatch
from dr_lib.tokens import TokenBatch
from dr_lib.training import RetrievalBatch, TrainSettings, machine
from dr_lib.training.loop import out_of_memory

GIB = 2**30
SCALES = places.project_root() / "notebooks" / "scales"


def per_position(step, length: int) -> float:
    """Bytes per position of a batch: the difference of two batches with several chunks of logits
    does not contain the chunks or the weights.
    """
    few, many = (count_step(lambda rows=rows: step(rows)).memory for rows in (512, 2048))
    return (many - few) / (1536 * length)


@pytest.mark.parametrize(
    ("layers", "hidden", "length"),
    [(12, 768, 144), (12, 768, 192), (12, 768, 32), (6, 384, 144), (24, 1024, 144)],
)
def test_a_position_keeps_so_many_bytes_a_layer_and_unit(layers, hidden, length):
    model = masked_lm(Size(layers, hidden))

    def step(rows: int) -> torch.Tensor:
        model.zero_grad()
        return bert.hidden_states(model, texts(rows, length)).float().square().mean()

    assert per_position(step, length) / ((layers + 1) * hidden) == pytest.approx(UNIT, rel=0.1)


def batch_of(name: str, rows: int, length: int):
    """A batch of a method, of `rows * length` positions for its encoder's plain pass."""
    whole = replace(texts(rows, length), values=torch.zeros(rows, length, device="meta"))
    if name == "cocondenser":
        return Siblings(whole, whole.rows)
    if name == "master":
        return MasterBatch(whole, None, whole, whole, whole, longest_word=4)
    if issubclass(objectives.method(name), Contrastive):
        half = texts(rows // 2, length)
        return RetrievalBatch(half, half, half.rows)
    return whole


@pytest.mark.parametrize(
    ("name", "values"),
    [
        *((name, {}) for name in objectives.names() if name != "none"),
        ("simlm", {"decoder_layers": 4}),
        ("master", {"tasks": ["mkp"]}),
        ("condenser", {"late_mlm": False}),
    ],
)
def test_a_method_knows_how_deep_it_is(name, values):
    size = Size(layers=4)
    tokenizer = bench_tokenizer(size.vocab)

    def step(rows: int) -> torch.Tensor:
        models = {"generator_model": electra_generator(size)}
        method = objectives.create(name, masked_lm(size), tokenizer, **models, **values)
        batch = batch_of(name, rows, 88)
        return method.to("meta").train()(batch, torch.Generator())["loss"]

    depth = objectives.parameters(name, **values).depth(size.layers)
    layers = per_position(step, 88) / (UNIT * size.hidden) - 1
    assert depth == pytest.approx(layers, abs=1, rel=0.05)


def test_weights_are_those_of_the_model():
    with torch.device("meta"):
        model = BertForMaskedLM(BertConfig())
    counted = sum(weight.numel() for weight in model.parameters())
    assert bert_weights(12, 768, 30522) == pytest.approx(counted, rel=0.01)


def steps(scale: str, **changes) -> dict[str, Step]:
    """Steps of a scale's recipe, with models of BERT-base's shape or those of its own file."""
    recipe = lab.Recipe(**yaml.safe_load((SCALES / f"{scale}.yaml").read_text())["recipe"])
    recipe = recipe.with_(objective="simlm", final="distilled", **changes)
    shape = Shape(6, 384, 8192, 512) if scale == "gpu" else Shape(12, 768, 30522, 512)
    model = SimpleNamespace(shape=shape)
    return checks.steps_of(SimpleNamespace(recipe=recipe, base=model, reader=model))


@pytest.mark.parametrize(("scale", "gib"), [("gpu", 75), ("paper", 75), ("paper-24gb", 22)])
def test_every_training_of_a_scale_fits(scale, gib):
    wanted = {"pretraining", "finetuning", "distillation", "auxiliary.cross_encoder"}
    found = steps(scale)
    assert wanted <= found.keys()
    assert {
        name: step.bytes() / GIB for name, step in found.items() if step.bytes() > gib * GIB
    } == {}


@pytest.mark.parametrize("scale", ["paper", "paper-24gb"])
def test_an_update_is_the_papers_and_goes_round_eight_processes(scale):
    recipe = lab.Recipe(**yaml.safe_load((SCALES / f"{scale}.yaml").read_text())["recipe"])
    reader = recipe.auxiliary.cross_encoder
    assert recipe.pretraining.tokens_per_batch * recipe.pretraining.accumulation == 3 * 59_392
    assert reader.batch_queries * reader.accumulation == 64 and reader.negatives == 63
    assert recipe.finetuning.batch_queries == recipe.distillation.batch_queries == 64
    assert recipe.pretraining.accumulation % 8 == reader.accumulation % 8 == 0
    assert recipe.finetuning.batch_queries % 8 == 0


def test_what_would_run_out_of_memory_is_refused_with_values_that_fit():
    recipe = lab.Recipe(**yaml.safe_load((SCALES / "paper.yaml").read_text())["recipe"])
    recipe = recipe.with_(objective="simlm", final="distilled", distillation__chunk=None)
    model = SimpleNamespace(shape=Shape(12, 768, 30522, 512))
    inputs = SimpleNamespace(recipe=recipe, base=model, reader=model)
    checks.check_memory(inputs, None)
    checks.check_memory(inputs, 141 * GIB)
    with pytest.raises(InputError, match="distillation") as refused:
        checks.check_memory(inputs, 70 * GIB)
    assert "Set distillation.chunk to" in refused.value.fix
    for name, key in (
        ("pretraining", "pretraining.tokens_per_batch"),
        ("auxiliary.cross_encoder", "auxiliary.cross_encoder.chunk"),
    ):
        step = checks.steps_of(inputs)[name]
        memory = int(0.7 * step.bytes())
        assert step.positions > step.fitting(memory)
        assert key in checks.smaller(recipe, name, step.fitting(memory))


def test_what_fits_is_what_is_told_to_fit():
    for layers, hidden in ((12, 768), (6, 384), (24, 1024)):
        weights = bert_weights(layers, hidden, 30522)
        for memory in (24 * GIB, 80 * GIB):
            positions = Step(0, layers, hidden, weights).fitting(memory)
            assert Step(positions, layers, hidden, weights).bytes() <= 0.94 * memory
            assert Step(positions + 2, layers, hidden, weights).bytes() > 0.94 * memory
    assert Step(0, 24, 1024, 10**9).fitting(10 * GIB) == 0


def test_running_out_of_memory_names_what_to_change():
    settings = TrainSettings(steps=1, learning_rate=1e-3, accumulation=3)
    batch = TokenBatch(*[torch.ones(4, 10, dtype=torch.long)] * 5, torch.arange(4))
    error = torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB.")
    told = out_of_memory("fine-tuning", batch, settings, error)
    assert "40 tokens" in told.problem and "accumulation to 6" in told.fix
    assert "tokens_per_batch 20" in told.fix and told.where == "fine-tuning"


def test_thread_count_comes_from_the_setting_first(monkeypatch):
    monkeypatch.delenv("DR_THREADS", raising=False)
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert machine.threads() == 3
    monkeypatch.setenv("DR_THREADS", "5")
    assert machine.threads() == 5


def test_without_a_setting_physical_cores_are_taken(monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.delenv("DR_THREADS", raising=False)
    monkeypatch.setattr(machine.psutil, "cpu_count", lambda logical: 4)
    monkeypatch.setattr(machine, "allowed_cores", lambda: 64)
    assert machine.threads() == 4
    monkeypatch.setattr(machine, "allowed_cores", lambda: 2)
    assert machine.threads() == 2


@pytest.mark.parametrize(("quota", "cores"), [("max", 2), ("400000", 2), ("50000", 1)])
def test_cores_are_those_of_scheduler_and_quota_whichever_grants_fewer(monkeypatch, quota, cores):
    file = SimpleNamespace(is_file=lambda: True, read_text=lambda: f"{quota} 100000")
    monkeypatch.setattr(machine, "Path", lambda place: file)
    monkeypatch.setattr(machine.os, "sched_getaffinity", lambda process: {0, 1}, raising=False)
    assert machine.allowed_cores() == cores


def test_a_process_of_several_computes_on_its_own_device(monkeypatch):
    monkeypatch.setattr(machine, "device", lambda: torch.device("cuda"))
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setenv("DR_PROCESSES", "2")
    monkeypatch.delenv("RANK", raising=False)
    assert machine.available_devices() == [torch.device("cuda", 0), torch.device("cuda", 1)]
    monkeypatch.setenv("RANK", "1")
    assert machine.available_devices() == [torch.device("cuda")]


def test_each_part_of_a_model_is_in_its_mode_again_after_an_evaluation():
    model = torch.nn.Sequential(torch.nn.Dropout(), torch.nn.Dropout())
    model[1].eval()
    with machine.evaluating(model, "fp32"):
        assert not model[0].training
    assert [part.training for part in model] == [True, False]


def test_no_more_is_computed_in_advance_than_allowed():
    taken = []
    with ThreadPoolExecutor(1) as pool:
        assert next(machine.in_order(pool, str, map(taken.append, range(99)), 3)) == "None"
    assert len(taken) == 4


@pytest.mark.parametrize("text", ["0", "two", "-1", "1.5"])
def test_a_thread_count_that_is_none_is_refused(monkeypatch, text):
    monkeypatch.setenv("DR_THREADS", text)
    with pytest.raises(InputError, match="DR_THREADS"):
        machine.threads()


def test_training_uses_the_thread_setting(monkeypatch, tmp_path, regression, gaussian_batches):
    from dr_lib.training import TrainSettings, train

    before = torch.get_num_threads()
    monkeypatch.setenv("DR_THREADS", "2")
    try:
        settings = TrainSettings(steps=1, learning_rate=0.1)
        log = train(
            regression(), gaussian_batches, settings, tmp_path, title="threads", progress=False
        )
        assert (torch.get_num_threads(), log.threads) == (2, 2)
    finally:
        torch.set_num_threads(before)


def test_auto_precision_follows_the_processor(monkeypatch):
    cpu = torch.device("cpu")
    for flags, expected in (
        ({"avx2"}, "fp32"),
        ({"avx512_bf16"}, "bf16"),
        ({"amx_bf16"}, "bf16"),
        (set(), "fp32"),
    ):
        monkeypatch.setattr(machine, "_cpu_flags", lambda flags=flags: frozenset(flags))
        assert machine.precision("auto", cpu) == expected
        assert machine.precision("bf16", cpu) == "bf16"


def test_an_unknown_device_is_refused(monkeypatch):
    monkeypatch.setenv("DR_DEVICE", "tpu")
    with pytest.raises(InputError, match="DR_DEVICE"):
        machine.device()


def test_facts_name_the_machine_but_no_person_host_or_folder():
    facts = machine.machine_facts()
    assert facts["cpu"] and facts["cores"] >= 1 and facts["memory_gib"] > 0
    assert {"python", "torch", "transformers"} <= set(facts["versions"])
    told = json.dumps(facts)
    assert "/" not in told.replace(facts["cpu"], "")
    for private in (platform.node(), getpass.getuser()):
        assert not private or f'"{private}"' not in told


@pytest.mark.parametrize("name", ["cuda", "mps"])
def test_a_device_is_taken_where_it_is_asked_for_and_there(monkeypatch, name):
    present = {"cuda": torch.cuda, "mps": torch.backends.mps}
    for there, module in present.items():
        monkeypatch.setattr(module, "is_available", lambda there=there: there == name)
    monkeypatch.delenv("DR_DEVICE", raising=False)
    assert machine.device().type == ("cuda" if name == "cuda" else "cpu")
    monkeypatch.setenv("DR_DEVICE", name)
    assert machine.device().type == name
    monkeypatch.setattr(present[name], "is_available", lambda: False)
    with pytest.raises(InputError, match=f"torch sees no {name.upper()} device"):
        machine.device()


def test_memory_is_known_without_the_module_that_windows_lacks(monkeypatch):
    assert machine.peak_memory()["host"] > 2**20
    monkeypatch.setattr(machine, "resource", None)
    told = SimpleNamespace(memory_info=lambda: SimpleNamespace(peak_wset=7))
    monkeypatch.setattr(machine.psutil, "Process", lambda: told)
    assert machine.peak_memory()["host"] == 7

"""Pre-training in a tab: the script's losses, gradients and optimizer are torch's (in node), and a
browser learns from disk.
"""

import json
import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pretrain_tab
import pytest
import torch
from browser import needs_chromium, opened
from scipy.stats import entropy
from torch import Tensor
from torch.nn.functional import cross_entropy, embedding, gelu, layer_norm, linear

from dr_lib.collections import load

ROOT = Path(__file__).resolve().parents[2]
SCRIPT, EXPLORERS = pretrain_tab.SCRIPT, ROOT / "book" / "extra" / "explorers"
SIZES = {"vocabulary": 23, "longest": 12, "hidden": 8, "inner": 12, "heads": 2, "gain": 1}
MASK = 3


@pytest.fixture(scope="module")
def run() -> Callable[[str], Any]:
    """Run JavaScript that returns a value, with `pretrain`, a small `model` and three `sequences`
    defined.
    """
    if not shutil.which("node"):
        pytest.skip("needs node (Debian: apt install nodejs)")
    start = f"""
      globalThis.bert = require({json.dumps(str(pretrain_tab.LAYERS))});
      const pretrain = require({json.dumps(str(SCRIPT))}),
        model = pretrain.create({json.dumps(SIZES)}, 1);
      const sequences = [[1, 9, 7, 22, 5, 2], [1, 7, 7, 8, 9, 10, 11, 12, 6, 5, 13, 2], [1, 20, 2]];
      model.data.forEach((_, i) => {{ model.data[i] += 0.1 * Math.sin(i); }});
      // no bias is 0, no scale 1
      const masks = pretrain.masks(sequences, [0.3, 0.6], pretrain.generator(5));
      const array = (one, key) => [one.rows, one.columns, [...one[key]]];
      const named = (key) => Object.fromEntries(Object.entries(model.at).map(([name, one]) =>
        [name, array(one, key)]));
    """

    def run(code: str) -> Any:
        program = f"{start} console.log(JSON.stringify((() => {{ {code} }})()));"
        done = subprocess.run(["node", "-e", program], capture_output=True, text=True, check=True)
        return json.loads(done.stdout)

    return run


def arrays(told: dict[str, Any]) -> dict[str, Tensor]:
    """Named parameters or gradients of the script as tensors; one row is a vector."""
    found = {
        name: torch.tensor(data, dtype=torch.float64).view(rows, columns)
        for name, (rows, columns, data) in told.items()
    }
    return {name: one[0] if len(one) == 1 else one for name, one in found.items()}


class Twin:
    """The same model in plain torch, for one sequence at a time."""

    def __init__(self, told: dict[str, Any]):
        self.at = {name: one.requires_grad_() for name, one in arrays(told).items()}

    def apply(self, name: str, x: Tensor) -> Tensor:
        return linear(x, self.at[f"{name}.weight"], self.at[f"{name}.bias"])

    def norm(self, name: str, x: Tensor) -> Tensor:
        return layer_norm(
            x, x.shape[-1:], self.at[f"{name}.weight"], self.at[f"{name}.bias"], eps=1e-12
        )

    def embed(self, ids: Tensor) -> Tensor:
        return self.norm(
            "norm", embedding(ids, self.at["words"]) + self.at["positions"][: len(ids)]
        )

    def layer(self, name: str, x: Tensor) -> Tensor:
        def heads(part: str) -> Tensor:
            return self.apply(f"{name}.{part}", x).view(len(x), SIZES["heads"], -1).transpose(0, 1)

        read = torch.nn.functional.scaled_dot_product_attention(
            heads("query"), heads("key"), heads("value")
        )
        joined = read.transpose(0, 1).reshape(len(x), -1)
        attended = self.norm(f"{name}.attended", x + self.apply(f"{name}.output", joined))
        inner = gelu(self.apply(f"{name}.up", attended), approximate="tanh")
        return self.norm(f"{name}.written", attended + self.apply(f"{name}.down", inner))

    def losses(
        self,
        sequences: list[list[int]],
        masks: list[list[list[int]]],
        bottleneck: bool,
        turn: int = 0,
    ) -> list[Tensor]:
        """Encoder's and decoder's loss, the latter 0 without a bottleneck."""
        clean = [torch.tensor(one) for one in sequences]
        guesses: list[list[Tensor]] = [[], []]
        read = [
            ids.index_fill(0, torch.tensor(mask[0]), MASK)
            for ids, mask in zip(clean, masks, strict=True)
        ]
        states = [self.layer("encoder", self.embed(ids)) for ids in read]
        for i, (ids, mask) in enumerate(zip(clean, masks, strict=True)):
            guesses[0].append(states[i][mask[0]])
            vector = states[(i + turn) % len(clean)][:1]
            own = self.embed(ids.index_fill(0, torch.tensor(mask[1]), MASK))
            guesses[1].append(self.layer("decoder", torch.cat([vector, own[1:]]))[mask[1]])
        found = []
        for side in range(1 + bottleneck):
            targets = torch.cat([ids[mask[side]] for ids, mask in zip(clean, masks, strict=True)])
            logits = linear(torch.cat(guesses[side]), self.at["words"], self.at["head.bias"])
            found.append(cross_entropy(logits, targets))
        return found


@pytest.mark.parametrize("bottleneck", [True, False])
def test_losses_and_every_gradient_are_torchs(run, bottleneck):
    code = f"""
      const losses = pretrain.losses(model, sequences, masks,
        {{ bottleneck: {json.dumps(bottleneck)} }});
      const listed = masks.map((one) => one.map((mask) => [...mask]));
      return {{ losses, sequences, masks: listed, data: named("data"), grad: named("grad") }};
    """
    found = run(code)
    twin = Twin(found["data"])
    losses = twin.losses(found["sequences"], found["masks"], bottleneck)
    sum(losses).backward()
    np.testing.assert_allclose(
        [*found["losses"].values()], [one.item() for one in losses], atol=1e-4
    )
    for name, grad in arrays(found["grad"]).items():
        expected = twin.at[name].grad
        expected = torch.zeros_like(grad) if expected is None else expected
        np.testing.assert_allclose(grad, expected, atol=1e-4, err_msg=name)
    reached = {
        name
        for name, one in twin.at.items()
        if one.grad is not None and one.grad.abs().max() > 1e-3
    }
    assert {name for name in twin.at if bottleneck or "decoder" not in name} - reached <= {
        "encoder.key.bias",
        "decoder.key.bias",
    }


def test_a_vector_that_is_not_its_own_is_the_next_passages(run):
    code = """
      const losses = pretrain.losses(model, sequences, masks, { bottleneck: true, learn: false,
        turn: 1 });
      const listed = masks.map((one) => one.map((mask) => [...mask]));
      return { losses, sequences, masks: listed, data: named("data"),
        untouched: model.grad.every((one) => one === 0) };
    """
    found = run(code)
    losses = Twin(found["data"]).losses(found["sequences"], found["masks"], True, turn=1)
    np.testing.assert_allclose(
        [*found["losses"].values()], [one.item() for one in losses], atol=1e-4
    )
    assert found["untouched"]


def test_steps_are_those_of_torchs_adamw(run):
    code = """
      const before = [...model.data], steps = [];
      for (let step = 0; step < 4; step += 1) {
        model.grad.forEach((_, i) => { model.grad[i] = Math.sin(7 * i + step)
          * 10 ** (i % 5 - 3); });
        pretrain.adamw(model, { rate: 0.01 * (step + 1), decay: 0.1 });
        steps.push([...model.data]);
      }
      return { before, steps, zero: model.grad.every((one) => one === 0) };
    """
    found = run(code)
    weights = torch.tensor(found["before"], dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.AdamW([weights], lr=0.01, weight_decay=0.1)
    place = np.arange(len(weights))
    for step, expected in enumerate(found["steps"]):
        optimizer.param_groups[0]["lr"] = 0.01 * (step + 1)
        weights.grad = torch.from_numpy(np.sin(7 * place + step) * 10.0 ** (place % 5 - 3))
        optimizer.step()
        np.testing.assert_allclose(weights.detach(), expected, atol=1e-6)
    assert found["zero"]


def test_masks_are_nested_and_spare_both_ends(run):
    code = """
      const ids = Array.from({ length: 12 }, (_, i) => i), random = pretrain.generator(3);
      return Array.from({ length: 200 }, () => pretrain.masks([ids], [0.3, 0.8],
        random)[0].map((mask) => [...mask]));
    """
    drawn = run(code)
    assert all(
        len(small) == 3 and len(large) == 8 and set(small) <= set(large) for small, large in drawn
    )
    counts = np.bincount([place for _, large in drawn for place in large], minlength=12) / 200
    assert counts[0] == counts[11] == 0
    np.testing.assert_allclose(counts[1:11], 0.8, atol=0.12)


def test_mrr_counts_ranks_from_one_and_ties_by_row(run):
    scores = [[0.1, 0.9, 0.5], [0.5, 0.5, 0.5], [0.3, 0.2, 0.1]]
    code = (
        f"return pretrain.mrr(new Float64Array({json.dumps(np.ravel(scores).tolist())}), [1, 1,"
        " 2], 2);"
    )
    assert run(code) == pytest.approx((1 + 1 / 2 + 0) / 3)


def test_vectors_are_last_states_of_cls_with_length_one(run):
    found = run(
        "return { vectors: [...pretrain.vectors(model, sequences).data], sequences, data:"
        " named('data') };"
    )
    twin = Twin(found["data"])
    states = torch.stack(
        [twin.layer("encoder", twin.embed(torch.tensor(one)))[0] for one in found["sequences"]]
    )
    expected = torch.nn.functional.normalize(states, dim=1)
    np.testing.assert_allclose(
        np.array(found["vectors"]).reshape(3, -1), expected.detach(), atol=1e-6
    )


def small_data() -> dict[str, Any]:
    """Twenty passages of filler with two words of their own, which their query repeats."""
    rng = np.random.default_rng(0)
    passages = [
        [1, *rng.permutation([*rng.integers(5, 9, 4), *[9 + i, 29 + i] * 2]).tolist(), 2]
        for i in range(20)
    ]
    queries = [[1, 9 + i, 29 + i, 2] for i in range(20)]
    settings = pretrain_tab.SETTINGS | {"held": 10, "guess": 3.5, "bm25": 0.9}
    sizes = pretrain_tab.SIZES | {
        "vocabulary": 49,
        "longest": 10,
        "hidden": 16,
        "inner": 16,
        "heads": 2,
    }
    shown = {
        "titles": [f"passage <{i}>" for i in range(20)],
        "texts": ["words"] * 20,
        "asked": ["a query"] * 20,
    }
    return {"sizes": sizes, "settings": settings, "passages": passages, "queries": queries, **shown}


@pytest.mark.xdist_group("chromium")
@needs_chromium
def test_a_browser_learns_from_disk_by_keyboard(tmp_path):
    for path in [*SCRIPT.parent.glob("*.*"), EXPLORERS / "controls.js", pretrain_tab.LAYERS]:
        shutil.copy(path, tmp_path)
    data = (
        "<script>window.pretrainData ="
        f" {json.dumps(small_data()).replace('<', chr(92) + 'u003c')};</script>"
    )
    tags = "".join(f'<script src="{name}.js"></script>' for name in ("bert", "model", "page"))
    place = '<div id="pretrain-here" hidden></div><script src="controls.js"></script>'
    head = '<!doctype html><html lang="en"><meta charset="utf-8"><title>x</title>'
    (tmp_path / "page.html").write_text(f"{head}{place}{data}{tags}")
    facts = "document.querySelector('.facts').textContent"
    numbers = f"{facts}.match(/[0-9.]+(?= nats| %)|(?<=Step )[0-9]+/g).map(Number)"
    with opened(tmp_path / "profile") as browser:
        browser.visit(tmp_path / "page.html")
        step, before = browser.run(numbers)[:2]
        assert step == 0 and browser.run("document.querySelectorAll('.near li').length") == 4
        browser.run(
            "[...document.querySelectorAll('button')].find((one) => one.textContent ==="
            " 'Start').focus()"
        )
        browser.press("Enter")
        browser.wait(f"{numbers}[0] >= 25")
        _, *early = browser.run(numbers)
        browser.wait(f"{numbers}[0] >= 400")
        browser.press("Enter")
        _, encoder, decoder, after, worth = browser.run(numbers)[:5]
        assert (
            encoder < early[0] - 0.5
            and decoder < early[1] - 0.5
            and after > before + 10
            and worth > 0.5
        )
        assert browser.run("document.querySelector('[role=status]').textContent").startswith(
            "Paused. Step"
        )
        stopped = browser.run(facts)
        browser.run("new Promise((done) => setTimeout(done, 300))")
        assert browser.run(facts) == stopped
        browser.run("document.querySelectorAll('[type=radio]')[1].click()")
        assert browser.run("document.getElementById('pretrain-decoder').offsetParent") is None
        assert (
            browser.run(numbers)[0] == 0
            and browser.run("document.querySelectorAll('polyline.before').length") == 1
        )
        assert browser.complaints == []


def test_the_pages_data_are_small_and_every_query_has_one_passage():
    data = pretrain_tab.tab_data()
    assert len(json.dumps(data, separators=(",", ":"))) < 150_000
    assert len(data["passages"]) == len(data["queries"]) == len(set(data["asked"])) == 400
    top = max(max(one) for one in (*data["passages"], *data["queries"]))
    assert top == data["sizes"]["vocabulary"] - 1
    texts = map(pretrain_tab.content_words, load("primer").passages["text"])
    read = Counter(word for words in texts for word in words[: 2 * pretrain_tab.LONGEST])
    frequent = sum(count >= pretrain_tab.FEWEST for count in read.values())
    assert data["sizes"]["vocabulary"] == len(pretrain_tab.SPECIAL) + frequent
    shown = Counter(word for one in data["passages"] for word in one[1:-1])
    assert data["settings"]["guess"] == round(entropy([*shown.values()]), 3)
    assert all(
        3 <= len(one) <= pretrain_tab.LONGEST and one[0] == 1 and one[-1] == 2
        for one in data["passages"]
    )


def test_what_was_measured_comes_from_this_script_and_the_bottleneck_is_ahead_with_every_seed():
    found = json.loads(pretrain_tab.MEASURED.read_text())
    assert found["script"] == pretrain_tab.script_digest(), (
        "measure again: python book/_ext/pretrain_tab.py"
    )
    plain, bottleneck = (np.array(one["mrr"]) for one in found["runs"])
    assert plain.shape == bottleneck.shape == (found["seeds"], len(found["steps"]))
    assert (bottleneck[:, -1] > bottleneck[:, 0]).all() and (bottleneck[:, -1] > plain[:, -1]).all()
    html = pretrain_tab.measured_table(found).data
    assert (
        f"{100 * bottleneck[:, -1].mean():.1f}" in html
        and f"{100 * plain[:, -1].max():.1f}" in html
    )


def test_text_is_only_ever_set_as_text():
    for path in SCRIPT.parent.glob("*.js"):
        assert not re.search(
            r"innerHTML|insertAdjacentHTML|document\.write|eval\(|fetch\(|import\(",
            path.read_text(),
        ), path


def test_it_turns_where_the_vector_begins_to_be_worth_something_and_stays_so(run):
    points = {
        "never": [[0, 0.01], [25, 0.02], [50, 0.01]],
        "once": [[0, 0.01], [25, 0.09], [50, 0.01], [75, 0.02]],
        "only just": [[0, 0.01], [25, 0.02], [50, 0.06]],
        "then": [[0, 0.01], [25, 0.09], [50, 0.01], [75, 0.06], [100, 0.2], [125, 0.4]],
        "nothing": [],
    }
    turns = {
        name: run(f"return pretrain.turn({json.dumps(own)}) ?? null")
        for name, own in points.items()
    }
    assert turns == {"never": None, "once": None, "only just": None, "then": 75, "nothing": None}

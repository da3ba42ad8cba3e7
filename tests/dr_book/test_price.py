"""Cost and gain of pre-training: operations against a count by hand, seconds from records of one
machine.
"""

import numpy as np
import pytest

from dr_book import price
from dr_lib.models import load_masked_lm


def trained(record, label, values, *, rate, device="NVIDIA H100 80GB HBM3", seed=0, method="mlm"):
    log = {"steps": 2000, "tokens": 8000, "tokens_per_second": rate, "device": device}
    recipe = {"objective": {"name": method}}
    return record(label, values, seed=seed, training={"pretrained": log}, recipe=recipe)


@pytest.fixture
def runs(record):
    level = np.full(60, 0.4)
    return {
        "none": [record("none", level)],
        "mlm": [
            trained(record, "mlm", level + 0.01, rate=100.0),
            trained(record, "mlm", level + 0.01, rate=400.0, seed=1),
            trained(record, "mlm", level + 0.01, rate=900.0, device="cpu", seed=2),
            trained(record, "mlm", level + 0.01, rate=200.0, seed=3),
        ],
        "paq": [trained(record, "paq", level, rate=50.0, device="cpu", method="paq")],
    }


def test_a_row_has_its_steps_operations_seconds_and_gain(runs):
    mlm, paq = price.prices(runs, "none", "MRR@10")
    assert (mlm.label, mlm.steps, mlm.seconds) == ("mlm", 2000, 8000 / 400)
    assert mlm.gain.mean == pytest.approx(1.0)
    assert mlm.operations == pytest.approx(price.operations("mlm") * 8000 / 1e12)
    assert [getattr(mlm, budget) for budget in price.UNITS] == [2000, mlm.operations, mlm.seconds]
    # reads more than passages, and no H100 has trained it
    assert paq.operations is None and paq.seconds is None
    with pytest.raises(KeyError):
        price.prices({"mlm": runs["mlm"]}, "none", "MRR@10")


def test_operations_are_about_six_a_weight_and_token_and_a_decoder_costs_more():
    layers = load_masked_lm("embedded").base_model.encoder.layer
    weights = sum(one.numel() for layer in layers for one in layer.parameters())
    ids = price.SEQUENCES * price.LENGTH
    assert price.operations("mlm") > 6 * weights, "and the head, and attention"
    assert price.operations("simlm") > price.operations("autoencoder") > price.operations("mlm")
    assert ids == 1536
    assert all(price.operations(method) > 0 for method in price.PASSAGES_ALONE)


def test_gain_is_drawn_against_each_budget(runs):
    rows = price.prices(runs, "none", "MRR@10")
    for budget, unit in price.UNITS.items():
        html = price.drawn(rows, budget, {"mlm": "masked LM"}, "MRR@10", "SQuAD").data
        assert f"Points of MRR@10 over no pre-training by {unit}. masked LM, " in html
        assert " 1.0." in html and ">SQuAD Hollow dots: one seed, and how far" in html

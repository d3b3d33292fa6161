"""Every method has something that trains it, and a sweep changes one setting at a time."""

from typing import get_args

import numpy as np
import pytest

from rubricflow.tasks.core.contracts.errors import InputError
from rubricflow.tasks.core.contracts.settings.bottleneck import ABLATIONS, Method, Training
from rubricflow.tasks.core.contracts.settings.engine import Adapter
from rubricflow.tasks.methods.bottleneck.arm import methods, sweep
from rubricflow.tasks.methods.bottleneck.backbone import load
from rubricflow.tasks.methods.bottleneck.states import Adapted, Cached, States

BASELINES: tuple[Method, ...] = ("plm", "vanilla_cbm", "c3m", "ct_cbm", "cb_llm")
PLAN = Training(epochs=2, patience=1, batch_size=32, head_learning_rate=0.02)


@pytest.fixture(scope="module")
def problem(planted):
    return planted(n=90)


def embed(texts):
    return np.array([[len(text), 9.0] for text in texts]) / np.array([[np.hypot(len(text), 9.0)] for text in texts])


def test_the_table_holds_every_method_and_nothing_else():
    assert set(methods([], embed)) == set(get_args(Method)) == {"rec_cbm", *ABLATIONS, *BASELINES}


def test_an_ablation_goes_without_the_parts_that_its_name_lists():
    table = methods([], embed)
    for name in ABLATIONS:
        off = {part for part, on in table[name].keywords.items() if not on}
        assert name == "_".join(["no", *(part for part in ("race", "opcc", "lcec") if part in off)])


@pytest.mark.parametrize("method", ["rec_cbm", "no_race_opcc_lcec", *BASELINES])
def test_what_a_method_trained_grades(problem, method):
    encoder = Cached(States(problem.values, problem.starts))
    texts = [f"some words {level}. And more." for level in problem.data.grades]
    trained = methods(texts, embed)[method](problem.data, encoder, PLAN, 3)
    rows = np.array([5, 80, 2])
    found = trained.predict(encoder, rows)
    np.testing.assert_allclose(found.grades.sum(axis=1), 1)
    np.testing.assert_allclose(found.grades[1], trained.predict(encoder, rows[1:2]).grades[0], atol=1e-6)
    if trained.head is not None:
        shares = found.shares(problem.data.concepts.tops)
        np.testing.assert_allclose(trained.head.probabilities(shares), found.grades, atol=1e-9)


@pytest.mark.parametrize("method", ["rec_cbm", *BASELINES])
def test_every_method_trains_an_adapter_and_takes_it_back(method, written, backbone_folder):
    problem, backbone = written(), load(str(backbone_folder("gpt2")), 48)
    tokens = backbone.tokenize(problem.answered)
    encoder = Adapted(backbone, tokens, Adapter(rank=2, alpha=4))
    texts = [one.response for one in problem.answered]
    plan = Training(epochs=1, batch_size=16, adapter_learning_rate=0.05)
    trained = methods(texts, embed)[method](problem.data, encoder, plan, 0)
    weights = sum(one.numel() for one in encoder.parameters())
    assert weights < trained.parameters < weights + 5_000 < backbone.model.num_parameters()
    # Centred over two concepts, CB-LLM's cosine is 1 or -1, and teaches nothing.
    assert method == "cb_llm" or any(
        one.abs().sum() > 0 for name, one in trained.encoder_state.items() if "lora_B" in name
    )
    rows = problem.data.rows("test")
    found = trained.predict(encoder, rows).grades
    again = trained.predict(Adapted(backbone, tokens, Adapter(rank=2, alpha=4)), rows).grades
    np.testing.assert_allclose(found, again, atol=1e-6)


def test_a_sweep_changes_one_setting_at_a_time():
    plan = Training(patience=7)
    found = sweep(plan, {"temperature": (0.5, 2.0), "concepts": (1.0, 4.0)})
    assert [name for name, _ in found] == ["temperature=0.5", "temperature=2", "concepts=1", "concepts=4"]
    assert found[0][1] == plan.model_copy(update={"temperature": 0.5})
    assert found[3][1] == plan.model_copy(update={"concepts": 4})
    assert sweep(plan, {}) == []


@pytest.mark.parametrize(
    ("values", "said"),
    [({"speed": (1.0,)}, "'speed' is no training setting"), ({"temperature": (-1.0,)}, "temperature=-1")],
)
def test_a_sweep_over_what_settings_do_not_have_is_refused(values, said):
    with pytest.raises(InputError, match=said):
        sweep(Training(), values)

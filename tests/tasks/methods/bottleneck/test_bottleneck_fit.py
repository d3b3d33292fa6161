"""Training: the loop's schedule and stopping, the two stages on planted problems, ablations, and every backbone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.metrics import f1_score

from rubricflow.tasks.core.contracts.errors import InputError
from rubricflow.tasks.core.contracts.settings.methods import Training
from rubricflow.tasks.methods.bottleneck.backbone import load
from rubricflow.tasks.methods.bottleneck.data import MISSING, LabelledData
from rubricflow.tasks.methods.bottleneck.fit import (
    Trained,
    concept_levels,
    concept_validation,
    grade_validation,
    narrowed,
    rec_cbm,
)
from rubricflow.tasks.methods.bottleneck.loop import minimise
from rubricflow.tasks.methods.bottleneck.model import ConceptEncoder
from rubricflow.tasks.methods.bottleneck.states import Cached, StateEncoder, States, TunedBackbone, encode

KINDS = ("bert", "gpt2")
PLAN = Training(epochs=15, head_learning_rate=0.02, head_learning_rate_2=0.1)
SHORT = Training(epochs=2, learning_rate=1e-3)


def accuracy(trained: Trained, encoder: StateEncoder, data: LabelledData) -> tuple[float, float]:
    """Share of concept levels and of grades that are right on the test split."""
    rows = data.rows("test")
    found = trained.predict(encoder, rows)
    known = data.levels[rows] != MISSING
    levels = found.chosen()[known] == data.levels[rows][known]
    return float(levels.mean()), float((found.grade == data.grades[rows]).mean())


def same(one: Trained, other: Trained, encoder: StateEncoder, rows: np.ndarray) -> bool:
    """Whether two graders say the same, to the last bit."""
    found, again = one.predict(encoder, rows), other.predict(encoder, rows)
    return np.array_equal(found.levels, again.levels) and np.array_equal(found.grades, again.grades)  # type: ignore[arg-type]


# The loop.


def lone(start: float = 1.0) -> tuple[torch.nn.Parameter, list[dict[str, Any]]]:
    """A parameter and its group at a learning rate of 1."""
    parameter = torch.nn.Parameter(torch.tensor([start]))
    return parameter, [{"params": [parameter], "lr": 1.0, "weight_decay": 0.0}]


def test_the_learning_rate_rises_then_falls_to_nothing() -> None:
    parameter, groups = lone()
    seen: list[float] = []

    def loss(batch: int) -> dict[str, torch.Tensor]:
        seen.append(parameter.item())
        return {"down": parameter.sum()}

    # A constant gradient moves a parameter by the learning rate under Adam.
    plan = Training(epochs=5, warmup=0.2, patience=9)
    course = minimise(groups, lambda: [0, 1, 2, 3], loss, lambda: (float(len(seen)), 0.0), plan)
    assert [entry["down"] for entry in course.history] == pytest.approx(np.reshape(seen, (5, 4)).mean(axis=1))
    steps = -np.diff([*seen, parameter.item()])
    np.testing.assert_allclose(steps, np.concatenate([np.arange(1, 5) / 4, np.arange(16, 0, -1) / 16]), atol=1e-4)


@pytest.mark.parametrize(
    ("measures", "losses", "epochs", "chosen"),
    [
        ([0.1, 0.5, 0.4, 0.3, 0.2, 0.9], [1] * 6, 4, 2),  # two that are no better end it
        ([0.1, 0.5, 0.5, 0.5, 0.4, 0.3], [5, 4, 3, 2, 1, 0], 6, 4),  # equal ones count by their loss
        ([0.5, 0.4, 0.3, 0.2, 0.2, 0.9], [5, 4, 3, 3, 3, 0], 5, 1),  # a lower loss goes on, and is not chosen
        ([0.5] * 6, [1] * 6, 3, 1),  # of equal ones the first
        ([0.1, 0.2, 0.3, 0.4, 0.5, 0.6], [1] * 6, 6, 6),
    ],
)
def test_the_best_epoch_is_kept(measures: list[float], losses: list[float], epochs: int, chosen: int) -> None:
    parameter, groups = lone()
    values, scores = [], iter(zip(measures, losses, strict=True))

    def validate() -> tuple[float, float]:
        values.append(parameter.item())
        return next(scores)

    plan = Training(epochs=6, patience=2)
    course = minimise(groups, lambda: [0], lambda _: {"down": parameter.sum()}, validate, plan, stage=2)
    assert course.epochs == len(course.history) == epochs
    assert parameter.item() == values[chosen - 1]
    assert course.validation == measures[chosen - 1]
    assert [entry["validation"] for entry in course.history] == measures[:epochs]
    assert {entry["stage"] for entry in course.history} == {2}


def test_a_falling_loss_is_no_progress_where_the_measure_alone_is() -> None:
    for progress, epochs in (("measure_or_loss", 6), ("measure", 3)):
        _, groups = lone()
        falling = iter(range(9, 0, -1))
        plan = Training.model_validate({"epochs": 6, "patience": 2, "progress": progress})
        parameter = groups[0]["params"][0]
        course = minimise(
            groups, lambda: [0], lambda _, p=parameter: {"down": p.sum()}, lambda f=falling: (0.5, float(next(f))), plan
        )
        assert course.epochs == epochs


def test_a_loss_that_breaks_down_ends_the_stage() -> None:
    parameter, groups = lone()
    losses = iter([1.0, torch.nan])
    step = lambda _: {"down": parameter.sum() * next(losses)}  # noqa: E731
    course = minimise(groups, lambda: [0], step, lambda: (0.5, 1.0), Training())
    assert (course.epochs, course.validation) == (2, 0.5)
    assert torch.isfinite(parameter).all()
    parameter, groups = lone()
    course = minimise(groups, lambda: [0], lambda _: {"down": parameter.sum() * torch.nan}, lambda: (1, 0), Training())
    assert (parameter.item(), course.validation) == (1.0, None)


# The two stages.


def test_a_planted_problem_is_learned(planted: Callable[..., Any]) -> None:
    one = planted()
    encoder = Cached(States(one.values, one.starts))
    trained = rec_cbm(one.data, encoder, PLAN, 0)
    levels, grades = accuracy(trained, encoder, one.data)
    assert levels > 0.9
    assert grades > 0.6
    assert sum(trained.epochs) == len(trained.history)
    assert trained.encoder_state is None
    assert trained.parameters == 3 * 16 + 3 * 4 * 16 + (6 + 3 + 3 * 3 + 3)
    best = max(entry["validation"] for entry in trained.history if entry["stage"] == 2)
    assert trained.validation == best


def test_estimates_are_distributions_and_the_same_seed_gives_the_same(planted: Callable[..., Any]) -> None:
    one = planted(n=60)
    encoder = Cached(States(one.values, one.starts))
    before = torch.random.get_rng_state()
    trained, again, other = (rec_cbm(one.data, encoder, SHORT, seed) for seed in (0, 0, 1))
    assert torch.equal(before, torch.random.get_rng_state())
    assert same(trained, again, encoder, one.data.rows("test"))
    assert not same(trained, other, encoder, one.data.rows("test"))
    rows = np.array([7, 3, 50])
    found = trained.predict(encoder, rows)
    assert found.levels is not None
    np.testing.assert_allclose(found.levels.sum(axis=2), 1)
    np.testing.assert_allclose(found.grades.sum(axis=1), 1)
    beyond = np.arange(4) > one.data.concepts.tops[:, None]
    assert not found.levels[:, beyond].any()
    assert trained.head is not None
    shares = found.shares(one.data.concepts.tops)
    np.testing.assert_allclose(trained.head.probabilities(shares), found.grades)
    alone = [trained.predict(encoder, rows[[at]]).grades[0] for at in range(3)]
    np.testing.assert_allclose(found.grades, alone, atol=1e-6)


def test_stage_2_leaves_stage_1_alone(planted: Callable[..., Any]) -> None:
    one = planted(n=60)
    encoder = Cached(States(one.values, one.starts))
    long, short = (
        rec_cbm(one.data, encoder, SHORT.model_copy(update={"head_learning_rate_2": rate}), 0) for rate in (0.5, 1e-9)
    )
    assert long.concept_encoder is not None
    assert short.concept_encoder is not None
    for one_, other in zip(long.concept_encoder.parameters(), short.concept_encoder.parameters(), strict=True):
        assert torch.equal(one_, other)
    assert not np.allclose(long.head.weights, short.head.weights)  # type: ignore[union-attr]


def test_ablations_leave_out_what_they_say(planted: Callable[..., Any]) -> None:
    one = planted(n=60)
    encoder = Cached(States(one.values, one.starts))
    no_race, no_opcc, no_lcec = (
        rec_cbm(one.data, encoder, SHORT, 0, **{name: False}) for name in ("race", "opcc", "lcec")
    )
    assert no_race.concept_encoder is not None
    assert no_race.concept_encoder.queries is None
    assert "ranking" in no_race.history[0]
    assert "ranking" not in no_opcc.history[0]
    assert set(no_lcec.history[-1]) == {"stage", "epoch", "task", "validation", "validation_loss"}
    assert no_lcec.head is not None
    np.testing.assert_array_equal(no_lcec.head.correction, np.eye(3))
    assert "denoising" in no_opcc.history[-1]


def test_missing_labels_neither_train_nor_stop_it(planted: Callable[..., Any]) -> None:
    one = planted(missing=0.4)
    encoder = Cached(States(one.values, one.starts))
    data = replace(one.data, grades=np.where(np.arange(240) % 5 == 0, MISSING, one.data.grades))
    levels, grades = accuracy(rec_cbm(data, encoder, PLAN, 0), encoder, data)
    assert levels > 0.85
    assert grades > 0.45
    # What nothing is known of is as good as not there.
    blank = data.rows("train")[:20]
    data.levels[blank], data.grades[blank] = MISSING, MISSING
    scrambled = one.values.copy()
    scrambled[: one.starts[20]] = 7
    other = Cached(States(scrambled, one.starts))
    assert same(rec_cbm(data, encoder, SHORT, 0), rec_cbm(data, other, SHORT, 0), encoder, data.rows("test"))


@pytest.mark.parametrize("split", ["train", "calibration"])
def test_a_split_without_labels_is_an_error(planted: Callable[..., Any], split: str) -> None:
    one = planted(n=60)
    encoder, rows = Cached(States(one.values, one.starts)), one.data.split == split
    no_grades = replace(one.data, grades=np.where(rows, MISSING, one.data.grades))
    no_levels = replace(one.data, levels=np.where(rows[:, None], MISSING, one.data.levels))
    with pytest.raises(InputError, match=f"{split} split has a grade"):
        rec_cbm(no_grades, encoder, SHORT, 0)
    with pytest.raises(InputError, match=f"{split} split has a concept"):
        rec_cbm(no_levels, encoder, SHORT, 0)


def test_sweeps_narrow_concepts_and_width(planted: Callable[..., Any]) -> None:
    one = planted(n=60)
    encoder, rows = Cached(States(one.values, one.starts)), one.data.rows("test")
    plan = SHORT.model_copy(update={"concepts": 2, "width": 5})
    trained = rec_cbm(one.data, encoder, plan, 0)
    assert trained.predict(encoder, rows).levels.shape == (len(rows), 2, 3)  # type: ignore[union-attr]
    assert trained.concept_encoder is not None
    assert trained.concept_encoder.queries is not None
    assert trained.concept_encoder.queries.shape == (2, 5)
    assert narrowed(one.data, None) is one.data
    assert narrowed(one.data, 1).concepts.ids == ("concept-0",)


def test_too_high_a_learning_rate_ends_in_a_poor_grader_not_in_an_error(planted: Callable[..., Any]) -> None:
    one = planted(n=60)
    encoder = Cached(States(one.values, one.starts))
    plan = SHORT.model_copy(update={"head_learning_rate": 1e20, "temperature": 1e-6})
    assert np.isfinite(rec_cbm(one.data, encoder, plan, 0).predict(encoder, one.data.rows("test")).grades).all()


def test_concept_levels_come_in_the_order_of_the_rows(planted: Callable[..., Any]) -> None:
    one = planted(n=60)
    encoder, model = Cached(States(one.values, one.starts)), ConceptEncoder(16, (2, 1, 3))
    rows = np.random.default_rng(0).permutation(60)
    np.testing.assert_allclose(
        concept_levels(model, encoder, rows), concept_levels(model, encoder, np.arange(60))[rows], atol=1e-6
    )


def test_validation_is_the_librarys_macro_f1() -> None:
    rng = np.random.default_rng(0)
    grades, labels = rng.dirichlet(np.ones(4), 50), rng.integers(0, 4, 50)
    measure, loss = grade_validation(grades, labels)
    assert measure == pytest.approx(f1_score(labels, grades.argmax(axis=1), average="macro"))
    assert loss == pytest.approx(-np.log(grades[np.arange(50), labels]).mean())
    levels, right = rng.dirichlet(np.ones(3), (50, 3)), rng.integers(0, 3, (50, 3))
    right[rng.random(right.shape) < 0.3] = MISSING
    right[:, 2] = MISSING
    known = right != MISSING
    theirs = [f1_score(right[known[:, k], k], levels[known[:, k], k].argmax(axis=1), average="macro") for k in range(2)]
    assert concept_validation(levels, right, np.array([2, 2, 2]))[0] == pytest.approx(np.mean(theirs))


# Every backbone.


@pytest.mark.parametrize("kind", KINDS)
def test_every_backbone_frozen_and_tuned(
    kind: str, backbone_folder: Callable[[str], Path], written: Callable[..., Any]
) -> None:
    one, backbone = written(), load(str(backbone_folder(kind)), 48)
    tokens, rows = backbone.tokenize(one.answered), np.arange(48)
    frozen, tuned = Cached(encode(backbone, tokens)), TunedBackbone(backbone, tokens)
    first = rec_cbm(one.data, frozen, SHORT, 0)
    assert np.isfinite(first.predict(frozen, rows).grades).all()
    again, later = (rec_cbm(one.data, tuned, SHORT, 0) for _ in range(2))
    assert again.encoder_state is not None
    weights = backbone.model.state_dict()
    assert any(not torch.equal(one_.cpu(), weights[name].cpu()) for name, one_ in again.encoder_state.items())
    assert same(again, later, tuned, rows)  # from the backbone's own weights each time, dropout and all
    tuned.load_state_dict(None)
    assert same(again, later, tuned, rows)  # a prediction brings its weights along
    assert again.parameters > first.parameters

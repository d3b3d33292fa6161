"""Counts and exclusions that cannot be scored are refused by name."""

from __future__ import annotations

from contextlib import nullcontext
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from rubricflow.tasks.core.contracts.bundle import Scale
from rubricflow.tasks.core.contracts.errors import InputError
from rubricflow.tasks.grading.lock.people import (
    MOST_STEPS,
    Offence,
    between_steps,
    off_step,
    refuse_tolerance,
    widest_step,
)
from rubricflow.tasks.grading.lock.rubric import authored

TRAITS = [{"id": name, "name": name.upper(), "min": 0, "max": 3} for name in ("t", "u")]


def criterion(name: str, **more: Any) -> dict[str, Any]:
    return {"id": name, "trait": "t", "text": f"Names {name}."} | more


def counting(points: list[float], **more: Any) -> dict[str, Any]:
    """Criterion K with a count."""
    rule = {"points": points} | {name: more.pop(name) for name in ("least", "needs") if name in more}
    return criterion("K", weight=points[-1], count=rule) | more


def parts(*names: str, **more: Any) -> list[dict[str, Any]]:
    return [criterion(name, parent="K") | more for name in names]


def read(folder: Path, *criteria: dict[str, Any]) -> None:
    used = {one["trait"] for one in criteria}
    rubric = {"rubric_id": "r", "scale": {"min": 0, "max": 3}, "criteria": list(criteria)}
    path = folder / "rubrics.yaml"
    path.write_text(yaml.safe_dump({"rubrics": [rubric | {"traits": [t for t in TRAITS if t["id"] in used]}]}))
    authored(path)


@pytest.mark.parametrize(
    ("criteria", "rule"),
    [
        ([counting([0, 1])], "criterion 'K' has a count but no sub-points to count"),
        (
            [counting([0, 1], weight=3), *parts("a")],
            "criterion 'K' weighs 3, but its count ends at 1 points",
        ),
        (
            [counting([0, 1]), *parts("a"), *parts("b", weight=2)],
            "criterion 'K' counts its sub-points, each as one: the weight of 'b' is 1, not 2",
        ),
        (
            [counting([0, 2], weight=-2), *parts("a"), *parts("b", weight=-1), criterion("B")],
            "criterion 'K' counts its sub-points, each as one: the weight of 'a' is -1, not 1",
        ),
        (
            [counting([0, 1], least=2), *parts("a", levels=["no", "in part", "yes"]), *parts("b")],
            "criterion 'K' counts from level 2, which its sub-point 'b' does not have",
        ),
        (
            [counting([0, 1, 2, 3]), *parts("a", "b")],
            "criterion 'K' has points for 3 sub-points, of which 2 can be met",
        ),
        (
            [counting([0, 1, 2, 3]), *parts("a", "b"), *parts("c", excludes=["a"])],
            "criterion 'K' has points for 3 sub-points, of which 2 can be met",
        ),
        ([counting([0, 1], needs=["z"]), *parts("a")], "criterion 'K' needs 'z', which is none of its sub-points"),
        ([counting([0, 1], needs=["a", "a"]), *parts("a")], "criterion 'K' needs 'a', which is named twice"),
        (
            [counting([0, 1], needs=["a"]), *parts("a"), *parts("b", excludes=["a"])],
            "criterion 'K' needs 'a', which excludes another of its sub-points",
        ),
        (
            [counting([0, 1]), *parts("a"), criterion("a1", parent="a")],
            "criterion 'a' is counted, but can be met in part",
        ),
        (
            [counting([0, 1]), *parts("I", count={"points": [0, 0.5, 1]}), *parts("x", "y", parent="I")],
            "criterion 'I' is counted, but can be met in part",
        ),
        (
            [criterion("a"), criterion("b", trait="u", excludes=["a"])],
            "criteria 'a' and 'b' exclude each other and both earn: then they stand in one trait and under one parent",
        ),
        (
            [criterion("a"), criterion("K"), *parts("b", excludes=["a"])],
            "criteria 'a' and 'b' exclude each other and both earn",
        ),
        (
            [criterion("K", excludes=["b"]), *parts("a"), criterion("b", parent="a")],
            "criteria 'K' and 'b' exclude each other, but one is a part of the other",
        ),
        (
            [criterion(f"c{n:02d}{side}", excludes=[f"c{n:02d}a"] if side == "b" else [f"c{n:02d}b"]
                       + ([f"c{n + 1:02d}a"] if n < 19 else [])) for n in range(20) for side in "ab"],
            "criteria 'c00a' to 'c19b' exclude each other in too many ways",
        ),
    ],
)  # fmt: skip
def test_what_cannot_be_scored_is_named(criteria: list[dict[str, Any]], rule: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=rf"rubrics\.yaml, line \d+, column \d+: rubric 'r': {rule}"):
        read(tmp_path, *criteria)


def test_what_can_be_scored_is_read(tmp_path: Path) -> None:
    either = [*parts("I", count={"points": [0, 0, 1]}), *parts("x", "y", parent="I")]
    read(tmp_path, counting([0, 1, 1, 2], needs=["I"]), *either, *parts("a", "b"))
    three = {"levels": ["no", "in part", "yes"]}
    read(tmp_path, counting([0, 1, 2], least=2), *either, *parts("a", "b", **three))
    read(tmp_path, counting([0, 2], weight=-2), *parts("a", weight=-1), criterion("B", excludes=["K"]))
    read(tmp_path, criterion("a", excludes=["b", "c"]), criterion("b"), criterion("c", weight=-1, trait="u"),
         criterion("d", trait="u"))  # fmt: skip


# Human scores between the steps of their scale are refused with the step that holds them, whatever the scale.


def given_scores(*scores: float, rubric: str = "r", averaged: bool = False) -> pd.DataFrame:
    ids = [f"x{n}" for n in range(len(scores))]
    row = {"rubric_id": rubric, "rater_id": "a", "averaged": averaged}
    return pd.DataFrame({"response_id": ids, "score": np.array(scores, dtype=float)}).assign(**row)


def unfit(*scored: pd.DataFrame, top: float = 1) -> tuple[Offence, str] | None:
    return off_step(pd.concat(scored), dict.fromkeys(("r", "other"), Scale(min=0, max=top)))


def test_the_count_the_first_rows_and_the_step_are_named() -> None:
    offence, hint = unfit(given_scores(0, 0.25), given_scores(0.5, 1, 0.75, 0.25)) or pytest.fail("passed")
    assert (offence.response_id, offence.rater_id, offence.part) == ("x1", "a", None)
    assert offence.rule == (
        "4 of 6 human scores lie between the steps of rubric 'r', 0 to 1 in steps of 1: rater 'a' gave response 'x1' "
        "0.25, rater 'a' gave response 'x0' 0.5, rater 'a' gave response 'x2' 0.75, …"
    )
    assert hint.startswith("scale {min: 0, max: 1, step: 0.25} holds them all; ")


def test_the_step_holds_the_scores_of_every_rubric_on_the_scale() -> None:
    _, hint = unfit(given_scores(0.5), given_scores(1 / 3, rubric="other")) or pytest.fail("passed")
    assert "step: 0.166666666667}" in hint


def test_what_no_step_holds_looks_continuous() -> None:
    scores = np.random.default_rng(0).uniform(0, 4, 50)
    _, hint = unfit(given_scores(*scores), top=4) or pytest.fail("passed")
    assert "look continuous" in hint


@given(
    low=st.integers(-5, 20),
    width=st.integers(1, 60),
    count=st.integers(1, MOST_STEPS),
    places=st.lists(st.integers(0, MOST_STEPS), min_size=1, max_size=30),
    kind=st.sampled_from([np.float64, np.float32]),
)
def test_the_proposed_step_is_a_scale_that_holds_all_and_no_wider_one_does(
    low: int, width: int, count: int, places: list[int], kind: type
) -> None:
    shares = [Fraction(min(place, count), count) for place in places]
    values = np.array([float(low + width * share) for share in shares], dtype=kind).astype(float)
    scale = Scale(min=low, max=low + width)
    step = widest_step(values, scale)
    assert step is not None
    told = Scale(min=low, max=low + width, step=float(f"{step:.12g}"))  # as the message writes it
    assert not between_steps(values, told).any()
    exact = next(n for n in range(1, count + 1) if all((share * n).denominator == 1 for share in shares))
    assert told.levels - 1 <= exact


@given(st.integers(1, 40), st.integers(1, 12), st.data())
def test_scores_on_the_steps_pass_with_the_dust_of_short_floats(top: int, parts: int, data: st.DataObject) -> None:
    scale = Scale(min=0, max=top, step=1 / parts)
    places = data.draw(st.lists(st.integers(0, top * parts), min_size=1, max_size=20))
    written = (np.array(places, dtype=np.float32) / np.float32(parts)).astype(float)
    assert not between_steps(written, scale).any()


@given(st.floats(0.01, 0.99), st.integers(0, 9))
def test_a_score_a_hundredth_of_a_step_off_is_refused(share: float, place: int) -> None:
    assert unfit(given_scores(0, 10, place + share), top=10) is not None


@pytest.mark.parametrize("levels", range(2, 12))
def test_a_tolerance_passes_only_where_some_level_is_wrong_for_another(levels: int) -> None:
    for tolerance in np.arange(0, 14, 0.5):
        some_wrong = any(abs(a - b) > tolerance for a in range(levels) for b in range(levels))
        with nullcontext() if some_wrong else pytest.raises(InputError, match="no score could be wrong"):
            refuse_tolerance(tolerance, "r", Scale(min=0, max=levels - 1))

"""Rows of `rater_effects`: flags only for what was put in, and no severity where none compares."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
import pandas as pd
import pytest

from rubricflow.tasks.core.contracts.schema import conform
from rubricflow.tasks.core.contracts.tables.evaluation import RaterEffects
from rubricflow.tasks.grading.evaluate.raters import MARK, rater_effects
from tests.builders.ratings import Rating, World, marked

STEPS = {("g", ""): 1.0}
EQUAL = World(dict.fromkeys(("anna", "ben", "carla"), 0.0))


class MarkedResponse(NamedTuple):
    """What one person gave one response."""

    response: str
    item: str
    rubric: str
    rater: str
    marks: Mapping[str, float]
    period: str | None
    cluster: str


def marks_of(rows: list[MarkedResponse]) -> pd.DataFrame:
    """The same in columns."""
    names = ("response_id", "item_id", "rubric_id", "rater_id", "marks", "period", "cluster")
    frame = pd.DataFrame(rows, columns=names)
    traits = frame.pop("marks").apply(pd.Series)
    return frame.join(traits.add_prefix(MARK))


def scene(
    change: Callable[[Rating, int], float] = lambda one, at: one.score, seed: int = 0, n: int = 400
) -> list[MarkedResponse]:
    """Marks by three equal raters, each changed; the response's number is its period: early, then late."""
    ratings, _ = marked(EQUAL, seed, n=n)
    rows = []
    for one in ratings:
        at = int(one.response[1:])
        period = "early" if at < n / 2 else "late"
        marks = {"": float(np.clip(change(one, at), 0, 4))}
        rows.append(MarkedResponse(one.response, f"i{at % 2}", "g", one.rater, marks, period, one.response))
    return rows


def effects(rows, at_random=False):
    found = rater_effects(marks_of(rows), STEPS, at_random, 200, 0)
    assert len(conform(RaterEffects, found)) == len(found)
    assert len({tuple(row[name] for name in RaterEffects.key) for row in found}) == len(found)
    return found


def flags(found):
    return {row["rater_id"]: row["flags"] for row in found if row["slice"] == "all" and row["trait"] == ""}


@pytest.mark.parametrize("seed", range(4))
def test_equal_raters_need_no_retraining(seed):
    assert not any(flags(effects(scene(seed=seed))).values())


@pytest.mark.parametrize(
    ("change", "flag"),
    [
        (lambda one, at: one.score - (one.rater == "ben"), "strict"),
        (lambda one, at: one.score + (one.rater == "ben"), "lenient"),
        (lambda one, at: (at * 7) % 5 if one.rater == "ben" else one.score, "erratic"),
        (lambda one, at: round(2 + (one.score - 2) * 0.3) if one.rater == "ben" else one.score, "central"),
        (lambda one, at: one.score - (one.rater == "ben") * (1.4 if at >= 200 else 0), "drift"),
    ],
    ids=["strict", "lenient", "erratic", "central", "drift"],
)
def test_what_was_put_in_is_flagged(change, flag):
    found = flags(effects(scene(change)))
    assert flag in found["ben"]
    assert flag not in found["anna"] + found["carla"]


def test_drift_stands_beside_its_periods():
    found = effects(scene(lambda one, at: one.score - (one.rater == "ben") * (1.4 if at >= 200 else 0)))
    shifts = {row["value_of"]: row for row in found if (row["rater_id"], row["slice"]) == ("ben", "period")}
    assert shifts["late"]["high"] < 0 < shifts["early"]["low"]
    assert {row["value_of"] for row in found if row["slice"] == "item"} == {"i0", "i1"}


def test_leniency_is_in_steps_of_the_scale():
    rows = scene(lambda one, at: one.score - (one.rater == "ben"))
    plain, halves = (
        rater_effects(marks_of(rows), STEPS, False, 0, 0),
        rater_effects(marks_of(rows), {("g", ""): 0.5}, False, 0, 0),
    )
    assert [row["leniency"] * 2 for row in plain] == pytest.approx([row["leniency"] for row in halves])
    assert flags(plain) == flags(halves)


def test_raters_who_share_nothing_have_no_severity():
    rows = [row for row in scene() if row.rater != "carla"]
    ben = {row.response for row in rows if row.rater == "ben"}
    apart = [row for row in rows if row.rater == "ben" or row.response not in ben]
    by_name = {row["rater_id"]: row for row in effects(apart)}
    assert all(row.get("severity") is None and "shares no response" in row["note"] for row in by_name.values())
    assert all(row["flags"] == [] for row in by_name.values())
    assert by_name["ben"]["ratings"] == len(ben)
    assert all(row["severity"] is not None for row in effects(apart, at_random=True) if row["slice"] == "all")


def test_two_linked_sets_compare_within_themselves_only():
    first = scene(lambda one, at: one.score - 2 * (one.rater == "ben"))
    second = [row._replace(response=f"x{row.response}", rater=row.rater.upper()) for row in first]
    found = [row for row in effects([*first, *second]) if row["slice"] == "all"]
    assert all(row["severity"] is None and row["infit"] is not None for row in found)
    assert found[0]["note"] == "compares with BEN, CARLA only"
    assert not any("strict" in row["flags"] for row in found)


def test_a_halo_is_flagged_beside_the_others():
    rng = np.random.default_rng(0)
    rows = []
    for at in range(300):
        true = rng.normal() + rng.normal(size=3)
        for name in ("anna", "ben", "carla"):
            own = true + rng.normal(size=3) * 0.5 + (rng.normal() * 1.5 if name == "ben" else 0)
            marks = dict(zip("xyz", np.clip(np.round(own + 2), 0, 4).tolist(), strict=True))
            rows.append(MarkedResponse(f"r{at}", "i", "g", name, marks | {"": sum(marks.values())}, None, f"r{at}"))
    found = effects(rows)
    assert "halo" in flags(found)["ben"]
    assert "halo" not in flags(found)["anna"] + flags(found)["carla"]
    assert {row["trait"] for row in found} == {"", "x", "y", "z"}


def test_one_person_has_no_effects():
    assert effects([row for row in scene() if row.rater == "ben"]) == []

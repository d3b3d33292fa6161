"""What the policy reads of an official key that counts its points."""

from __future__ import annotations

import re

import pytest
from builders import bundles, keys
from hypothesis import given
from hypothesis import strategies as st

from rubricflow.tasks.core.contracts.bundle import Bundle, Count, Criterion
from rubricflow.tasks.core.contracts.errors import InputError
from rubricflow.tasks.methods.edit.rollout import point_ids, printed
from rubricflow.tasks.methods.edit.rule_edits import edits

EARNING = re.compile(r"(none|\d+)(?: (or more|or|to) ?(\d+)?)? ?of them (\S+) marks?")
COUNTS = st.lists(st.integers(0, 3), min_size=1, max_size=6).map(
    lambda gains: [0, *(sum(gains[: end + 1]) for end in range(len(gains)))]
)


def counted(points: list[float], top: float, number: int) -> Bundle:
    whole = Criterion(id="K", trait="t", text="Names some.", weight=points[-1], count=Count(points=tuple(points)))
    decided = tuple(bundles.criterion(f"P{n}", parent="K", trait="t", text=f"Says\nthing {n}.") for n in range(number))
    return keys.locked(keys.criterion("a"), top=top).model_copy(update={"criteria": decided, "composites": (whole,)})


def earned(scheme: str, met: int) -> float:
    """What a reader of the last line gives for so many points."""
    for first, how, last, marks in EARNING.findall(scheme.splitlines()[-1]):
        low = 0 if first == "none" else int(first)
        high = {"or more": 10**6, "": low}.get(how) or int(last or low)
        if low <= met <= high:
            return float(marks)
    raise AssertionError(f"{met} of them earn nothing that is said: {scheme}")


@given(COUNTS.filter(lambda points: points[-1] > 0), st.integers(1, 9), st.integers(1, 8))
def test_a_reader_of_the_scheme_gives_what_the_key_gives(points: list[float], top: int, number: int) -> None:
    scheme = printed(counted(points, top, number))
    for met in range(number + 1):
        assert earned(scheme, met) == pytest.approx(points[min(met, len(points) - 1)] / points[-1] * top, rel=1e-4)


def test_every_point_has_its_line_and_a_checklist_knows_it() -> None:
    scheme = printed(counted([0, 1, 1, 3], 3, 4))
    assert scheme.splitlines() == [
        "P0: Says thing 0. (counts)",
        "P1: Says thing 1. (counts)",
        "P2: Says thing 2. (counts)",
        "P3: Says thing 3. (counts)",
        "What they earn: none of them 0 marks; 1 or 2 of them 1 mark; 3 or more of them 3 marks",
    ]
    assert point_ids(scheme) == ("P0", "P1", "P2", "P3")


def test_counts_of_counts_are_refused_and_so_are_edits_of_any() -> None:
    bundle = counted([0, 1, 2], 2, 3)
    (whole,) = bundle.composites
    other = whole.model_copy(update={"id": "D", "parent": "K"})
    graded = bundle.criteria[0].model_copy(update={"levels": ("none", "half", "whole")})
    for changes in (
        {"composites": (whole, other)},
        {"criteria": (graded, *bundle.criteria[1:])},
        {"criteria": (bundle.criteria[0].model_copy(update={"parent": None}), *bundle.criteria[1:])},
    ):
        with pytest.raises(InputError, match="'K' counts sub-points in a way that cannot be printed"):
            printed(bundle.model_copy(update=changes))
    with pytest.raises(InputError, match="counts its sub-points"):
        edits(bundle)

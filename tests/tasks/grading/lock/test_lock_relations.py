"""Counts and exclusions that cannot be scored are refused by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from rubricflow.tasks.core.contracts.errors import InputError
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

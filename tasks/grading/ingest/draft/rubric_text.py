"""A rubric file for people to complete: of the model answers, or a frame to fill in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import yaml

from rubricflow.tasks.core.contracts.bundle import Scale
from rubricflow.tasks.core.text.units import units
from rubricflow.tasks.grading.ingest.draft.drafted import UNWRITTEN, DraftedItem

_HEAD = """\
# What answers are graded by: one rubric for each question. Each criterion is one thing that an answer should say; a
# judge looks for it and has to quote the answer's own words for it. `weight` is how much it counts beside the others,
# `levels` go from "not there" to "all there". Copy a criterion to add one, and give it an id of its own. What costs
# marks is a criterion with kind: misconception, weight: -1 and levels: [absent, present].
# `points` is what a full answer is worth, in steps of `step`: change it here and nowhere else.
"""
_FRAME = f"{UNWRITTEN} in a few sentences what a full answer says, and what it loses marks for."
_WHOLE = f"{UNWRITTEN} one thing that a full answer says"


class _Quoting(yaml.SafeDumper):
    """Puts quotes around a text that begins like a number: YAML 1.1 and 1.2 do not agree on which of them is one."""


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "'" if text[:1] in "0123456789+-.~" else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Quoting.add_representer(str, _text)


def rubric_text(items: Sequence[tuple[DraftedItem, Scale]]) -> str:
    """A rubric file (YAML) with a rubric for each question: the sentences of its model answer as criteria or, where
    there is none, the question itself as the only one, with a mark where a person has to write."""
    rubrics = [_rubric(item, scale) for item, scale in items]
    return _HEAD + yaml.dump({"rubrics": rubrics}, Dumper=_Quoting, sort_keys=False, allow_unicode=True, width=110)


def _rubric(item: DraftedItem, scale: Scale) -> dict[str, Any]:
    step = {} if scale.step == 1 else {"step": scale.step}
    return {
        "rubric_id": item.item_id,
        "title": (item.question or "")[:200],
        "points": _plain(scale.max),
        **step,
        "text": item.reference or _FRAME,
        "criteria": [_criterion(place, text) for place, text in enumerate(_points(item), 1)],
    }


def _plain(value: float) -> float:
    """A whole number without a decimal point."""
    return int(value) if value.is_integer() else value


def _points(item: DraftedItem) -> list[str]:
    """What a full answer says, one thing each."""
    answer = item.reference or ""
    sentences = [answer[unit.start : unit.end] for unit in units(answer) if unit.kind == "sentence"]
    if sentences:
        return sentences
    return [f"Answers the question: {item.question}" if item.question else _WHOLE]


def _criterion(place: int, text: str) -> dict[str, Any]:
    levels = ["absent", "in part", "present"]
    identity = {"id": f"P{place}", "kind": "gold_point", "text": text, "weight": 1}
    return identity | {"evidence": "local_quote", "levels": levels}

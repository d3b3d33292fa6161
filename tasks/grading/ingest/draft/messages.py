"""What `init` says of the files it read and wrote."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from rubricflow.tasks.core.contracts.bundle import Scale
from rubricflow.tasks.core.display import say
from rubricflow.tasks.grading.ingest.draft.drafted import UNWRITTEN, Draft, DraftedItem
from rubricflow.tasks.grading.ingest.draft.questions import QUESTIONS
from rubricflow.tasks.grading.ingest.draft.roles import Roles

_SHOWN = 10
"""Questions that are named."""


def seen(about: str, draft: Draft, roles: Roles, scaled: Sequence[tuple[DraftedItem, Scale]]) -> list[str]:
    """What was seen and guessed, a line each."""
    tops = sorted({scale.max for _, scale in scaled})
    points = f"{tops[0]:g}" if len(tops) == 1 else f"{tops[0]:g} to {tops[-1]:g}"
    lines = [
        f"{about}: {draft.answers:,} answers to {len(scaled)} question{'s' if len(scaled) != 1 else ''}, "
        f"{draft.marked:,} of them with a mark, at most {points} points each"
    ]
    lines += [f"{say.question(item.item_id, item.question)}: {scale.max:g} points" for item, scale in scaled[:_SHOWN]]
    if len(scaled) > _SHOWN:
        lines.append(f"and {len(scaled) - _SHOWN} more questions, up to {scaled[-1][0].item_id}")
    if draft.by_row:
        lines.append("nothing tells the answers apart but the row they stand in: keep the order of the rows")
    elif draft.student:
        lines.append(f"students are told apart by {' and '.join(draft.student)}")
    for name, rows in draft.namesakes:
        people = f"{len(rows)} students of one name" if roles.namesakes else "one student who answered again"
        lines.append(f"{name} stands in rows {', '.join(map(str, rows))}: taken for {people}")
    lines += draft.remarks
    if any(item.points is None for item, _ in scaled):
        lines.append("the most points of an answer do not stand in the file: look at `points` in the rubrics")
    return lines


def to_write(items: Sequence[DraftedItem], texts: Mapping[Path, str], to: Path, rubrics: Path) -> list[str]:
    """What a person has to write before grading means anything, a line each."""
    lines = []
    unworded = sum(item.question is None for item in items)
    if unworded:
        lines.append(f"write the wording of {unworded} of {len(items)} questions into {to.with_name(QUESTIONS)}")
    if rubrics in texts and any(item.reference is None for item in items):
        lines.append(f"write what a full answer says into {rubrics}, wherever it says {UNWRITTEN}")
    elif rubrics in texts:
        lines.append(f"look through {rubrics}: each sentence of a model answer has become a criterion")
    return lines

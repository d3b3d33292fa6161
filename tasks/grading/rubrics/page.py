"""What was found of a study's rubrics, on one page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rubricflow.tasks.core.display import say
from rubricflow.tasks.core.display.page import Grid, Page, Section
from rubricflow.tasks.core.display.table import Cell, Table, count
from rubricflow.tasks.grading.rubrics.asked import KINDS
from rubricflow.tasks.grading.rubrics.findings import RubricFinding
from rubricflow.tasks.grading.rubrics.item_analysis import MARK_RULES, MarksOfRubric

COLUMNS = ("rubric", "criteria", "what", "severity", "why", "proposed wording")
WORDS: Mapping[str, str] = {**KINDS, **MARK_RULES}
_LONGEST = 600
"""Characters of an answer that are shown."""


def row(finding: RubricFinding) -> tuple[str, ...]:
    """A finding under COLUMNS, as text to show."""
    ids = ", ".join(finding.criteria) or "all of it"
    what = WORDS[finding.rule]
    return tuple(map(say.visible, (finding.rubric_id, ids, what, finding.severity, finding.text, finding.wording)))


def sentence(found: Sequence[RubricFinding], rubrics: int) -> str:
    """What came of it, without a full stop. rubrics: how many were looked at."""
    if not found:
        return f"Nothing is the matter with {say.plural(rubrics, 'rubric')}, as far as can be seen"
    wrong = sum(finding.severity == "wrong" for finding in found)
    kinds = "all of them doubtful" if not wrong else f"{wrong} of them wrong"
    return f"{say.plural(len(found), 'finding')} about {say.plural(rubrics, 'rubric')}, {kinds}"


def page(
    study: str,
    found: Sequence[RubricFinding],
    rubrics: int,
    marks: Mapping[str, MarksOfRubric],
    missing: str,
    beside: Sequence[str],
) -> Page:
    """The page. found: merged; rubrics: how many were looked at; marks: rubric → what marks say of it; missing: why
    nothing does, or not all; beside: how the rubrics compare with others, a line each."""
    header = COLUMNS if any(finding.wording for finding in found) else COLUMNS[:-1]
    rows = [row(finding)[: len(header)] for finding in found]
    told = {name: one for name, one in marks.items() if one.items}
    return Page(
        kind="Rubric check",
        study=say.name(study),
        title=sentence(found, rubrics),
        lead="“Wrong” is what takes scores from right answers or pays some twice; “doubtful” is what judges will read "
        "differently. What is proposed is a proposal: no rubric was changed.",
        sections=(
            Section(
                "findings",
                "Findings",
                "What was found",
                parts=[Grid(header, rows, style="tight words")] if rows else [],
                notes=beside,
            ),
            Section(
                "items",
                "Marks: each criterion against people's scores",
                "How each criterion goes with people's scores",
                lead="On the calibration split alone. “With people” is the correlation of a criterion's points "
                "with people's score, “with the rest” that with the sum of the other criteria, and “adds” what the "
                "sum's QWK with people loses without it. Numbers in brackets are 95% intervals.",
                missing=missing,
                tables=[_items(name, one) for name, one in told.items()],
            ),
            *(_answers(number, name, one) for number, (name, one) in enumerate(told.items())),
        ),
    )


def _items(name: str, marks: MarksOfRubric) -> Table:
    header = ("criterion", "answers", "levels, lowest first", "with people", "with the rest", "adds, QWK", "adds, R²")
    rows = []
    for one in marks.items:
        shares = " ".join(f"{share:.0%}" for share in one.shares)
        low, high, _, clusters = one.with_people_interval
        of_people = Cell(one.with_people, low, high, digits=2, ends="interval", clusters=clusters)
        adds = Cell(one.adds.estimate, one.adds.low, one.adds.high, ends="interval", clusters=one.adds.clusters)
        rest = Cell(one.with_rest, digits=2)
        rows.append((say.name(one.criterion), count(one.n), shares, of_people, rest, adds, Cell(one.adds_r2)))
    return Table(f"items-{name}", f"Rubric {say.name(name)}, {say.plural(marks.n, 'answer')}", header, rows)


def _answers(number: int, name: str, marks: MarksOfRubric) -> Section:
    """Where checklist and people differ, and what the answers say there."""
    scored = ("answer", "people", "checklist", "what it says")
    apart = [
        (say.name(one.response_id), one.people, one.checklist, say.cut(say.visible(one.text), _LONGEST))
        for one in marks.apart
    ]
    parts = []
    if apart:
        cells = [(text, say.number(people), say.number(checklist), what) for text, people, checklist, what in apart]
        parts += [Grid(scored, cells, style="", caption="Where checklist and people differ most")]
    if marks.unnamed:
        said = [(say.visible(group.representative), str(len(group.answers))) for group in marks.unnamed]
        caption = "What answers say that people score higher, and no quote covers"
        parts += [Grid(("one of these sentences", "answers"), said, style="", caption=caption)]
    title = "Checklist and people agree within half a step" if not apart else "Where checklist and people differ"
    return Section(f"answers-{number}", f"Rubric {say.name(name)}", title, parts=parts)

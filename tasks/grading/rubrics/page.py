"""What was found of a study's rubrics, on one page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rubricflow.tasks.core.display import say
from rubricflow.tasks.core.display.section import Grid, Page, Section
from rubricflow.tasks.grading.rubrics.findings import RULES, Finding

COLUMNS = ("rubric", "criteria", "what", "severity", "why", "proposed wording")
WORDS: Mapping[str, str] = {**RULES}


def row(finding: Finding) -> tuple[str, ...]:
    """A finding under COLUMNS, as text to show."""
    ids = ", ".join(finding.criteria) or "all of it"
    what = WORDS[finding.rule]
    return tuple(map(say.visible, (finding.rubric_id, ids, what, finding.severity, finding.text, finding.wording)))


def sentence(found: Sequence[Finding], rubrics: int) -> str:
    """What came of it, without a full stop. rubrics: how many were looked at."""
    if not found:
        return f"Nothing is the matter with {say.plural(rubrics, 'rubric')}, as far as can be seen"
    wrong = sum(finding.severity == "wrong" for finding in found)
    kinds = "all of them doubtful" if not wrong else f"{wrong} of them wrong"
    return f"{say.plural(len(found), 'finding')} about {say.plural(rubrics, 'rubric')}, {kinds}"


def page(study: str, found: Sequence[Finding], rubrics: int) -> Page:
    """The page. found: merged."""
    rows = [row(finding) for finding in found]
    return Page(
        kind="Rubric check",
        study=say.name(study),
        title=sentence(found, rubrics),
        lead="“Wrong” is what takes scores from right answers or pays some twice; “doubtful” is what judges will read "
        "differently. What is proposed is a proposal: no rubric was changed.",
        sections=(
            Section("findings", "Findings", "What was found", parts=[Grid(COLUMNS, rows, style="")] if rows else []),
        ),
    )

"""What a foreign judge said for its score: the words that it puts in quotation marks, looked for in the response."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

from rubricflow.tasks.core.contracts.settings.judge import Foreign
from rubricflow.tasks.core.llm.foreign import foreign_rows
from rubricflow.tasks.grading.judge.evidence import grounded, subject_of
from rubricflow.tasks.grading.judge.rows import Decision, Graded

_PAIRS = (('"', '"'), ("“", "”"), ("„", "“"), ("«", "»"), ("»", "«"), ("「", "」"), ("`", "`"))
_MARKED = re.compile(
    "|".join(
        rf"{re.escape(opening)}([^{re.escape(opening + closing)}\n]{{2,600}}){closing}" for opening, closing in _PAIRS
    )
    + r"|(?<![\w'])['‘](?=\w)([^'‘’\n]*(?:['’]\w[^'‘’\n]*)*\s[^'‘’\n]*(?:['’]\w[^'‘’\n]*)*)['’](?!\w)"
)
"""Words in quotation marks; in single ones, which are apostrophes too, two words at least."""


def quotes_in(explanation: str) -> list[str]:
    """The words in quotation marks, in order, each once."""
    found = (next(group for group in match.groups() if group is not None) for match in _MARKED.finditer(explanation))
    return [*dict.fromkeys(words.strip() for words in found if words.strip())]


def explanations(foreign: Foreign, base: Path) -> dict[tuple[str, int], str]:
    """Response and number of the repetition → what the judge said."""
    said, numbers = dict[tuple[str, int], str](), Counter[str]()
    for row in foreign_rows(foreign, base):
        if row["explanation"] is not None:
            said[row["response_id"], numbers[row["response_id"]]] = row["explanation"]
        numbers[row["response_id"]] += 1
    return said


def cite_explanations(graded: Iterable[Graded], explained: Mapping[tuple[str, int], str]) -> None:
    """Give every scored response of a bundle with one criterion the decision that its score stands for, credited from
    the middle of the scale on, with the quotes of the explanation as evidence; a quote that does not stand is counted
    and changes no score. The signals count quotes as `verify` does."""
    for sample in graded:
        for place, grading in enumerate(sample.gradings):
            case, score = grading.case, grading.scored.score
            if len(case.bundle.criteria) != 1:
                continue
            criterion, scale, signals = case.bundle.criteria[0], case.bundle.scale, list[str]()
            if score is None:
                decision = Decision(criterion.id, None, reason=grading.reason)
            else:
                level = int(score >= (scale.min + scale.max) / 2 - 1e-9)
                quotes = (
                    quotes_in(explained.get((case.response_id, sample.rater.sample), "")) if case.text.strip() else []
                )
                offered = [(None, quote) for quote in quotes]
                evidence, holds = grounded(offered, criterion, subject_of(case), signals) if offered else ((), False)
                failed = level > 0 and bool(offered) and not holds
                decision = Decision(
                    criterion.id,
                    level,
                    level,
                    evidence=evidence,
                    verified=holds if offered and level else None,
                    action="counted" if failed else "none",
                )
            grading.signals |= {name: float(count) for name, count in Counter(signals).items()}
            sample.judged[place] = sample.judged[place]._replace(decisions=[decision])

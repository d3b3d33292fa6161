"""The deterministic verifier: one artifact of the checklist contract against the bundle and the response.

Every level above 0 must be supported as the criterion's evidence type demands (Rulers, Table 5):

- `local_quote`: a quote found in the unit that it cites;
- `span_level`: a quote found in the paragraph that it cites, or in the paragraph of the sentence that it cites;
- `global_diagnostic`: a diagnostic statement and a quote found in the unit that it cites;
- `weakly_groundable`: the decision stands; where no quote is found the signal `weak` counts it;
- `none`: nothing is demanded.

A quote that cites no unit is looked for in the whole response, one that cites an unknown unit is misattributed at best.
Where a criterion lets evidence come from the context too, a quote found there holds, whatever unit it cites. A quote
that repeats the question or the rubric (`tasks.judge.echo`) is an echo and does not hold, wherever it stands. Where the
protocol lets meaning count, a quote whose words stand nowhere may hold by the span, in the unit that it cites, that an
encoder finds (`tasks.judge.semantic`); that one must not be an echo either. What fails does as the bundle's protocol
says. The verifier is pure and idempotent: verifying its own canonical artifact changes nothing, and finds nothing but
undecided criteria and, under `count`, the ungrounded levels that it was told to keep.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

from tasks.contracts.bundle import Bundle, Criterion
from tasks.judge.echo import Wording, wording
from tasks.judge.question import Question
from tasks.judge.schema import fields
from tasks.judge.semantic import Matcher
from tasks.llm.encoder import minilm
from tasks.llm.request import Same
from tasks.text.fold import Folded, fold, folded
from tasks.text.quotes import Span, counts, find_folded, is_whole, unquoted
from tasks.text.units import Unit

INVALID = frozenset({"fabricated", "misattributed", "too_short", "echo"})
HOLDS = frozenset({"verified", "context", "semantic"})
_REMAINS = frozenset({"fabricated", "misattributed"})
"""Where a quote may still hold by what it means."""
_KEPT, _KEPT_NAME = 2_000, 40
_FAILED = {"demote": "demoted", "drop": "dropped", "count": "counted"}


@dataclass(frozen=True)
class Subject:
    """What is judged: the response's text with its units, and the item's context where evidence may come from it."""

    text: str
    units: Mapping[str, Unit]
    context: str | None = None
    wording: Wording | None = None
    """What is no evidence when it is repeated; None where nothing is known of it."""
    apart: Wording | None = None
    """The same without the context, for criteria that take evidence from it."""
    match: Matcher | None = None
    """Who finds what a quote means where its words stand nowhere; None where only words count."""
    _regions: dict[tuple[int, int], Folded] = field(default_factory=dict, init=False, repr=False, compare=False)

    @classmethod
    def of(cls, text: str, units: Sequence[Unit], context: str | None = None) -> Subject:
        """The subject with its units by id."""
        return cls(text, {unit.unit_id: unit for unit in units}, context)

    @cached_property
    def is_short(self) -> bool:
        """Whether even the whole response is too short to count as a quote."""
        return not counts(self.text)

    def region(self, start: int, end: int) -> Folded:
        """The text from `start` to `end`, folded once however many quotes are looked for in it."""
        known = self._regions.get((start, end))
        if known is None:
            known = self._regions[start, end] = Folded(self.text[start:end])
        return known

    def paragraph(self, unit: Unit) -> Unit:
        """The paragraph that holds a unit; the unit itself where there is none."""
        at = bisect_right(self._paragraphs, unit.start, key=lambda paragraph: paragraph.start)
        return self._paragraphs[at - 1] if at and unit.start < self._paragraphs[at - 1].end else unit

    @cached_property
    def _paragraphs(self) -> list[Unit]:
        return sorted((u for u in self.units.values() if u.kind == "paragraph"), key=lambda u: u.start)


def subject_of(question: Question) -> Subject:
    """What a question asks about, with all that the bundle's protocol lets count as evidence.

    BackendError where that takes the sentence encoder and it is not installed.
    """
    bundle, text, units = Same(question.bundle), question.text, {unit.unit_id: unit for unit in question.units}
    apart = wording(bundle, question.question, None)
    whole = wording(bundle, question.question, question.context) if question.context else apart
    semantic = question.bundle.protocol.evidence_match == "semantic"
    match = Matcher(text, question.units, minilm()) if semantic else None
    return Subject(text, units, question.context, whole, apart, match)


class Decision(NamedTuple):
    """A verified decision. `level` is None with a `reason`; `evidence` are rows as the contract `Evidence` has them."""

    criterion_id: str
    level: int | None
    stated: int | None = None
    reason: str | None = None
    evidence: tuple[dict[str, Any], ...] = ()
    diagnostic: str = ""
    verified: bool | None = None
    action: str = "none"


@dataclass(frozen=True)
class Verdict:
    """All decisions in the order asked, the counts of what was found and corrected, and what remains to be mended."""

    decisions: tuple[Decision, ...]
    signals: Counter[str] = field(default_factory=Counter)
    violations: tuple[str, ...] = ()
    text: str = field(default="", repr=False)
    """The response."""

    def artifact(self, criteria: Sequence[Criterion]) -> dict[str, Any]:
        """The canonical artifact on the criteria asked for: decided levels with the quotes that hold. Where a quote
        holds by what it means, the words of the response stand in its place."""
        given = {}
        for criterion, d in zip(criteria, self.decisions, strict=True):
            if d.level is not None:
                quotes = [{"unit": e["unit_id"], "quote": self._words(e)} for e in d.evidence if e["status"] in HOLDS]
                whole = {"evidence": quotes, "diagnostic": d.diagnostic, "level": d.level}
                given[criterion.id] = {name: whole[name] for name in fields(criterion)}
        return {"decisions": given}

    def _words(self, row: dict[str, Any]) -> str:
        quote: str = self.text[row["start"] : row["end"]] if row["status"] == "semantic" else row["quote"]
        return quote


def verify(artifact: Mapping[str, Any], bundle: Bundle, criteria: Sequence[Criterion], subject: Subject) -> Verdict:
    """The verdict on an artifact that was asked for these criteria of the bundle. Raises nothing, whatever is in it.

    Violations are `kind:criterion`: `missing_decision`, `unknown_criterion`, `malformed_decision`, `level_off_scale`,
    `evidence_failed`. A decision that is missing or has no usable level is None with its reason, never 0.
    Signals count `quotes` by what was found (see `Evidence.status`), `invalid_evidence`, `malformed_evidence` (entries
    without a quote), `canonicalised` values, and what became of unsupported levels: `weak`, or `unsupported` and the
    action taken.
    """
    given = artifact.get("decisions")
    if not isinstance(given, dict):
        undecided = tuple(Decision(c.id, None, reason="invalid_reply") for c in criteria)
        return Verdict(undecided, Counter(), ("malformed_decision:*",), subject.text)
    if subject.match:
        by_words = _verdict(given, bundle, criteria, replace(subject, match=None))
        rows = [row for decision in by_words.decisions for row in decision.evidence if row["status"] in _REMAINS]
        if not rows:
            return by_words
        subject.match.prepare(unquoted(row["quote"]) for row in rows)
    return _verdict(given, bundle, criteria, subject)


def _verdict(given: dict[Any, Any], bundle: Bundle, criteria: Sequence[Criterion], subject: Subject) -> Verdict:
    found: list[str] = []
    asked = {criterion.id for criterion in criteria}
    unknown = sorted(str(name)[:_KEPT_NAME] for name in given.keys() - asked)
    violations = [f"unknown_criterion:{name}" for name in unknown]
    decisions = []
    for criterion in criteria:
        decision, problem = _decide(given.get(criterion.id), criterion, bundle.protocol.failed_quote, subject, found)
        decisions.append(decision)
        if problem:
            violations.append(f"{problem}:{criterion.id}")
    return Verdict(tuple(decisions), Counter(found), tuple(violations), subject.text)


def _decide(
    given: Any, criterion: Criterion, on_failure: str, subject: Subject, signals: list[str]
) -> tuple[Decision, str | None]:
    if given is None:
        return Decision(criterion.id, None, reason="criterion_missing"), "missing_decision"
    level = _level(given.get("level"), signals) if isinstance(given, dict) else None
    if level is None or not 0 <= level <= criterion.top:
        problem = "malformed_decision" if level is None else "level_off_scale"
        return Decision(criterion.id, None, reason="invalid_reply"), problem
    evidence, holds = _evidence(given.get("evidence"), criterion, subject, signals)
    said = given.get("diagnostic")
    diagnostic = said.strip()[:_KEPT].strip() if isinstance(said, str) else ""
    verified = _is_supported(criterion, level, holds, diagnostic)
    kept, action = level, "none"
    if verified is False and criterion.evidence == "weakly_groundable":
        signals.append("weak")
    elif verified is False:
        kept, action = level if on_failure == "count" else 0, _FAILED[on_failure]
        signals += ("unsupported", action)
    decision = Decision(criterion.id, kept, level, None, evidence, diagnostic, verified, action)
    return decision, None if action == "none" else "evidence_failed"


def _is_supported(criterion: Criterion, level: int, holds: bool, diagnostic: str) -> bool | None:
    """Whether a level has the support that the criterion's evidence type names; None where it needs none.

    holds: whether one of its quotes does.
    """
    if level == 0 or criterion.evidence == "none":
        return None
    if criterion.evidence == "global_diagnostic" and not diagnostic:
        return False
    return holds


def _level(value: Any, signals: list[str]) -> int | None:
    """An integer level; a whole number written as 2.0 or "2" is one and counts as canonicalised."""
    if isinstance(value, int):
        return None if isinstance(value, bool) else value
    try:
        number = float(value) if isinstance(value, float | str) else None
    except ValueError:
        return None
    if number is None or not number.is_integer():
        return None
    signals.append("canonicalised")
    return int(number)


def _evidence(
    given: Any, criterion: Criterion, subject: Subject, signals: list[str]
) -> tuple[tuple[dict[str, Any], ...], bool]:
    """The quotes as rows of the contract `Evidence`, each with what was found, and whether one of them holds."""
    if given and not isinstance(given, list):
        signals.append("canonicalised")
        given = [given]
    if not given:
        return (), False
    rows: list[dict[str, Any]] = []
    held: set[str] = set()
    failed: set[tuple[str | None, str]] = set()
    for entry in given:
        unit, quote = (entry.get("unit"), entry.get("quote")) if isinstance(entry, dict) else (None, entry)
        if not isinstance(quote, str) or not quote or quote.isspace():
            signals.append("malformed_evidence")
            continue
        # What is kept is what is verified, so that verifying it again finds the same.
        quote, unit_id = quote[:_KEPT], None if unit is None else str(unit)[:_KEPT_NAME]
        said = folded(quote)
        # A quote that failed where it was first cited may still hold where it is cited next.
        repeated = said in held or (unit_id, said) in failed
        status, span = ("duplicate", None) if repeated else _ground(quote, said, unit_id, criterion, subject)
        if status == "semantic" and span:
            found = folded(subject.text[span.start : span.end])
            status, span = ("duplicate", None) if found in held else (status, span)
            held |= {found, said}
        elif status in HOLDS:
            held.add(said)
        else:
            failed.add((unit_id, said))
        start, end = span or (None, None)
        rows.append({"unit_id": unit_id, "quote": quote, "start": start, "end": end, "status": status})
        signals += ("quotes", status)
        if status in INVALID:
            signals.append("invalid_evidence")
    return tuple(rows), bool(held)


def ground(quote: str, unit_id: str | None, criterion: Criterion, subject: Subject) -> tuple[str, Span | None]:
    """What is found of a quote that cites a unit, see `Evidence.status` (never 'duplicate'), and where."""
    return _ground(quote, folded(quote), unit_id, criterion, subject)


def _ground(
    quote: str, said: str, unit_id: str | None, criterion: Criterion, subject: Subject
) -> tuple[str, Span | None]:
    """`ground` of a quote that is folded in `said`."""
    if not counts(quote) and not (subject.is_short and is_whole(quote, subject.text)):
        return "too_short", None
    unmarked = unquoted(quote)
    needle = said if unmarked == quote else folded(unmarked)
    takes_context = criterion.evidence_from == "response_and_context"
    wording = subject.apart if takes_context else subject.wording
    low, high = _region(unit_id, criterion, subject)
    if span := find_folded(needle, subject.region(low, high), low):
        return "echo" if wording and wording.is_in(needle, subject.text, span) else "verified", span
    if takes_context and subject.context and find_folded(needle, fold(subject.context)):
        return "echo" if wording and wording.is_in(needle) else "context", None
    if subject.match and not (wording and wording.is_in(needle)):
        span = subject.match.find(unmarked, low, high)
        if span and not (wording and wording.is_in(folded(subject.text[span.start : span.end]), subject.text, span)):
            return "semantic", span
    if unit_id is not None and (span := find_folded(needle, subject.region(0, len(subject.text)))):
        return "misattributed", span
    return "fabricated", None


def _region(unit_id: str | None, criterion: Criterion, subject: Subject) -> tuple[int, int]:
    """Where a quote must be: its unit; for a span-level criterion the whole paragraph; nowhere for an unknown unit."""
    if unit_id is None:
        return 0, len(subject.text)
    unit = subject.units.get(unit_id)
    if unit is None:
        return 0, 0
    if criterion.evidence == "span_level":
        unit = subject.paragraph(unit)
    return unit.start, unit.end

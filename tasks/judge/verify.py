"""The deterministic verifier: one artifact of the checklist contract against the bundle and the response.

Every level above 0 must be supported as the criterion's evidence type demands (Rulers, Table 5):

- `local_quote`: a quote found in the sentence that it cites;
- `span_level`: a quote found in the paragraph that it cites, or in the paragraph of the sentence that it cites;
- `global_diagnostic`: a diagnostic statement and a quote found in the unit that it cites;
- `weakly_groundable`: the decision stands; where no quote is found the signal `weak` counts it;
- `none`: nothing is demanded.

A quote that cites no unit is looked for in the whole response. What fails does as the bundle's protocol says. The verifier
is pure and idempotent: verifying its own canonical artifact changes nothing and finds nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tasks.contracts.bundle import Bundle, Criterion
from tasks.text.fold import fold
from tasks.text.quotes import Span, counts, find, is_whole
from tasks.text.units import Unit

INVALID = ("fabricated", "misattributed", "too_short")
_KEPT = 2_000


@dataclass(frozen=True)
class Subject:
    """What is judged: the response's text with its units, and the item's context where evidence may come from it."""

    text: str
    units: Mapping[str, Unit]
    context: str | None = None

    @classmethod
    def of(cls, text: str, units: Sequence[Unit], context: str | None = None) -> Subject:
        """The subject with its units by id."""
        return cls(text, {unit.unit_id: unit for unit in units}, context)


@dataclass(frozen=True)
class Decision:
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
    """All decisions in bundle order, the counts of what was found and corrected, and what remains to be mended."""

    decisions: tuple[Decision, ...]
    signals: Counter[str] = field(default_factory=Counter)
    violations: tuple[str, ...] = ()

    def artifact(self) -> dict[str, Any]:
        """The canonical artifact: decided levels with the quotes that hold."""
        return {
            "decisions": {
                d.criterion_id: {
                    "evidence": [{"unit": e["unit_id"], "quote": e["quote"]} for e in d.evidence if e["status"] in _HOLDS],
                    "diagnostic": d.diagnostic,
                    "level": d.level,
                }
                for d in self.decisions
                if d.level is not None
            }
        }


_HOLDS = ("verified", "context")


def verify(artifact: Mapping[str, Any], bundle: Bundle, criteria: Sequence[Criterion], subject: Subject) -> Verdict:
    """The verdict on an artifact that was asked for these criteria of the bundle.

    Violations are `kind:criterion`: `missing_decision`, `unknown_criterion`, `malformed_decision`, `level_off_scale`,
    `evidence_failed`. A decision that is missing or has no usable level is None with its reason, never 0.
    """
    given = artifact.get("decisions")
    if not isinstance(given, Mapping):
        return Verdict(
            tuple(Decision(c.id, None, reason="invalid_reply") for c in criteria), Counter(), ("malformed_decision:*",)
        )
    signals: Counter[str] = Counter()
    violations = [f"unknown_criterion:{str(name)[:40]}" for name in given if name not in {c.id for c in criteria}]
    decisions = []
    for criterion in criteria:
        decision, problem = _decide(given.get(criterion.id), criterion, bundle.protocol.failed_quote, subject, signals)
        decisions.append(decision)
        if problem:
            violations.append(f"{problem}:{criterion.id}")
    return Verdict(tuple(decisions), signals, tuple(violations))


def _decide(
    given: Any, criterion: Criterion, on_failure: str, subject: Subject, signals: Counter[str]
) -> tuple[Decision, str | None]:
    if given is None:
        return Decision(criterion.id, None, reason="criterion_missing"), "missing_decision"
    if not isinstance(given, Mapping):
        return Decision(criterion.id, None, reason="invalid_reply"), "malformed_decision"
    level = _level(given.get("level"), signals)
    if level is None or not 0 <= level <= criterion.top:
        problem = "malformed_decision" if level is None else "level_off_scale"
        return Decision(criterion.id, None, reason="invalid_reply"), problem
    evidence = _evidence(given.get("evidence"), criterion, subject)
    diagnostic = str(given.get("diagnostic") or "").strip()[:_KEPT]
    for row in evidence:
        signals["quotes"] += 1
        signals[row["status"]] += 1
        signals["invalid_evidence"] += row["status"] in INVALID
    supported = any(row["status"] in _HOLDS for row in evidence)
    if criterion.evidence == "global_diagnostic":
        supported = supported and bool(diagnostic)
    if criterion.evidence == "none" or level == 0:
        return Decision(criterion.id, level, level, None, evidence, diagnostic), None
    if supported:
        return Decision(criterion.id, level, level, None, evidence, diagnostic, verified=True), None
    if criterion.evidence == "weakly_groundable":
        signals["weak"] += 1
        return Decision(criterion.id, level, level, None, evidence, diagnostic, verified=False), None
    signals["unsupported"] += 1
    kept, action = {"demote": (0, "demoted"), "drop": (0, "dropped"), "count": (level, "counted")}[on_failure]
    signals[action] += 1
    return Decision(criterion.id, kept, level, None, evidence, diagnostic, verified=False, action=action), "evidence_failed"


def _level(value: Any, signals: Counter[str]) -> int | None:
    """An integer level; a whole number written as 2.0 or "2" is one and counts as canonicalised."""
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, int):
        return value
    try:
        number = float(value) if isinstance(value, float | str) else None
    except ValueError:
        return None
    if number is None or not number.is_integer():
        return None
    signals["canonicalised"] += 1
    return int(number)


def _evidence(given: Any, criterion: Criterion, subject: Subject) -> tuple[dict[str, Any], ...]:
    rows: list[dict[str, Any]] = []
    seen: set[str] = set()
    for entry in given if isinstance(given, list) else [given] if isinstance(given, Mapping | str) else []:
        quote = entry if isinstance(entry, str) else entry.get("quote") if isinstance(entry, Mapping) else None
        if not isinstance(quote, str) or not quote.strip():
            continue
        cited = entry.get("unit") if isinstance(entry, Mapping) else None
        unit_id = cited if isinstance(cited, str) else None
        folded = fold(quote).text
        status, span = ("duplicate", None) if folded in seen else _locate(quote, unit_id, criterion, subject)
        seen.add(folded)
        start, end = span if span else (None, None)
        rows.append({"unit_id": unit_id, "quote": quote[:_KEPT], "start": start, "end": end, "status": status})
    return tuple(rows)


def _locate(quote: str, unit_id: str | None, criterion: Criterion, subject: Subject) -> tuple[str, Span | None]:
    text = subject.text
    if not counts(quote) and not is_whole(quote, text):
        return "too_short", None
    low, high = _region(unit_id, criterion, subject)
    span = find(quote, text, low, high)
    if span:
        return "verified", span
    span = find(quote, text)
    if span:
        return "misattributed", span
    if criterion.evidence_from == "response_and_context" and subject.context and find(quote, subject.context):
        return "context", None
    return "fabricated", None


def _region(unit_id: str | None, criterion: Criterion, subject: Subject) -> tuple[int, int]:
    """Where a quote must be: its unit; for a span-level criterion the whole paragraph; nowhere if the unit is unknown."""
    if unit_id is None:
        return 0, len(subject.text)
    unit = subject.units.get(unit_id)
    if unit is None:
        return 0, 0
    if criterion.evidence == "span_level" and unit.kind == "sentence":
        around = next((u for u in subject.units.values() if u.kind == "paragraph" and u.start <= unit.start < u.end), unit)
        return around.start, around.end
    return unit.start, unit.end

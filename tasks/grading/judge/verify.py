"""The deterministic verifier: one artifact of the checklist contract against the bundle and the response.

Every level above 0 must be supported as the criterion's evidence type demands (Rulers, Table 5):

- `local_quote`: a quote found in the unit that it cites;
- `span_level`: a quote found in the paragraph that it cites, or in the paragraph of the sentence that it cites;
- `global_diagnostic`: a diagnostic statement and a quote found in the unit that it cites;
- `weakly_groundable`: the decision stands; where no quote is found the signal `weak` counts it;
- `none`: nothing is demanded.

What is found of a quote is for `tasks.grading.judge.evidence` to say; what fails does as the bundle's protocol says.
The verifier is pure and idempotent: verifying what it left of an artifact changes nothing, and finds nothing but
undecided criteria, quotes that are written otherwise than the response and, under `count`, the ungrounded levels that
it was told to keep.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from rubricflow.tasks.core.contracts.bundle import Bundle, Criterion
from rubricflow.tasks.core.llm.schema import JsonObject
from rubricflow.tasks.core.text.tokens import number_of
from rubricflow.tasks.grading.judge.doubted_quotes import settled
from rubricflow.tasks.grading.judge.evidence import Subject, grounded, why_unsupported
from rubricflow.tasks.grading.judge.rows import FAILED, Decision
from rubricflow.tasks.grading.judge.schema import UnitNames

_LONGEST, _LONGEST_NAME = 2_000, 40
"""Characters that are kept of a quote and of a name."""


@dataclass(frozen=True)
class Verdict:
    """All decisions in the order asked, the counts of what was found and corrected, and what remains to be mended."""

    decisions: tuple[Decision, ...]
    signals: Counter[str] = field(default_factory=Counter)
    violations: tuple[str, ...] = ()


def verify(artifact: JsonObject, bundle: Bundle, criteria: Sequence[Criterion], subject: Subject) -> Verdict:
    """The verdict on an artifact that was asked for these criteria of the bundle. Raises nothing, whatever is in it.

    Violations are `kind:criterion`: `missing_decision`, `unknown_criterion`, `malformed_decision`, `level_off_scale`,
    what `why_unsupported` says, `shared_quote` (see `tasks.grading.judge.doubted_quotes`). A decision
    that is missing or has no usable level is None with its reason, never 0.
    Signals count `quotes` by what was found (see `Evidence.status`), `invalid_evidence`, `malformed_evidence` (entries
    without a quote), quotes that hold though they are written otherwise (`quote_case`, `quote_marks`, `quote_spacing`),
    `canonicalised` values, and what became of unsupported levels: `weak`, or `unsupported` and the
    action taken.
    """
    entries = artifact.get("decisions")
    if not isinstance(entries, dict):
        undecided = tuple(Decision(c.id, None, reason="invalid_reply") for c in criteria)
        return Verdict(undecided, violations=("malformed_decision:*",))
    signals: list[str] = []
    unknown = entries.keys() - {criterion.id for criterion in criteria}
    names = sorted(str(name)[:_LONGEST_NAME] for name in unknown)
    violations = [f"unknown_criterion:{name}" for name in names]
    decisions = []
    for criterion in criteria:
        entry = entries.get(criterion.id)
        decision, problem = _decide(entry, criterion, bundle.protocol.failed_quote, subject, signals)
        decisions.append(decision)
        if problem:
            violations.append(f"{problem}:{criterion.id}")
    doubted = settled(decisions, bundle.protocol, criteria)
    return Verdict(
        decisions=doubted.decisions,
        signals=Counter(signals) + doubted.signals,
        violations=(*violations, *doubted.violations),
    )


def _decide(
    entry: Any, criterion: Criterion, on_failure: str, subject: Subject, signals: list[str]
) -> tuple[Decision, str | None]:
    if entry is None:
        return Decision(criterion.id, None, reason="criterion_missing"), "missing_decision"
    stated = _level(entry.get("level"), signals) if isinstance(entry, dict) else None
    if stated is None or not 0 <= stated <= criterion.top:
        problem = "malformed_decision" if stated is None else "level_off_scale"
        return Decision(criterion.id, None, reason="invalid_reply"), problem
    evidence, holds = grounded(_offered(entry, criterion, subject.names, signals), criterion, subject, signals)
    diagnostic = entry.get("diagnostic")
    is_diagnosed = isinstance(diagnostic, str) and bool(diagnostic.strip())
    verified: bool | None = None  # no support is needed
    if stated and criterion.evidence != "none":
        verified = holds and (is_diagnosed or criterion.evidence != "global_diagnostic")
    level, action = stated, "none"
    if verified is False and criterion.evidence == "weakly_groundable":
        signals.append("weak")
    elif verified is False:
        level = stated if on_failure == "count" else 0
        action = FAILED[on_failure]
        signals += ("unsupported", action)
    decision = Decision(criterion.id, level, stated, evidence=evidence, verified=verified, action=action)
    return decision, None if action == "none" else why_unsupported(evidence)


def _level(value: Any, signals: list[str]) -> int | None:
    """An integer level; a whole number written as 2.0 or "2" is one and counts as canonicalised."""
    if isinstance(value, int):
        return None if isinstance(value, bool) else value
    number = number_of(value) if isinstance(value, str) else value
    if not isinstance(number, int | float) or not float(number).is_integer():
        return None
    signals.append("canonicalised")
    return int(number)


def _offered(
    decision: JsonObject, criterion: Criterion, names: UnitNames, signals: list[str]
) -> list[tuple[str | None, str]]:
    """The quotes of a decision with the units that they cite; a unit that is not cited by its name counts as
    canonicalised."""
    entries = decision.get("evidence")
    if entries and not isinstance(entries, list):
        signals.append("canonicalised")
        entries = [entries]
    offered = []
    for entry in entries or ():
        cited, quote = (entry.get("unit"), entry.get("quote")) if isinstance(entry, dict) else (None, entry)
        if not isinstance(quote, str) or not quote or quote.isspace():
            signals.append("malformed_evidence")
            continue
        unit_id = None if cited is None else str(cited)[:_LONGEST_NAME]
        if isinstance(cited, str | int):
            name = str(unit_id)
            unit_id = names.unit_id(name, "p" if criterion.evidence == "span_level" else "s")
            if name != names.name(unit_id):
                signals.append("canonicalised")
        # What is kept is what is verified, so that verifying it again finds the same.
        offered.append((unit_id, quote[:_LONGEST]))
    return offered

"""Which cases people are asked about, and in which order: rows of table `queue`.

Why a case is asked about is said without any level or score, as those who vote blind read it, too.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rubricflow.tasks.core.contracts.settings.annotation import Doubt
from rubricflow.tasks.core.contracts.tables.people import Doubtful
from rubricflow.tasks.core.display import say
from rubricflow.tasks.core.display.reasons import Rules, why_waits
from rubricflow.tasks.core.stats.arrays import Bools, Floats, Ints
from rubricflow.tasks.people.review.cells import CellLabels, Cells

UNGROUNDED = 0.25
"""What an annotator's level without evidence that holds adds to the doubt: mostly the words are missing, not the
level."""
_ALONE = 0.5
"""Doubt where one annotator alone gives a level: nobody bears it out."""


def label_queue(
    cells: Cells, annotators: tuple[CellLabels, CellLabels], human_share: Mapping[str, float], plan: Doubt
) -> list[dict[str, Any]]:
    """The responses whose labels are in doubt, those with the most labels expected to be wrong first.

    The doubt of a cell, in [0, 1], is the chance that a label there would be wrong, were one annotator simply believed;
    what speaks for that is taken as independent (1 less the product of what is left by each):

    - the annotators differ: (1 + |a − b| / M) / 2. One of them at least is wrong, at opposite ends nothing is known;
    - one gives no level: 1/2; neither does: 1;
    - a level's evidence does not hold: `UNGROUNDED` for each;
    - the product over the annotators of 1 less the probability of their level, 1/2 for one who gives none; nothing
      where neither does.

    A response's priority is the sum over its cells: the expected number of wrong labels. Where the annotators' mean
    share of the levels lies further than `plan.human_gap` from the human score's share of its scale (human_share, by
    response; those without are left out), the distance is added as doubt about one more label. A response is queued for
    a reason: annotators that differ, a missing level, failed evidence, a probability below `plan.probability`, that
    distance; of all others, a share `plan.audit` is drawn by a hash of the seed and the response's id, which does not
    depend on who else is there. `plan.most` keeps the first so many, of which the audit gets its share.
    """
    evidence = _Evidence(
        cells, annotators, plan, np.array([human_share.get(response, np.nan) for response in cells.responses], float)
    )
    doubtful: Bools = np.any(list(evidence.reasons.values()), axis=0)
    queued = np.flatnonzero(doubtful)
    drawn = _audit([cells.responses[i] for i in np.flatnonzero(~doubtful)], plan)
    queued = queued[np.argsort(-evidence.priority[queued], kind="stable")]
    if plan.most is not None:
        places = min(len(drawn), max(int(plan.audit * plan.most), plan.most - len(queued)))
        queued, drawn = queued[: plan.most - places], drawn[:places]
    rows = [evidence.row(i) for i in queued.tolist()] + [_audited(response) for response in sorted(drawn)]
    return [{**row, "rank": rank} for rank, row in enumerate(rows, 1)]


def score_queue(predictions: pa.Table, rules: Rules) -> list[dict[str, Any]]:
    """The responses with a score that was routed to review (rows of table `predictions`), those without a risk first,
    then the riskiest; a response of several raters comes once, for its riskiest score. rules: of release, by scope."""
    routed = predictions.filter(pc.equal(predictions["route"], "review"))
    columns = ["response_id", "item_id", "risk", "route_reason", "unscored_reason"]
    cases = sorted(routed.select(columns).to_pylist(), key=_riskiest_first)
    riskiest: dict[str, dict[str, Any]] = {}
    for case in cases:
        riskiest.setdefault(case["response_id"], case)
    return [_score_row(rank, case, rules) for rank, case in enumerate(riskiest.values(), 1)]


def _score_row(rank: int, case: Mapping[str, Any], rules: Rules) -> dict[str, Any]:
    return {
        "subject_kind": "score",
        "response_id": case["response_id"],
        "rank": rank,
        "priority": 1.0 if case["risk"] is None else case["risk"],
        "criteria": [],
        "reasons": ["routed_to_review"],
        "why": _why_asked(case, rules),
    }


def _riskiest_first(case: Mapping[str, Any]) -> tuple[bool, float, str]:
    return case["risk"] is not None, -(case["risk"] or 0), case["response_id"]


def _why_asked(case: Mapping[str, Any], rules: Rules) -> str:
    """The reason, and the estimated risk where the reason does not say it."""
    words = why_waits(case, rules)
    sentence = f"{words[:1].upper()}{words[1:]}"
    if case["risk"] is None or case["route_reason"] == "risk":
        return sentence
    return f"{sentence}; estimated risk {say.share(case['risk'])}"


@dataclass(frozen=True)
class _Evidence:
    """What speaks against the labels: of m cells, and of their n responses."""

    cells: Cells
    annotators: tuple[CellLabels, CellLabels]
    plan: Doubt
    human: Floats
    """(n,) the human score's share; NaN for none."""

    @cached_property
    def gap(self) -> Ints:
        """(m,) levels between the annotators; 0 where one is missing."""
        a, b = (annotator.level for annotator in self.annotators)
        gap: Ints = np.where((a >= 0) & (b >= 0), np.abs(a - b), 0)
        return gap

    @cached_property
    def missing(self) -> Ints:
        """(m,) annotators that give no level."""
        missing: Ints = np.sum([annotator.level < 0 for annotator in self.annotators], axis=0)
        return missing

    @cached_property
    def probability(self) -> Floats:
        """(2, m) of each annotator's level; NaN where it gives none."""
        return np.stack([annotator.probability for annotator in self.annotators])

    @cached_property
    def parts(self) -> dict[Doubtful, Floats]:
        """(m,) what each kind of evidence says that the label is wrong with."""
        has_probability = ~np.isnan(self.probability)
        unsure = np.where(has_probability, 1 - self.probability, 0.5).prod(axis=0)
        failed = np.sum([annotator.ungrounded for annotator in self.annotators], axis=0)
        apart = (1 + self.gap / np.maximum(self.cells.top, 1)) / 2
        return {
            "annotators_disagree": np.where(self.gap > 0, apart, 0),
            "ungrounded": 1 - (1 - UNGROUNDED) ** failed,
            "unscored": np.choose(self.missing, [0, _ALONE, 1]),
            "low_probability": np.where(has_probability.any(axis=0), unsure, 0),
        }

    @cached_property
    def raised(self) -> dict[Doubtful, Bools]:
        """(m,) whether the evidence is a reason to ask."""
        low: Bools = np.any(self.probability < self.plan.probability, axis=0)  # False for NaN
        return {kind: low if kind == "low_probability" else part > 0 for kind, part in self.parts.items()}

    @cached_property
    def doubt(self) -> Floats:
        """(m,) in [0, 1]."""
        doubt: Floats = 1 - np.prod([1 - part for part in self.parts.values()], axis=0)
        return doubt

    @cached_property
    def share(self) -> Floats:
        """(n,) the annotators' mean share of the levels; NaN where there are none."""
        top = np.maximum(self.cells.top, 1)
        levels = [annotator.level for annotator in self.annotators]
        count = sum(self._sum(level >= 0) for level in levels)
        total = sum(self._sum(np.maximum(level, 0) / top) for level in levels)
        with np.errstate(invalid="ignore"):
            return np.asarray(total / count, float)

    @cached_property
    def against_human(self) -> Floats:
        """(n,) the distance to the human score; 0 where it is none worth asking about."""
        distance = np.abs(self.share - self.human)
        beyond_gap: Floats = np.where(distance > self.plan.human_gap, distance, 0)  # NaN is not above it
        return beyond_gap

    @cached_property
    def priority(self) -> Floats:
        """(n,) the expected number of wrong labels; rounded, so that the order of summation breaks no tie."""
        priority: Floats = np.round(self._sum(self.doubt) + self.against_human, 9)
        return priority

    @cached_property
    def reasons(self) -> dict[Doubtful, Bools]:
        """(n,) whether there is this reason to ask."""
        raised = {kind: self._sum(raised) > 0 for kind, raised in self.raised.items()}
        return {**raised, "against_human": self.against_human > 0}

    @cached_property
    def weights(self) -> dict[Doubtful, Floats]:
        """(n,) how much each reason weighs: its part, summed over the cells that it is raised in."""
        parts = {kind: self._sum(np.where(self.raised[kind], part, 0)) for kind, part in self.parts.items()}
        return {**parts, "against_human": self.against_human}

    @cached_property
    def _first(self) -> Ints:
        """(n + 1,) the first cell of each response."""
        return np.searchsorted(self.cells.response, np.arange(len(self.cells.responses) + 1))

    def _sum(self, of_cells: Floats | Bools) -> Floats:
        return np.bincount(self.cells.response, of_cells, len(self.cells.responses)).astype(float)

    def row(self, i: int) -> dict[str, Any]:
        """Response i in the queue, all but its rank."""
        cells = np.arange(self._first[i], self._first[i + 1])
        doubtful: Ints = cells[np.any([raised[cells] for raised in self.raised.values()], axis=0)]
        doubtful = doubtful[np.argsort(-self.doubt[doubtful], kind="stable")]
        reasons = [kind for kind, is_reason in self.reasons.items() if is_reason[i]]
        reasons.sort(key=lambda kind: -self.weights[kind][i])
        return {
            "subject_kind": "label",
            "response_id": self.cells.responses[i],
            "priority": float(self.priority[i]),
            "criteria": [self._name(cell) for cell in doubtful.tolist()],
            "reasons": reasons,
            "why": self._why(reasons[0], i, cells),
        }

    def _why(self, kind: Doubtful, i: int, cells: Ints) -> str:
        if kind == "against_human":
            return f"Annotators' levels lie {self.against_human[i]:.0%} of the scale from the human score"
        raised = cells[self.raised[kind][cells]]
        worst = int(raised[np.argmax(self.parts[kind][raised])])
        if kind == "annotators_disagree":
            words = f"Annotators {_levels(int(self.gap[worst]))} apart on"
        elif kind == "ungrounded":
            words = "Evidence does not hold for"
        elif kind == "unscored":
            words = f"No level from {'one annotator' if self.missing[worst] == 1 else 'both annotators'} for"
        else:
            words = f"Probability {np.nanmin(self.probability[:, worst]):.2f} of the level of"
        return f"{words} {self._name(worst)}" + (f" and {len(raised) - 1} more" if len(raised) > 1 else "")

    def _name(self, cell: int) -> str:
        return self.cells.criteria[int(self.cells.criterion[cell])]


def _audited(response_id: str) -> dict[str, Any]:
    return {
        "subject_kind": "label",
        "response_id": response_id,
        "priority": 0.0,
        "criteria": [],
        "reasons": ["audit"],
        "why": "Drawn as a check; nothing speaks against its labels",
    }


def _levels(count: int) -> str:
    return "1 level" if count == 1 else f"{count} levels"


def _audit(responses: Sequence[str], plan: Doubt) -> list[str]:
    """The responses that the audit draws, by chance but always the same ones, in an order that is by chance too."""
    number = {name: hashlib.sha256(f"{plan.seed}:{name}".encode()).digest()[:8] for name in responses}
    drawn = [name for name in responses if int.from_bytes(number[name], "big") < plan.audit * 2**64]
    return sorted(drawn, key=number.__getitem__)

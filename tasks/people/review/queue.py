"""Which cases people are asked about, and in which order: rows of table `queue`.

Why a case is asked about is said without any level or score, as those who vote blind read it, too.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import numpy as np

from rubricflow.tasks.core.contracts.settings.judge import Doubt
from rubricflow.tasks.core.contracts.tables.people import Doubtful
from rubricflow.tasks.core.display.table import Record
from rubricflow.tasks.core.stats.arrays import Bools, Floats, Ints
from rubricflow.tasks.people.review.cells import CellLabels, Cells

UNGROUNDED = 0.25
"""What an annotator's level without evidence that holds adds to the doubt: mostly the words are missing, not the
level."""
_ALONE = 0.5
"""Doubt where one annotator alone gives a level: nobody bears it out."""
AUDITED = "Drawn as a check; nothing speaks against its labels"


def label_queue(
    cells: Cells, annotators: tuple[CellLabels, CellLabels], human_share: Mapping[str, float], plan: Doubt
) -> list[Record]:
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
    evidence = _Evidence(cells, annotators, human_share, plan)
    doubtful = np.any(list(evidence.reasons.values()), axis=0)
    queued = np.flatnonzero(doubtful)
    queued = queued[np.argsort(-evidence.priority[queued], kind="stable")]
    # Those that the audit draws: by chance but always the same ones, in an order that is by chance too
    others = [cells.responses[i] for i in np.flatnonzero(~doubtful)]
    number = {name: hashlib.sha256(f"{plan.seed}:{name}".encode()).digest()[:8] for name in others}
    chosen = [name for name in others if int.from_bytes(number[name], "big") < plan.audit * 2**64]
    checked = sorted(chosen, key=number.__getitem__)
    if plan.most is not None:
        places = min(len(checked), max(int(plan.audit * plan.most), plan.most - len(queued)))
        queued, checked = queued[: plan.most - places], checked[:places]
    rows = [evidence.row(i) for i in queued.tolist()]
    audited = {"priority": 0.0, "criteria": [], "reasons": ["audit"], "why": AUDITED}
    rows += [{"response_id": response, **audited} for response in sorted(checked)]
    return [{**row, "subject_kind": "label", "rank": rank} for rank, row in enumerate(rows, 1)]


class _Evidence:
    """What speaks against the labels: of m cells, and of their n responses."""

    def __init__(
        self,
        cells: Cells,
        annotators: tuple[CellLabels, CellLabels],
        human_share: Mapping[str, float],
        plan: Doubt,
    ) -> None:
        self.cells = cells
        level = np.stack([annotator.level for annotator in annotators])
        has_level, top = level >= 0, np.maximum(cells.top, 1)
        # (m,) levels between the annotators, 0 where one is missing; annotators that give no level
        self.gap: Ints = np.where(has_level.all(axis=0), np.abs(level[0] - level[1]), 0)
        self.missing: Ints = (~has_level).sum(axis=0)
        # (2, m) of each annotator's level; NaN where it gives none
        self.probability = np.stack([annotator.probability for annotator in annotators])
        has_probability = ~np.isnan(self.probability)
        unsure = np.where(has_probability, 1 - self.probability, 0.5).prod(axis=0)
        failed = np.sum([annotator.ungrounded for annotator in annotators], axis=0)
        # (m,) the chance that the label is wrong by each kind of evidence, and whether that is a reason to ask
        self.parts: dict[Doubtful, Floats] = {
            "annotators_disagree": np.where(self.gap > 0, (1 + self.gap / top) / 2, 0),
            "ungrounded": 1 - (1 - UNGROUNDED) ** failed,
            "unscored": np.choose(self.missing, [0, _ALONE, 1]),
            "low_probability": np.where(has_probability.any(axis=0), unsure, 0),
        }
        self.raised: dict[Doubtful, Bools] = {kind: part > 0 for kind, part in self.parts.items()}
        self.raised["low_probability"] = np.any(self.probability < plan.probability, axis=0)  # False for NaN
        self.doubt = 1 - np.prod([1 - part for part in self.parts.values()], axis=0)
        # (n,) the annotators' mean share of the levels lies away from the human score; 0 where it is not worth asking
        with np.errstate(invalid="ignore"):
            share = sum(map(self._sum, np.maximum(level, 0) / top)) / self._sum(has_level.sum(axis=0))
        human = np.array([human_share.get(response, np.nan) for response in cells.responses], float)
        distance = np.abs(share - human)
        self.against_human = np.where(distance > plan.human_gap, distance, 0)  # NaN is not above it
        # (n,) the expected number of wrong labels; rounded, so that the order of summation breaks no tie
        self.priority = np.round(self._sum(self.doubt) + self.against_human, 9)
        # (n,) whether there is each reason to ask, and its weight: its part, summed over the cells that raise it
        self.reasons: dict[Doubtful, Bools] = {kind: self._sum(raised) > 0 for kind, raised in self.raised.items()}
        self.reasons["against_human"] = self.against_human > 0
        self.weights = {kind: self._sum(np.where(self.raised[kind], part, 0)) for kind, part in self.parts.items()}
        self.weights["against_human"] = self.against_human
        self.first_cell = np.searchsorted(cells.response, np.arange(len(cells.responses) + 1))

    def _sum(self, of_cells: Floats | Bools | Ints) -> Floats:
        return np.bincount(self.cells.response, of_cells, len(self.cells.responses)).astype(float)

    def row(self, i: int) -> Record:
        """Response i in the queue, all but its rank."""
        cells = np.arange(self.first_cell[i], self.first_cell[i + 1])
        doubtful = cells[np.any([raised[cells] for raised in self.raised.values()], axis=0)]
        doubtful = doubtful[np.argsort(-self.doubt[doubtful], kind="stable")]
        reasons = [kind for kind, is_reason in self.reasons.items() if is_reason[i]]
        reasons.sort(key=lambda kind: -self.weights[kind][i])
        return {
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
            words = f"Annotators {self.gap[worst]} {'level' if self.gap[worst] == 1 else 'levels'} apart on"
        elif kind == "ungrounded":
            words = "Evidence does not hold for"
        elif kind == "unscored":
            words = f"No level from {'one annotator' if self.missing[worst] == 1 else 'both annotators'} for"
        else:
            words = f"Probability {np.nanmin(self.probability[:, worst]):.2f} of the level of"
        return f"{words} {self._name(worst)}" + (f" and {len(raised) - 1} more" if len(raised) > 1 else "")

    def _name(self, cell: int) -> str:
        return self.cells.criteria[int(self.cells.criterion[cell])]

"""Agreement on concepts as people read it: by raters, before and after people were asked.

What the report of annotation is made from.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import pyarrow as pa

from rubricflow.tasks.core.contracts.tables.people import AGREEMENT_METRICS, PHASES, Phase
from rubricflow.tasks.core.display import say
from rubricflow.tasks.core.display.table import Cell, Cells, Table, count
from rubricflow.tasks.core.stats.bootstrap import cautions
from rubricflow.tasks.core.stats.verdict import Estimate

ALL, FINAL = "all", "final"
MOST = 4
"""Pairs of raters in the title and in charts."""
ALPHA, KAPPA = "krippendorff_alpha", "kappa_quadratic"
HEADER = ("raters", "phase", "concept", *AGREEMENT_METRICS.values(), "labels")
"""Columns of `summary_rows`."""


class AgreementFigures:
    """The rows of `agreements`, by what they measure. names: criterion → what people read, in order."""

    def __init__(self, agreements: pa.Table, names: Mapping[str, str]) -> None:
        self._rows: dict[tuple[str, Phase, str, str], Mapping[str, Any]] = {}
        for row in agreements.to_pylist():
            self._rows[row["raters"], row["phase"], row["criterion_id"], row["metric"]] = row
        self.concepts = {ALL: "all concepts"} | {key: say.name(name) for key, name in names.items()}
        """Criterion → in words, all of them first."""
        pairs = dict.fromkeys((key[0], key[1]) for key in self._rows)
        self.pairs: tuple[tuple[str, Phase], ...] = tuple(sorted(pairs, key=_weight))
        """Raters with the phase: those before people were asked first, then those with the final labels."""

    def row(self, raters: str, phase: Phase, criterion: str, metric: str) -> Mapping[str, Any] | None:
        """The row of one number."""
        return self._rows.get((raters, phase, criterion, metric))

    def cell(self, raters: str, phase: Phase, criterion: str, metric: str) -> Cell:
        """One number with its interval."""
        row = self.row(raters, phase, criterion, metric)
        if not row:
            return Cell(None)
        # Responses that the interval resamples: of all concepts those of the concept with most labels.
        concepts = [name for name in self.concepts if name != ALL] if criterion == ALL else [criterion]
        rows = (self.row(raters, phase, name, metric) for name in concepts)
        responses = max((row["n"] for row in rows if row), default=0)
        return Cell(row["value"], row["low"], row["high"], digits=2, ends="interval", clusters=responses)

    def cautions(self) -> Iterator[str]:
        """What to know of the numbers whose intervals are marked."""
        cells = (self.cell(*key) for key in self._rows)
        yield from cautions(cell.clusters for cell in cells if cell.mark)

    def labels(self, raters: str, phase: Phase, criterion: str) -> Cell:
        """Labels compared."""
        rows = (self.row(raters, phase, criterion, metric) for metric in AGREEMENT_METRICS)
        return count(max((row["n"] for row in rows if row), default=0))

    def estimates(self, raters: str, phase: Phase, metric: str) -> dict[str, Estimate]:
        """Concept in words → the number, where it is known."""
        estimates = {}
        for name, words in self.concepts.items():
            cell = self.cell(raters, phase, name, metric)
            if cell.value is not None:
                estimates[words] = Estimate(cell.value, cell.low, cell.high)
        return estimates

    def notes(self) -> Iterator[str]:
        """Why numbers are missing, each reason once."""
        counts: dict[str, int] = {}
        for row in self._rows.values():
            if row["value"] is None:
                reason = say.visible(row["note"] or "not known why")
                counts[reason] = counts.get(reason, 0) + 1
        for reason, many in counts.items():
            yield f"{say.plural(many, 'number')} undefined: {reason}"


def sentence(agreement: AgreementFigures) -> str:
    """The takeaway of the whole report: Krippendorff's alpha over all concepts, of the annotators and of the final
    labels with each."""
    alphas = []
    for raters, phase in agreement.pairs[:MOST]:
        cell = agreement.cell(raters, phase, ALL, ALPHA)
        if cell.value is not None:
            alphas.append(f"{say.name(raters)} {cell}")
    if not alphas:
        return "No two raters' labels can be compared over all concepts"
    return f"Agreement on concepts, Krippendorff's alpha: {'; '.join(alphas)}"


def _weight(pair: tuple[str, str]) -> tuple[bool, bool]:
    raters, phase = pair
    return phase != "before", FINAL not in raters.split(" and ")


def pair_title(raters: str, phase: Phase) -> str:
    """Who, and when."""
    return f"{say.name(raters)}, {PHASES[phase]}"


def agreement_title(agreements: pa.Table) -> str:
    """What the table of all pairs is called: whether people were asked yet."""
    if "after" in agreements["phase"].to_pylist():
        return "Agreement on concepts, before and after people were asked"
    return "Agreement on concepts, nobody was asked yet"


def table(agreement: AgreementFigures, raters: str, phase: Phase) -> Table:
    """Every concept's agreement of these raters."""
    rows: list[Cells] = []
    for criterion, words in agreement.concepts.items():
        numbers = [agreement.cell(raters, phase, criterion, metric) for metric in AGREEMENT_METRICS]
        if any(cell.value is not None for cell in numbers):
            rows.append((words, *numbers, agreement.labels(raters, phase, criterion)))
    header = ("Concept", *(f"{words} [95%]" for words in AGREEMENT_METRICS.values()), "labels")
    return Table(f"agreement-{raters}", pair_title(raters, phase), header, tuple(rows))


def summary_rows(agreements: pa.Table, names: Mapping[str, str]) -> list[tuple[str, ...]]:
    """Rows of text under `HEADER`, one for each pair of raters and concept; '–' stands for a number that is not
    known."""
    agreement = AgreementFigures(agreements, names)
    rows = []
    for (raters, phase), criterion in product(agreement.pairs, agreement.concepts):
        if agreement.row(raters, phase, criterion, ALPHA):
            concept = "all concepts" if criterion == ALL else names.get(criterion, criterion)
            numbers = [str(agreement.cell(raters, phase, criterion, metric)) for metric in AGREEMENT_METRICS]
            rows.append((raters, phase, concept, *numbers, str(agreement.labels(raters, phase, criterion))))
    return rows


@dataclass(frozen=True)
class AnnotationView:
    """Arrow tables with the columns of tasks/core/contracts/tables/people.py; any of them may be empty."""

    study: str
    run_id: str
    names: Mapping[str, str]
    """Criterion id → what people read, of every concept in the bundle's order."""
    agreements: pa.Table
    labels: pa.Table
    queue: pa.Table
    votes: pa.Table
    constructions: pa.Table
    counts: Mapping[str, int] = field(default_factory=dict)
    """What else was counted, in words → how many: shown as it is."""

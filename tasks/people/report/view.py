"""A study's annotation as the content of its report: pure, tables in, sections and their takeaways out. Agreement on
concepts as people read it: by raters, before and after people were asked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa

from rubricflow.tasks.core.contracts.tables.people import AGREEMENT_METRICS, CONSTRUCTION_RULES, PHASES, Phase
from rubricflow.tasks.core.display import say
from rubricflow.tasks.core.display.charts import bar_chart
from rubricflow.tasks.core.display.page import rendered
from rubricflow.tasks.core.display.section import Drawing, Key, Page, Section
from rubricflow.tasks.core.display.table import Bar, Cell, Cells, Panel, Row, Table, count
from rubricflow.tasks.core.stats.bootstrap import cautions
from rubricflow.tasks.people.report import people

ALL, FINAL = "all", "final"
MOST = 4
"""Pairs of raters in the title and in charts."""
ALPHA = "krippendorff_alpha"
KEYS = {ALPHA: "Krippendorff's alpha", "kappa_quadratic": "Kappa, quadratic", "exact": "Equal levels"}
HEADER = ("raters", "phase", "concept", *AGREEMENT_METRICS.values(), "labels")
"""Columns of `summary_rows`."""


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


def page(view: AnnotationView) -> str:
    """The report: a whole HTML document that needs no other file."""
    return rendered(content(view))


def content(view: AnnotationView) -> Page:
    """What the page shows."""
    agreement = AgreementFigures(view.agreements, view.names)
    keys = []
    for raters, phase in agreement.pairs[:1]:
        for metric, words in KEYS.items():
            cell = agreement.cell(raters, phase, ALL, metric)
            if cell.value is not None:
                below = cell.interval, f"{agreement.labels(raters, phase, ALL)} labels"
                keys.append(Key(f"{words}, {pair_title(raters, phase)}", say.number(cell.value), below))
    return Page(
        kind="Annotation report",
        study=say.name(view.study),
        title=sentence(agreement),
        lead=f"{say.plural(len(view.names), 'concept')}. {people.settled_takeaway(view.labels)}.",
        keys=keys,
        sections=list(_sections(view, agreement)),
    )


def _sections(view: AnnotationView, agreement: AgreementFigures) -> Iterator[Section]:
    if agreement.pairs:
        yield Section(
            "agreement",
            "Agreement: do raters of concepts say the same?",
            _weakest(agreement),
            "Krippendorff's alpha for ordered levels, with the 95% interval over responses: 1 is perfect, 0 what "
            "chance would give. Final labels hold those on which the annotators agree and nobody was asked, so that "
            "each agrees with them more easily than with the other one.",
            drawings=list(_alphas(agreement)),
            tables=[table(agreement, *pair) for pair in agreement.pairs],
            notes=(*agreement.notes(), *agreement.cautions()),
        )
    yield Section(
        "labels",
        "Labels: what settled them?",
        people.settled_takeaway(view.labels),
        tables=(people.settled_table(view.labels), people.corrected_table(view.labels, view.queue)),
    )
    yield Section(
        "queue",
        "Queue: what are people asked about?",
        people.queue_takeaway(view.queue, view.votes),
        tables=(people.reason_table(view.queue), people.case_table(view.queue, view.votes)),
    )
    progress = people.progress_table(view.votes)
    if progress.rows:
        voted = f"{say.plural(len(progress.rows), 'person', 'persons')} voted"
        yield Section("people", "People: who has done what?", voted, tables=(progress,))
    checks = view.constructions.to_pylist()
    if checks:
        outcomes = [row["outcome"] for row in checks]
        broken, decided = outcomes.count("broken"), len(outcomes) - outcomes.count("unknown")
        yield Section(
            "inventory",
            "Inventory: is it built as it should be?",
            f"{say.count(broken)} of {say.plural(decided, 'check')} that could be made are not kept",
            tables=(_checks(view.names, checks),),
        )
    yield Section("made", "How it was made", "What this rests on", facts=(("run", view.run_id),))


def _alphas(agreement: AgreementFigures) -> Iterator[Drawing]:
    """The alpha of each concept between the first pairs of raters."""
    for raters, phase in agreement.pairs[:MOST]:
        bars = []
        for words, cell in agreement.known(raters, phase, ALPHA).items():
            bars.append(Bar(words, cell.value or 0.0, cell.low, cell.high, say.number(cell.value or 0.0)))
        if bars:
            title = pair_title(raters, phase)
            yield Drawing(title, bar_chart(Panel(f"Alpha, {title}", bars)))


def _weakest(agreement: AgreementFigures) -> str:
    """The concept on which the first raters agree least."""
    raters, phase = agreement.pairs[0]
    alphas = agreement.known(raters, phase, ALPHA)
    alphas.pop(agreement.concepts[ALL], None)
    if not alphas:
        return f"{AGREEMENT_METRICS[ALPHA].capitalize()} is undefined for every concept"
    least = min(alphas, key=lambda words: alphas[words].value or 0.0)
    return f"{pair_title(raters, phase)}, agree least on {least}: alpha {say.number(alphas[least].value or 0.0)}"


def _checks(names: Mapping[str, str], checks: list[Row]) -> Table:
    """How the inventory keeps what it is constructed by, what is broken first."""
    rows = []
    for row in sorted(checks, key=lambda row: ("broken", "unknown", "kept").index(row["outcome"])):
        named = say.name(names.get(row["subject"], row["subject"]))
        words = named, CONSTRUCTION_RULES[row["rule"]], PHASES[row["phase"]], row["outcome"]
        numbers = Cell(row["value"], digits=2), Cell(row["limit"], digits=2)
        rows.append((*words, *numbers, say.visible(row["detail"])))
    header = ("Of", "rule", "by", "outcome", "value", "limit", "in words")
    return Table("constructions", "Checks", header, rows)


class AgreementFigures:
    """The rows of `agreements`, by what they measure. names: criterion → what people read, in order."""

    def __init__(self, agreements: pa.Table, names: Mapping[str, str]) -> None:
        self._rows: dict[tuple[str, Phase, str, str], Row] = {}
        for row in agreements.to_pylist():
            self._rows[row["raters"], row["phase"], row["criterion_id"], row["metric"]] = row
        self.concepts = {ALL: "all concepts"} | {key: say.name(name) for key, name in names.items()}
        """Criterion → in words, all of them first."""
        pairs = dict.fromkeys((raters, phase) for raters, phase, *_ in self._rows)
        self.pairs = sorted(pairs, key=lambda pair: (pair[1] != "before", FINAL not in pair[0].split(" and ")))
        """Raters with the phase: those before people were asked first, then those with the final labels."""

    def cell(self, raters: str, phase: Phase, criterion: str, metric: str) -> Cell:
        """One number with its interval."""
        row = self._rows.get((raters, phase, criterion, metric))
        if not row:
            return Cell(None)
        # Responses that the interval resamples: of all concepts those of the concept with most labels.
        concepts = [name for name in self.concepts if name != ALL] if criterion == ALL else [criterion]
        responses = self._most((raters, phase, name, metric) for name in concepts)
        return Cell(row["value"], row["low"], row["high"], digits=2, ends="interval", clusters=responses)

    def labels(self, raters: str, phase: Phase, criterion: str) -> Cell:
        """Labels compared."""
        return count(self._most((raters, phase, criterion, metric) for metric in AGREEMENT_METRICS))

    def _most(self, keys: Iterator[tuple[str, Phase, str, str]]) -> int:
        return max((self._rows[key]["n"] for key in keys if key in self._rows), default=0)

    def known(self, raters: str, phase: Phase, metric: str) -> dict[str, Cell]:
        """Concept in words → the number, where it is known."""
        cells = {words: self.cell(raters, phase, name, metric) for name, words in self.concepts.items()}
        return {words: cell for words, cell in cells.items() if cell.value is not None}

    def cautions(self) -> Iterator[str]:
        """What to know of the numbers whose intervals are marked."""
        cells = (self.cell(*key) for key in self._rows)
        yield from cautions(cell.clusters for cell in cells if cell.mark)

    def notes(self) -> Iterator[str]:
        """Why numbers are missing, each reason once."""
        missing = [row for row in self._rows.values() if row["value"] is None]
        counts = Counter(say.visible(row["note"] or "not known why") for row in missing)
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


def pair_title(raters: str, phase: Phase) -> str:
    """Who, and when."""
    return f"{say.name(raters)}, {PHASES[phase]}"


def table(agreement: AgreementFigures, raters: str, phase: Phase) -> Table:
    """Every concept's agreement of these raters."""
    rows = list[Cells]()
    for criterion, words in agreement.concepts.items():
        numbers = [agreement.cell(raters, phase, criterion, metric) for metric in AGREEMENT_METRICS]
        if any(cell.value is not None for cell in numbers):
            rows.append((words, *numbers, agreement.labels(raters, phase, criterion)))
    header = ("Concept", *(f"{words} [95%]" for words in AGREEMENT_METRICS.values()), "labels")
    return Table(f"agreement-{raters}", pair_title(raters, phase), header, rows)


def summary_rows(agreements: pa.Table, names: Mapping[str, str]) -> list[tuple[str, ...]]:
    """Rows of text under `HEADER`, one for each pair of raters and concept; '–' stands for a number that is not
    known."""
    agreement, rows = AgreementFigures(agreements, names), []
    for raters, phase in agreement.pairs:
        for concept, *cells in table(agreement, raters, phase).rows:
            rows.append((raters, phase, say.plain(str(concept)), *map(str, cells)))
    return rows

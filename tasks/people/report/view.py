"""A study's annotation as the content of its report: pure, tables in, sections and their takeaways out.

Agreement on concepts by raters, before and after people were asked; what people were asked and what they said: the
queue, what settled the labels, and each person's votes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from rubricflow.tasks.core.contracts.tables.people import (
    AGREEMENT_METRICS,
    CONSTRUCTION_RULES,
    DOUBTS,
    PHASES,
    SETTLED,
    Phase,
)
from rubricflow.tasks.core.display import say
from rubricflow.tasks.core.display.charts import bar_chart
from rubricflow.tasks.core.display.page import Drawing, Key, Page, Section, rendered
from rubricflow.tasks.core.display.table import Bar, Cell, Cells, Panel, Row, Table, count, number
from rubricflow.tasks.core.stats.bootstrap import cautions

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
    agreement = AgreementFigures(view.agreements, view.names)
    keys = []
    for raters, phase in agreement.pairs[:1]:
        for metric, words in KEYS.items():
            cell = agreement.cell(raters, phase, ALL, metric)
            if cell.value is not None:
                below = cell.interval, f"{agreement.labels(raters, phase, ALL)} labels"
                keys.append(Key(f"{words}, {pair_title(raters, phase)}", say.number(cell.value), below))
    lead = f"{say.plural(len(view.names), 'concept')}. {settled_takeaway(view.labels)}."
    sections = list(_sections(view, agreement))
    study = say.name(view.study)
    return Page("Annotation report", study, sentence(agreement), sections, lead=lead, keys=keys)


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
        settled_takeaway(view.labels),
        tables=(settled_table(view.labels), corrected_table(view.labels, view.queue)),
    )
    yield Section(
        "queue",
        "Queue: what are people asked about?",
        queue_takeaway(view.queue, view.votes),
        tables=(reason_table(view.queue), case_table(view.queue, view.votes)),
    )
    progress = progress_table(view.votes)
    if progress.rows:
        voted = f"{say.plural(len(progress.rows), 'person', 'persons')} voted"
        yield Section("people", "People: who has done what?", voted, tables=(progress,))
    checks = view.constructions.to_pylist()
    if checks:
        outcomes = [row["outcome"] for row in checks]
        broken = outcomes.count("broken")
        decided = len(outcomes) - outcomes.count("unknown")
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
        row = self._rows.get((raters, phase, criterion, metric))
        if not row:
            return Cell(None)
        # Responses that the interval resamples: of all concepts those of the concept with most labels.
        concepts = [name for name in self.concepts if name != ALL] if criterion == ALL else [criterion]
        responses = self._most((raters, phase, name, metric) for name in concepts)
        return Cell(row["value"], row["low"], row["high"], digits=2, ends="interval", clusters=responses)

    def labels(self, raters: str, phase: Phase, criterion: str) -> Cell:
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


BY_PEOPLE = ("one_vote", "agreed_votes", "majority", "discussion")
DIFFERED, AGREED, AUDITED = "the annotators differed", "they agreed", "they agreed, audited cases alone"
CASES = 12
"""Cases of the queue that are in the page."""


def settled_table(labels: pa.Table) -> Table:
    rows = _shares(labels["settled_by"], SETTLED, len(labels))
    return Table("settled", "What settled the labels", ("By", "labels", "%"), rows)


def settled_takeaway(labels: pa.Table) -> str:
    """How many labels rest on people, and how many are open."""
    if not len(labels):
        return "There are no labels yet"
    counted = Counter(labels["settled_by"].to_pylist())
    by_people = say.share(sum(counted[name] for name in BY_PEOPLE) / len(labels))
    still_open = say.share(counted["open"] / len(labels))
    return f"People settled {by_people} of {say.plural(len(labels), 'label')}; {still_open} are open"


def corrected_table(labels: pa.Table, queue: pa.Table) -> Table:
    """What people made of the annotators' levels; of the cases that nothing spoke against also apart."""
    audits = {row["response_id"] for row in queue.to_pylist() if row["reasons"] == ["audit"]}
    counted: dict[str, Counter[str]] = {words: Counter() for words in (DIFFERED, AGREED, AUDITED)}
    by_people = labels.filter(pc.field("settled_by").isin(BY_PEOPLE) & pc.field("level").is_valid())
    for row in by_people.to_pylist():
        levels = [step["level"] for step in row["history"] if step["kind"] == "annotator"]
        if len(levels) > 1:
            alike = len(set(levels)) == 1
            right = "neither" if row["level"] not in levels else "both" if alike else "one"
            counted[AGREED if alike else DIFFERED][right] += 1
            if alike and row["response_id"] in audits:
                counted[AUDITED][right] += 1
    rows = list[Cells]()
    for words, counts in counted.items():
        if counts:
            neither = Cell(100 * counts["neither"] / counts.total(), digits=1)
            rows.append((words, *(count(counts[right]) for right in ("both", "one", "neither")), neither))
    header = ("Where", "both were right", "one was", "neither", "neither, %")
    notes = ("Most cases that people see are in doubt: only the audited tell how often annotators err together.",)
    return Table("corrected", "What people made of the annotators' levels", header, rows, notes)


def reason_table(queue: pa.Table) -> Table:
    """Why cases are asked about; one may have several reasons."""
    rows = _shares(pc.list_flatten(queue["reasons"]), DOUBTS, len(queue))
    return Table("reasons", "Why they are asked about", ("Reason", "cases", "% of the cases"), rows)


def case_table(queue: pa.Table, votes: pa.Table) -> Table:
    """The first cases, and how many persons have voted on each."""
    voters = cases_of(votes).groupby(["subject_kind", "case"])["rater_id"].nunique()
    first = queue.sort_by([("subject_kind", "ascending"), ("rank", "ascending")]).slice(0, CASES)
    rows = []
    for row in first.to_pylist():
        people = int(voters.get((row["subject_kind"], row["response_id"]), 0))
        rows.append((say.name(row["response_id"]), say.visible(row["why"]), str(row["rank"]), count(people)))
    more = len(queue) - len(rows)
    notes = (f"{say.count(more)} more in the table queue",) if more else ()
    return Table("cases", "First in the queue", ("Response", "why", "rank", "voted"), rows, notes)


def queue_takeaway(queue: pa.Table, votes: pa.Table) -> str:
    """How many cases have been voted on."""
    if not len(queue):
        return "Nothing waits for people"
    cases = {(row["subject_kind"], row["response_id"]) for row in queue.to_pylist()}
    voted = set(cases_of(votes)[["subject_kind", "case"]].itertuples(index=False, name=None))
    return f"People have voted on {say.count(len(cases & voted))} of {say.plural(len(cases), 'case')}"


def progress_table(votes: pa.Table) -> Table:
    rows = list[Cells]()
    for rater, own in cases_of(votes).groupby("rater_id"):
        adjudicated = own["role"] == "adjudication"
        blind = own.loc[~adjudicated, "blind"].dropna().astype(float).mean()
        sums = own["case"].nunique(), (~adjudicated).sum(), (own["value"] == "x").sum(), adjudicated.sum()
        figures = [count(int(figure)) for figure in sums]
        rows.append((say.name(str(rater)), *figures, number(100 * blind, 0), say.name(own["voted_at"].max())))
    header = ("Person", "cases", "votes", "cannot be judged", "adjudications", "blind, %", "last")
    return Table("progress", "Votes by person", header, rows)


def cases_of(votes: pa.Table) -> pd.DataFrame:
    """Votes on labels and scores, with the response that each is about: what stands before a label's last colon."""
    frame: pd.DataFrame = votes.to_pandas()
    frame = frame[frame["subject_kind"].isin(["label", "score"])].astype({"subject": str})
    response = frame["subject"].str.rpartition(":")[0] if len(frame) else frame["subject"]
    return frame.assign(case=frame["subject"].where(frame["subject_kind"] == "score", response))


def _shares(values: pa.ChunkedArray, words: Mapping[str, str], every: int) -> list[Cells]:
    """How often each of the values that have words is there, and per cent of all."""
    counted = Counter(values.to_pylist())
    shown = [name for name in words if counted[name]]
    return [(words[name], count(counted[name]), number(100 * counted[name] / every, 1)) for name in shown]

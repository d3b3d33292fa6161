"""A run's graders as the content of their report: pure, tables in, sections and their takeaways out."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from tasks.contracts.tables.bottleneck import GRADE_METRICS
from tasks.display import say
from tasks.display.bars import bar_chart
from tasks.display.lines import ChartLine, ChartPoint, line_chart
from tasks.display.page import rendered
from tasks.display.section import Drawing, Key, Page, Section
from tasks.display.table import Bar, Cell, Panel
from tasks.report.bottleneck import figures, interventions, structure, sweeps, traces
from tasks.report.bottleneck.figures import CONCEPTS, ECE, HUMAN, QWK, GraderColumn, Graders, named
from tasks.report.bottleneck.inputs import BottleneckView
from tasks.report.bottleneck.provenance import made
from tasks.report.bottleneck.trace_picture import picture, style
from tasks.report.bottleneck.traces import ResponseTrace

TRACED = "Traces: how did a response come by its grade?"
READ = (
    "Expected level, its share of the highest, the share corrected by the other concepts, and what that adds. Bars "
    "that take away are hollow and dashed; all bars with the bias make the logit. Attention says where a concept "
    "looked, not why."
)
PANELS, FIGURES = 4, 2
"""Graders whose interventions are drawn, and figures by which orders of asking are compared."""


def needs_texts(traced: pa.Table, models: pa.Table) -> list[str]:
    """The responses whose text the page shows. traced, models: tables `traces` and `models`."""
    return list(traces.chosen(traced, models))


def trace_pages(view: BottleneckView) -> dict[str, str]:
    """Response → its decision trace as a document of its own, of those that the page shows."""
    return {trace.response_id: rendered(_alone(trace, why), style()) for trace, why in _chosen(view)}


def page(view: BottleneckView) -> str:
    """The report: a whole HTML document that needs no other file."""
    return rendered(content(view), style())


def content(view: BottleneckView) -> Page:
    """What the page shows."""
    graders = Graders(view.trials, view.settings.methods)
    sections = [
        _compared(view, graders),
        _interventions(view, graders),
        _policies(view, graders),
        _structure(view, graders),
        _traces(view),
        _sweeps(view, graders),
        _leakage(graders),
        _others(graders),
        made(view),
    ]
    tested = max(map(graders.responses, graders.everyone), default=0)
    return Page(
        kind="Grader report",
        study=say.name(view.study),
        title=figures.sentence(graders),
        lead=f"{say.plural(len(graders.trained), 'trained grader')}, {say.plural(len(view.settings.seeds), 'seed')} "
        f"each, on {say.plural(tested, 'held-out response')}.",
        keys=tuple(_keys(graders)),
        sections=tuple(section for section in sections if section is not None),
    )


def _keys(graders: Graders) -> Iterator[Key]:
    mine = figures.first(graders)
    shown = (QWK, "Grade, QWK"), (CONCEPTS, "Concepts, macro-F1"), (ECE, "Ordinal calibration error")
    for column, words in shown:
        cell, people = (graders.cell(who, column) for who in (mine, HUMAN))
        if cell.value is not None:
            spread = f"± {say.number(cell.se)} over seeds" if cell.se is not None else "one seed"
            beside = f"people {say.number(people.value)}" if people.value is not None else ""
            yield Key(f"{words}, {named(mine)}", say.number(cell.value), (spread, beside))


def _compared(view: BottleneckView, graders: Graders) -> Section:
    drawings = (
        _bars(graders, column, words) for column, words in ((QWK, "Grade: QWK"), (CONCEPTS, "Concepts: macro-F1"))
    )
    return Section(
        "graders",
        "Graders compared: does the bottleneck cost or gain?",
        _ahead(graders),
        "± is one standard deviation over seeds, of people over pairs of persons, on the same responses: it does not "
        f"say how far figures would move with other responses. {figures.MARK}: ahead of the next by more than the "
        "standard deviation of their paired difference.",
        drawings=tuple(one for one in drawings if one),
        tables=(figures.summary_table(graders), figures.concept_table(graders, view.names)),
        notes=tuple(figures.notes(graders)),
    )


def _ahead(graders: Graders) -> str:
    """Who is clearly ahead, and in which figures."""
    best = {column.words: graders.best(column) for column in figures.COLUMNS}
    ahead = [f"{named(name)} in {words}" for words, name in best.items() if name]
    return f"Clearly ahead: {'; '.join(ahead)}" if ahead else "No grader is clearly ahead of the next in any figure"


def _bars(graders: Graders, column: GraderColumn, title: str) -> Drawing | None:
    cells = {named(name): graders.cell(name, column) for name in (*graders.trained, *graders.judges)}
    bars = tuple(bar for name, cell in cells.items() for bar in _bar(name, cell))
    return Drawing(title, bar_chart(Panel(title, bars, graders.cell(HUMAN, column).value))) if bars else None


def _bar(name: str, cell: Cell) -> Iterator[Bar]:
    """A grader's mean with its standard deviation; none where it is undefined."""
    if cell.value is not None:
        low, high = (None if cell.se is None else cell.value + sign * cell.se for sign in (-1, 1))
        yield Bar(name, cell.value, low, high, str(cell._replace(digits=2)))


def _interventions(view: BottleneckView, graders: Graders) -> Section | None:
    found = interventions.curves(view.interventions)
    metric = interventions.metric_of(found, graders.trained)
    drawn = {method: interventions.kind_lines(found, method, metric) for method in graders.trained if metric}
    drawn = dict([(method, lines) for method, lines in drawn.items() if lines][:PANELS])
    if metric is None or not drawn:
        return None
    ends = [
        end for of in drawn.values() for line in of for point in line.points for end in point[1:] if end is not None
    ]
    up = GRADE_METRICS[metric]
    drawings = (
        Drawing(named(method), line_chart(named(method), lines, "concepts set", up, within=ends))
        for method, lines in drawn.items()
    )
    return Section(
        "interventions",
        "Interventions: what becomes of the grade when concepts are set?",
        interventions.kind_takeaway(found, next(iter(drawn)), metric),
        "Concepts are set in each response, the surest first. Uprights: 95% interval of the change, paired over "
        "responses, its ends averaged over seeds.",
        drawings=tuple(drawings),
        tables=(interventions.kind_table(found, metric),),
    )


def _policies(view: BottleneckView, graders: Graders) -> Section | None:
    found = interventions.curves(view.interventions)
    mine = figures.first(graders)
    drawn = {name: interventions.order_lines(found, mine, name) for name in GRADE_METRICS}
    metrics = [name for name, lines in drawn.items() if len(lines) > 1][:FIGURES]
    if not metrics:
        return None
    return Section(
        "policies",
        "Policies: which concept to ask an educator about first?",
        interventions.order_takeaway(found, mine, metrics[0]),
        f"{named(mine)}; every answer is people's label.",
        drawings=tuple(_asked(GRADE_METRICS[name], drawn[name]) for name in metrics),
        tables=(
            *(interventions.order_table(found, mine, name) for name in metrics),
            figures.asked_table(graders),
        ),
    )


def _asked(figure: str, drawn: list[ChartLine]) -> Drawing:
    title = f"{figure} after so many answers for each response"
    return Drawing(title, line_chart(title, drawn, "concepts asked about", figure))


def _structure(view: BottleneckView, graders: Graders) -> Section | None:
    links = structure.of_one(view.links, figures.first(graders))
    if not len(links):
        return None
    return Section(
        "structure",
        "Structure: how do concepts hang together?",
        structure.takeaway(links),
        "Labels: Pearson correlation on the train split. Given all others: partial correlation from the learned "
        f"precision of {named(links['method'][0].as_py())}, seed {links['seed'][0].as_py()}. Neither is a cause.",
        drawings=(Drawing("Tint: strength; dashed: negative", structure.drawn(links, view.names)),),
        small=(structure.table(links, view.names),),
    )


def _chosen(view: BottleneckView) -> Iterator[tuple[ResponseTrace, str]]:
    head = traces.head_of(view.models)
    for name, why in traces.chosen(view.traces, view.models).items():
        yield traces.read(view.traces, name, view.texts[name], view.names, head), why


def _alone(trace: ResponseTrace, why: str) -> Page:
    name = say.name(trace.response_id)
    section = Section("trace", TRACED, why.capitalize(), READ, pictures=(Drawing("", picture(trace)),))
    return Page(kind="Decision trace", study=name, title=name, sections=(section,))


def _traces(view: BottleneckView) -> Section | None:
    drawn = tuple(Drawing(why.capitalize(), picture(trace)) for trace, why in _chosen(view))
    if not drawn:
        return None
    return Section(
        "traces",
        TRACED,
        _right(view),
        READ,
        pictures=drawn,
    )


def _right(view: BottleneckView) -> str:
    """How many of the traced grades are people's."""
    columns = view.traces.select(["response_id", "score", "human"])
    right = [traces.is_right(row) for row in columns.group_by(columns.column_names).aggregate([]).to_pylist()]
    known = [one for one in right if one is not None]
    if not known:
        return f"{say.plural(len(right), 'grade')} without a human one beside them"
    return f"{say.count(sum(known))} of {say.plural(len(known), 'traced grade')} are those that people gave"


def _sweeps(view: BottleneckView, graders: Graders) -> Section | None:
    found = sweeps.sweeps(graders, view.settings.training)
    if not found:
        return None
    return Section(
        "sweeps",
        "Settings: how much hangs on them?",
        "; ".join(map(sweeps.takeaway, found)),
        "On the test split, to see how sensitive the method is, not to choose by.",
        drawings=tuple(drawing for one in found for drawing in _swept(one)),
        tables=tuple(map(sweeps.table, found)),
    )


def _swept(sweep: sweeps.Sweep) -> Iterator[Drawing]:
    series = []
    for at, column in enumerate(sweeps.COLUMNS):
        cells = [(float(x), cells[at]) for x, cells in enumerate(sweep.cells)]
        points = (
            ChartPoint(x, cell.value, *((cell.value - cell.se, cell.value + cell.se) if cell.se is not None else ()))
            for x, cell in cells
            if cell.value is not None
        )
        series.append(ChartLine(column.words, tuple(points)))
    known = [line for line in series if line.points]
    if known:
        ticks = {float(at): say.level(value) for at, value in enumerate(sweep.values)}
        words = say.worded(sweep.field)
        yield Drawing(words, line_chart(words, known, words, "mean ± sd over seeds", ticks))


def _leakage(graders: Graders) -> Section | None:
    table = figures.other_table(graders, of_leakage=True)
    if not table.rows:
        return None
    mine = figures.first(graders)
    leaked, control = (graders.cell(mine, GraderColumn(f"leakage_task{of}", "", "")).value for of in ("", "_control"))
    told = "Not measured" if leaked is None else f"{named(mine)} leaks {say.number(leaked, 3)} nats into the grade"
    if control is not None:
        told += f"; the control without leakage measures {say.number(control, 3)}"
    return Section(
        "leakage",
        "Leakage: do concepts carry more than they say?",
        told,
        "On all responses held out, cross-fitted, in nats a response. Into the grade: how much better the predicted "
        "concepts tell it than the true labels alone do. Among concepts: what a concept's reading says of another one "
        "beyond its own. Read it against the control, which leaks nothing.",
        tables=(table,),
    )


def _others(graders: Graders) -> Section | None:
    table = figures.other_table(graders, of_leakage=False)
    if not table.rows:
        return None
    return Section("others", "Other figures", "What no section above shows", tables=(table,))

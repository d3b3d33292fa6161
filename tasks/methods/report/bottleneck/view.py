"""A run's graders as the content of their report: pure, tables in, sections and their takeaways out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain

import pyarrow as pa
import pyarrow.compute as pc

from rubricflow.tasks.core.contracts.settings.bottleneck import Bottleneck
from rubricflow.tasks.core.contracts.tables.bottleneck import GRADE_METRICS
from rubricflow.tasks.core.display import say
from rubricflow.tasks.core.display.charts import ChartLine, ChartPoint, bar_chart, line_chart
from rubricflow.tasks.core.display.page import rendered
from rubricflow.tasks.core.display.section import Drawing, Key, Page, Section
from rubricflow.tasks.core.display.table import Bar, Cell, Panel, Table, count
from rubricflow.tasks.methods.report.bottleneck import figures, interventions, traces
from rubricflow.tasks.methods.report.bottleneck.figures import (
    CONCEPTS,
    ECE,
    HUMAN,
    QWK,
    SWEPT,
    GraderColumn,
    Graders,
    Sweep,
    grader_name,
)
from rubricflow.tasks.methods.report.bottleneck.traces import STYLE, ResponseTrace, exported, picture

TRACED = "Traces: how did a response come by its grade?"
READ = (
    "Expected level, its share of the highest, the share corrected by the other concepts, and what that adds. Bars "
    "that take away are hollow and dashed; all bars with the bias make the logit. Attention says where a concept "
    "looked, not why."
)
PANELS, FIGURES = 4, 2
"""Graders whose interventions are drawn, and figures by which orders of asking are compared."""


@dataclass(frozen=True)
class BottleneckView:
    """What the report is made from: Arrow tables with the columns of tasks/core/contracts/tables/bottleneck.py."""

    study: str
    run_id: str
    settings: Bottleneck
    names: Mapping[str, str]
    """Criterion id → what people read, of every concept in the bundle's order."""
    trials: pa.Table
    models: pa.Table
    interventions: pa.Table
    links: pa.Table
    """Table `concept_links`."""
    traces: pa.Table
    texts: Mapping[str, str]
    """response_id → text, at least of the responses that `needs_texts` names."""


def needs_texts(traced: pa.Table, models: pa.Table) -> list[str]:
    """The responses whose text the page shows. traced, models: tables `traces` and `models`."""
    return list(traces.choose_responses(traced, models))


def trace_pages(view: BottleneckView) -> dict[str, str]:
    """Response → its decision trace as a document of its own, of those that the page shows."""
    pages = {}
    for trace, why in _shown_traces(view):
        name = say.name(trace.response_id)
        section = Section("trace", TRACED, why.capitalize(), READ, pictures=(Drawing("", picture(trace)),))
        page = Page(kind="Decision trace", study=name, title=name, sections=(section,))
        pages[trace.response_id] = rendered(page, STYLE)
    return pages


def page(view: BottleneckView) -> str:
    """The report: a whole HTML document that needs no other file."""
    return rendered(content(view), STYLE)


def content(view: BottleneckView) -> Page:
    """What the page shows."""
    graders = Graders(view.trials, view.settings.methods)
    others = figures.other_table(graders, of_leakage=False)
    sections = [
        _compared(view, graders),
        _interventions(view, graders),
        _policies(view, graders),
        _structure(view, graders),
        _traces(view),
        _sweeps(view, graders),
        _leakage(graders),
        Section("others", "Other figures", "What no section above shows", tables=(others,)) if others.rows else None,
        _training(view),
    ]
    tested = max(map(graders.responses, graders.everyone), default=0)
    trained, seeds = say.plural(len(graders.trained), "trained grader"), say.plural(len(view.settings.seeds), "seed")
    return Page(
        kind="Grader report",
        study=say.name(view.study),
        title=figures.sentence(graders),
        lead=f"{trained}, {seeds} each, on {say.plural(tested, 'held-out response')}.",
        keys=list(_keys(graders)),
        sections=list(filter(None, sections)),
    )


def _keys(graders: Graders) -> Iterator[Key]:
    main = figures.main_grader(graders)
    shown = (QWK, "Grade, QWK"), (CONCEPTS, "Concepts, macro-F1"), (ECE, "Ordinal calibration error")
    for column, words in shown:
        cell, people = (graders.cell(grader, column) for grader in (main, HUMAN))
        if cell.value is not None:
            spread = f"± {say.number(cell.se)} over seeds" if cell.se is not None else "one seed"
            by_people = f"people {say.number(people.value)}" if people.value is not None else ""
            yield Key(f"{words}, {grader_name(main)}", say.number(cell.value), (spread, by_people))


def _compared(view: BottleneckView, graders: Graders) -> Section:
    drawings = (_bars(graders, QWK, "Grade: QWK"), _bars(graders, CONCEPTS, "Concepts: macro-F1"))
    best = {column.words: graders.best(column) for column in figures.COLUMNS}
    ahead = "; ".join(f"{grader_name(name)} in {words}" for words, name in best.items() if name)
    return Section(
        "graders",
        "Graders compared: does the bottleneck cost or gain?",
        f"Clearly ahead: {ahead}" if ahead else "No grader is clearly ahead of the next in any figure",
        "± is one standard deviation over seeds, of people over pairs of persons, on the same responses: it does not "
        f"say how far figures would move with other responses. {figures.MARK}: ahead of the next by more than the "
        "standard deviation of their paired difference.",
        drawings=list(filter(None, drawings)),
        tables=(figures.summary_table(graders), figures.concept_table(graders, view.names)),
        notes=list(figures.notes(graders)),
    )


def _bars(graders: Graders, column: GraderColumn, title: str) -> Drawing | None:
    """Each grader's mean with its standard deviation."""
    bars = []
    for name in (*graders.trained, *graders.judges):
        cell = graders.cell(name, column)
        if cell.value is not None:
            bars.append(Bar(grader_name(name), cell.value, *cell.reach, str(cell._replace(digits=2))))
    if not bars:
        return None
    return Drawing(title, bar_chart(Panel(title, bars, graders.cell(HUMAN, column).value)))


def _interventions(view: BottleneckView, graders: Graders) -> Section | None:
    curves = interventions.curves(view.interventions)
    metric = interventions.metric_of(curves, graders.trained)
    if metric is None:
        return None
    lines_of = {method: interventions.kind_lines(curves, method, metric) for method in graders.trained}
    drawn = [(method, lines) for method, lines in lines_of.items() if lines][:PANELS]
    if not drawn:
        return None
    points = chain.from_iterable(line.points for _, lines in drawn for line in lines)
    ends = [end for point in points for end in point[1:] if end is not None]
    drawings = []
    for method, lines in drawn:
        name = grader_name(method)
        drawings.append(Drawing(name, line_chart(name, lines, "concepts set", GRADE_METRICS[metric], within=ends)))
    return Section(
        "interventions",
        "Interventions: what becomes of the grade when concepts are set?",
        interventions.kind_takeaway(curves, drawn[0][0], metric),
        "Concepts are set in each response, the surest first. Uprights: 95% interval of the change, paired over "
        "responses, its ends averaged over seeds.",
        drawings=drawings,
        tables=(interventions.kind_table(curves, metric),),
    )


def _policies(view: BottleneckView, graders: Graders) -> Section | None:
    curves = interventions.curves(view.interventions)
    main = figures.main_grader(graders)
    drawn = {name: interventions.order_lines(curves, main, name) for name in GRADE_METRICS}
    metrics = [name for name, lines in drawn.items() if len(lines) > 1][:FIGURES]
    if not metrics:
        return None
    tables = [interventions.order_table(curves, main, name) for name in metrics]
    drawings = []
    for name in metrics:
        title = f"{GRADE_METRICS[name]} after so many answers for each response"
        drawings.append(Drawing(title, line_chart(title, drawn[name], "concepts asked about", GRADE_METRICS[name])))
    return Section(
        "policies",
        "Policies: which concept to ask an educator about first?",
        interventions.order_takeaway(curves, main, metrics[0]),
        f"{grader_name(main)}; every answer is people's label.",
        drawings=drawings,
        tables=(*tables, figures.questions_table(graders)),
    )


def _structure(view: BottleneckView, graders: Graders) -> Section | None:
    links = interventions.of_first_seed(view.links, figures.main_grader(graders))
    if not len(links):
        return None
    method, seed = grader_name(links["method"][0].as_py()), links["seed"][0].as_py()
    return Section(
        "structure",
        "Structure: how do concepts hang together?",
        interventions.takeaway(links),
        "Labels: Pearson correlation on the train split. Given all others: partial correlation from the learned "
        f"precision of {method}, seed {seed}. Neither is a cause.",
        drawings=(Drawing("Tint: strength; dashed: negative", interventions.correlation_square(links, view.names)),),
        small=(interventions.table(links, view.names),),
    )


def _shown_traces(view: BottleneckView) -> Iterator[tuple[ResponseTrace, str]]:
    head = traces.head_of(view.models)
    for name, why in traces.choose_responses(view.traces, view.models).items():
        yield traces.read(view.traces, name, view.texts[name], view.names, head), why


def _traces(view: BottleneckView) -> Section | None:
    drawn = tuple(Drawing(why.capitalize(), picture(trace)) for trace, why in _shown_traces(view))
    if not drawn:
        return None
    # How many of the traced grades are people's
    columns = view.traces.select(["response_id", "score", "human"])
    right = [traces.is_right(row) for row in columns.group_by(columns.column_names).aggregate([]).to_pylist()]
    compared = [is_right for is_right in right if is_right is not None]
    takeaway = f"{say.plural(len(right), 'grade')} without a human one beside them"
    if compared:
        grades = say.plural(len(compared), "traced grade")
        takeaway = f"{say.count(sum(compared))} of {grades} are those that people gave"
    return Section("traces", TRACED, takeaway, READ, pictures=drawn)


def _sweeps(view: BottleneckView, graders: Graders) -> Section | None:
    study_sweeps = figures.sweeps_of(graders, view.settings.training)
    if not study_sweeps:
        return None
    return Section(
        "sweeps",
        "Settings: how much hangs on them?",
        "; ".join(map(figures.sweep_takeaway, study_sweeps)),
        "On the test split, to see how sensitive the method is, not to choose by.",
        drawings=list(chain.from_iterable(map(_swept, study_sweeps))),
        tables=tuple(map(figures.sweep_table, study_sweeps)),
    )


def _swept(sweep: Sweep) -> Iterator[Drawing]:
    series = []
    for index, column in enumerate(SWEPT):
        figures_of = ((float(place), cells[index]) for place, cells in enumerate(sweep.cells))
        points = [ChartPoint(x, cell.value, *cell.reach) for x, cell in figures_of if cell.value is not None]
        series.append(ChartLine(column.words, tuple(points)))
    drawn = [line for line in series if line.points]
    if drawn:
        ticks = {float(index): say.level(value) for index, value in enumerate(sweep.values)}
        words = say.worded(sweep.field)
        yield Drawing(words, line_chart(words, drawn, words, "mean ± sd over seeds", ticks))


def _leakage(graders: Graders) -> Section | None:
    table = figures.other_table(graders, of_leakage=True)
    if not table.rows:
        return None
    main = figures.main_grader(graders)
    metrics = ("leakage_task", "leakage_task_control")
    leaked, control = (graders.cell(main, GraderColumn(metric, "", "")).value for metric in metrics)
    title = "Not measured"
    if leaked is not None:
        title = f"{grader_name(main)} leaks {say.number(leaked, 3)} nats into the grade"
    if control is not None:
        title += f"; the control without leakage measures {say.number(control, 3)}"
    return Section(
        "leakage",
        "Leakage: do concepts carry more than they say?",
        title,
        "On all responses held out, cross-fitted, in nats a response. Into the grade: how much better the predicted "
        "concepts tell it than the true labels alone do. Among concepts: what a concept's reading says of another one "
        "beyond its own. Read it against the control, which leaks nothing.",
        tables=(table,),
    )


def _training(view: BottleneckView) -> Section:
    """Who was trained how: the graders one by one, and the settings of all."""
    rows = []
    for row in view.models.filter(pc.equal(view.models["setting"], "")).to_pylist():
        epochs = f"{row['epochs_1']} and {row['epochs_2']}" if row["epochs_2"] else f"{row['epochs_1']}"
        temperature = Cell(row["grade_temperature"], digits=2)
        numbers = count(row["parameters"]), epochs, Cell(row["validation"]), temperature, Cell(row["seconds"], digits=1)
        rows.append((grader_name(row["method"]), str(row["seed"]), *numbers))
    header = ("Grader", "seed", "numbers trained", "epochs", "validation macro-F1", "temperature", "seconds")
    return Section(
        "made",
        "How it was made",
        "What the graders rest on",
        facts=list(_facts(view)),
        tables=(Table("models", "Graders", header, rows),),
    )


def _facts(view: BottleneckView) -> Iterator[tuple[str, str]]:
    settings, training = view.settings, view.settings.training
    yield "run", view.run_id
    if len(view.models):
        backbones = sorted(set(view.models["backbone"].to_pylist()))
        yield "text encoder", f"{', '.join(map(say.name, backbones))}, {settings.encoder}"
    if best := exported(view.models):
        yield "exported", f"{grader_name(best['method'])}, seed {best['seed']}, {(best['digest'] or '')[:12]}"
    yield "concept labels", say.name(settings.labels)
    yield "grades", "every score of the scale" if settings.bands is None else f"{settings.bands} equal bands"
    yield "seeds", ", ".join(map(str, settings.seeds))
    weights = ("concept_weight", "ranking_weight", "task_weight", "denoising_weight", "sparsity_weight")
    yield (
        "weights of the losses",
        ", ".join(f"{say.worded(name)} {say.level(getattr(training, name))}" for name in weights),
    )
    yield "batch, epochs, patience", f"{training.batch_size}, at most {training.epochs}, {training.patience}"

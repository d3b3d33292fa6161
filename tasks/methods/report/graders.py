"""A run's graders as the content of their report: pure, tables in, sections and their takeaways out."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa

from rubricflow.tasks.core.contracts.settings.methods import Bottleneck
from rubricflow.tasks.core.contracts.tables.bottleneck import GRADE_METRICS, ORDERS
from rubricflow.tasks.core.display import say
from rubricflow.tasks.core.display.charts import bar_chart, line_chart
from rubricflow.tasks.core.display.page import Drawing, Key, Page, Section, rendered, setting_facts
from rubricflow.tasks.core.display.table import Bar, Cell, Panel, Table, count
from rubricflow.tasks.methods.report import grader_figures as figures
from rubricflow.tasks.methods.report import traces
from rubricflow.tasks.methods.report.grader_figures import (
    CONCEPTS,
    ECE,
    HUMAN,
    QWK,
    GraderColumn,
    Graders,
    grader_name,
)

TRACED = "Traces: how did a response come by its grade?"
READ = (
    "Expected level, its share of the highest, the share corrected by the other concepts, and what that adds. Bars "
    "that take away are hollow and dashed; all bars with the bias make the logit. Attention says where a concept "
    "looked, not why."
)
PANELS = 4
"""Graders whose interventions are drawn."""


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


def needs_texts(traced: pa.Table, models: pa.Table) -> dict[str, str]:
    """The responses whose text the page shows, and why. traced, models: tables `traces` and `models`."""
    best = traces.exported(models)
    return traces.choose_responses(traces.by_response(traced), json.loads(best["head"])) if best else {}


def page(view: BottleneckView) -> str:
    """The report: a whole HTML document that needs no other file."""
    return rendered(content(view), traces.STYLE)


def content(view: BottleneckView) -> Page:
    """What the page shows."""
    graders = Graders(view.trials, view.settings.methods)
    shown = graders.own[graders.own["metric"].isin([column.metric for column in figures.COLUMNS])]
    tested = int(shown["n"].max()) if len(shown) else 0
    trained = say.plural(len(graders.trained), "trained grader")
    seeds = say.plural(len(view.settings.seeds), "seed")
    keys = []
    for column, words in ((QWK, "Grade, QWK"), (CONCEPTS, "Concepts, macro-F1"), (ECE, "Ordinal calibration error")):
        cell, people = (graders.cell(grader, column) for grader in (graders.main, HUMAN))
        if cell.value is not None:
            spread = f"± {say.number(cell.se)} over seeds" if cell.se is not None else "one seed"
            by_people = f"people {say.number(people.value)}" if people.value is not None else ""
            keys.append(Key(f"{words}, {grader_name(graders.main)}", say.number(cell.value), (spread, by_people)))
    lead = f"{trained}, {seeds} each, on {say.plural(tested, 'held-out response')}."
    sections = list(_sections(view, graders))
    study = say.name(view.study)
    return Page("Grader report", study, figures.sentence(graders), sections, lead=lead, keys=keys)


def _sections(view: BottleneckView, graders: Graders) -> Iterator[Section]:
    bars = [*_bars(graders, QWK, "Grade: QWK"), *_bars(graders, CONCEPTS, "Concepts: macro-F1")]
    yield Section(
        "graders",
        "Graders compared: does the bottleneck cost or gain?",
        figures.best_graders(graders),
        "± is one standard deviation over seeds, of people over pairs of persons, on the same responses: it does not "
        "say how far figures would move with other responses.",
        drawings=bars,
        tables=(figures.summary_table(graders), figures.concept_table(graders, view.names)),
    )
    yield from _interventions(view, graders)
    links = figures.of_first_seed(view.links, graders.main)
    if len(links):
        yield Section(
            "structure",
            "Structure: how do concepts hang together?",
            figures.link_takeaway(links),
            "Labels: Pearson correlation on the train split. Given all others: partial correlation from the learned "
            f"precision of {grader_name(graders.main)}, seed {links['seed'][0].as_py()}. Neither is a cause.",
            tables=(figures.link_table(links, view.names),),
            folded="Every pair of concepts",
        )
    yield from _traces(view)
    sweeps = list(figures.sweep_tables(graders, view.settings.training))
    if sweeps:
        yield Section(
            "sweeps",
            "Settings: how much hangs on them?",
            "; ".join(map(_moved, sweeps)),
            "On the test split, to see how sensitive the method is, not to choose by.",
            tables=sweeps,
            folded="Every setting",
        )
    leakage = figures.leakage_table(graders)
    if leakage.rows:
        metrics = ("leakage_task", "leakage_task_control")
        leaked, control = (graders.cell(graders.main, GraderColumn(metric, "", "")) for metric in metrics)
        yield Section(
            "leakage",
            "Leakage: do concepts carry more than they say?",
            f"{grader_name(graders.main)} into the grade: {leaked} nats; control without leakage: {control}",
            "On all responses held out, cross-fitted, in nats a response. Into the grade: how much better the "
            "predicted concepts tell it than the true labels alone do. Among concepts: what a concept's reading says "
            "of another one beyond its own. Read it against the control, which leaks nothing.",
            tables=(leakage,),
            folded="Leakage by grader",
        )
    yield Section(
        "made",
        "How it was made",
        "What the graders rest on",
        facts=list(_facts(view)),
        tables=(_models(view.models),),
        folded="Training and settings",
    )


def _moved(sweep: Table) -> str:
    """How far the grade's macro-F1 moves over a sweep."""
    place = sweep.header.index(figures.MACRO_F1.words)
    known = []
    for row in sweep.rows:
        cell = row[place]
        if isinstance(cell, Cell) and cell.value is not None:
            known.append(cell.value)
    if not known:
        return f"{sweep.header[0]}: not known"
    return f"{sweep.header[0]}: macro-F1 between {say.number(min(known))} and {say.number(max(known))}"


def _bars(graders: Graders, column: GraderColumn, title: str) -> Iterator[Drawing]:
    """Each grader's mean with its standard deviation."""
    bars = []
    for name in (*graders.trained, *graders.judges):
        cell = graders.cell(name, column)
        if cell.value is not None:
            bars.append(Bar(grader_name(name), cell.value, *cell.reach, str(cell._replace(digits=2))))
    if bars:
        yield Drawing(title, bar_chart(Panel(title, bars, graders.cell(HUMAN, column).value)))


def _interventions(view: BottleneckView, graders: Graders) -> Iterator[Section]:
    metric, points = figures.curves(view.interventions)
    drawn = [method for method in graders.trained if (points["method"] == method).any()][:PANELS]
    if not drawn:
        return
    drawings = []
    for method in drawn:
        name = grader_name(method)
        lines = figures.kind_lines(points, method)
        drawings.append(
            Drawing(name, line_chart(name, lines, "concepts set", GRADE_METRICS[metric], within=(0.0, 1.0)))
        )
    yield Section(
        "interventions",
        "Interventions: what becomes of the grade when concepts are set?",
        figures.kind_takeaway(points, drawn[0], metric),
        "Concepts are set in each response, the surest first. Uprights: 95% interval of the change, paired over "
        "responses, its ends averaged over seeds.",
        drawings=drawings,
        tables=(figures.kind_table(points, metric),),
        folded="Once all concepts are set",
    )
    lines = figures.order_lines(points, graders.main)
    if len(lines) < 2:
        return
    areas = {order: graders.cell(graders.main, figures.saving_columns(order)[0]).value for order in ORDERS}
    known = {order: area for order, area in areas.items() if area is not None}
    takeaway = "Orders of asking side by side"
    if known:
        best = max(known, key=lambda order: known[order])
        takeaway = f"{say.sentence(ORDERS[best])} gains most: accuracy {say.number(known[best])}, mean over budgets"
    title = f"{GRADE_METRICS[metric]} after so many answers for each response"
    yield Section(
        "policies",
        "Policies: which concept to ask an educator about first?",
        takeaway,
        f"{grader_name(graders.main)}; every answer is people's label.",
        drawings=(Drawing(title, line_chart(title, lines, "concepts asked about", GRADE_METRICS[metric])),),
        tables=(figures.questions_table(graders),),
        folded="How many questions each order needs",
    )


def _traces(view: BottleneckView) -> Iterator[Section]:
    drawn = _pictures(view)
    if not drawn:
        return
    # How many of the traced grades are people's
    traced = traces.by_response(view.traces)
    right = [traces.is_right(next(iter(rows.values()))) for rows in traced.values()]
    compared = [is_right for is_right in right if is_right is not None]
    grades = say.plural(len(compared), "traced grade")
    takeaway = f"{say.count(sum(compared))} of {grades} with a human one are those that people gave"
    yield Section("traces", TRACED, takeaway, READ, pictures=[*drawn.values()])


def _pictures(view: BottleneckView) -> dict[str, Drawing]:
    """The traces that are shown, by response."""
    best = traces.exported(view.models)
    traced = traces.by_response(view.traces)
    if not best:
        return {}
    drawn = {}
    for name, why in needs_texts(view.traces, view.models).items():
        picture = traces.picture(traced[name], view.texts[name], view.names, json.loads(best["head"]))
        drawn[name] = Drawing(why.capitalize(), picture)
    return drawn


def trace_pages(view: BottleneckView) -> dict[str, str]:
    """Response → its decision trace as a document of its own, of those that the page shows."""
    pages = {}
    for response, drawing in _pictures(view).items():
        section = Section("trace", TRACED, drawing.title, READ, pictures=(Drawing("", drawing.svg),))
        name = say.name(response)
        page = Page(kind="Decision trace", study=name, title=name, sections=(section,))
        pages[response] = rendered(page, traces.STYLE)
    return pages


def _models(models: pa.Table) -> Table:
    """Who was trained how."""
    rows = []
    for row in models.to_pylist():
        if not row["setting"]:
            epochs = f"{row['epochs_1']} and {row['epochs_2']}" if row["epochs_2"] else str(row["epochs_1"])
            figure = Cell(row["validation"]), Cell(row["grade_temperature"], digits=2), Cell(row["seconds"], digits=1)
            rows.append((grader_name(row["method"]), str(row["seed"]), count(row["parameters"]), epochs, *figure))
    header = ("Grader", "seed", "numbers trained", "epochs", "validation macro-F1", "temperature", "seconds")
    return Table("models", "Graders", header, rows)


def _facts(view: BottleneckView) -> Iterator[tuple[str, str]]:
    yield "run", view.run_id
    yield "text encoders", ", ".join(map(say.name, sorted(set(view.models["backbone"].to_pylist()))))
    best = traces.exported(view.models)
    if best:
        yield "exported", f"{grader_name(best['method'])}, seed {best['seed']}, {(best['digest'] or '')[:12]}"
    yield from setting_facts(view.settings.model_dump(mode="json", exclude_none=True))

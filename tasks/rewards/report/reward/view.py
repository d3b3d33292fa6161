"""A run's graphs and rewards as the content of the reward report: pure, tables in, sections and their takeaways out.

What the rewards rest on: judges, factors and graphs, and what this makes of the figures.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from rubricflow.tasks.core.contracts.graph import RELATIONS
from rubricflow.tasks.core.display import say
from rubricflow.tasks.core.display.charts import bar_chart
from rubricflow.tasks.core.display.page import body, rendered
from rubricflow.tasks.core.display.section import Drawing, Key, Page, Section
from rubricflow.tasks.core.display.table import Cell, Cells, Row, Table, count
from rubricflow.tasks.core.stats.arrays import Floats
from rubricflow.tasks.core.stats.bootstrap import cautions
from rubricflow.tasks.rewards.report.reward import figures, graphs
from rubricflow.tasks.rewards.report.reward.figures import (
    COMPARED,
    DiagnosticFigures,
    RewardView,
    case,
    earned,
    leaked_by_rubric,
    loser,
    side_by_side,
    worst,
)
from rubricflow.tasks.rewards.report.reward.picture import LOOK, STYLE, picture, rows_of

TEMPLATE = Path(__file__).with_name("cases.html.j2")
RETENTIONS = 40
"""Learned factors that are in the page."""
UNLICENSED = "A criterion is unlicensed where a response has it without the criterion that it depends on."
LEAKAGE = (
    "Leakage: the child's weight times what is left of it, over the rubric's credit, where the child is supported "
    "and its parent is not. Preservation: what is left of a child's own score where its parent is supported, too. "
    "Unlicensed penalties count as credit does, by their size. Per child, a child with several parents counts "
    "once. 95% intervals from resampling items."
)
LEAKAGE_NOTES = (
    "hard: a child counts if every parent reaches the threshold, by what the judge decided (verdict, as "
    "published), by its own score (local) or by what is left of it (propagated); random and untyped graph: "
    "GEAR over other graphs, measured on the dependencies of these",
    "published: GEAR, Table 2, HealthBench with its authors' graphs, judge and policy: for orientation only",
)
CASES = (
    "One of each response and of each pair of criteria. A case is as right as the judge and the graph are: look at "
    "both."
)


def page(view: RewardView) -> str:
    """The report: a whole HTML document that needs no other file."""
    return rendered(content(view), STYLE)


def content(view: RewardView) -> Page:
    """What the page shows."""
    diagnostics, both = DiagnosticFigures(view.diagnostics), side_by_side(view.rewards)
    rows = view.graphs.to_pylist()
    raters = sorted(view.rewards["rater_id"].unique().to_pylist())
    judged = "Nothing was rewarded"
    if raters:
        responses, rubrics = (pc.count_distinct(view.rewards[name]).as_py() for name in ("response_id", "rubric_id"))
        names = ", ".join(map(say.name, raters[:4])) + (" and others" if len(raters) > 4 else "")
        judged = f"{say.plural(responses, 'response')} under {say.plural(rubrics, 'rubric')}, judged by {names}"
    other = figures.other_table(diagnostics)
    sections = [
        _leakage(diagnostics),
        Section(
            "relations",
            "Kinds of dependency: where does it leak?",
            figures.leakiest(diagnostics),
            "Activations are in the first row and by themselves in the last.",
            tables=tuple(figures.relation_table(diagnostics, metric) for metric in figures.METRICS),
        ),
        _rewards(view, diagnostics, both),
        _graphs(view, rows),
        _pictures(view, rows, both),
        _cases(view),
        _retentions(view.retentions),
    ]
    if other.rows:
        title = "Exact against topological inference, ablations and gains"
        sections.append(Section("other", "Other numbers", title, tables=(other,)))
    made, notes = list(facts(view)), list(caveats(view, rows))
    sections.append(Section("made", "How it was made", "What the rewards rest on", facts=made, notes=notes))
    return Page(
        kind="Reward report",
        study=say.name(view.study),
        title=figures.sentence(diagnostics),
        lead=f"{judged}. {UNLICENSED}",
        keys=list(_keys(diagnostics)),
        sections=list(filter(None, sections)),
    )


def _keys(diagnostics: DiagnosticFigures) -> Iterator[Key]:
    for metric, words in (("leakage", "Leakage per edge"), ("preservation", "Preservation per edge")):
        gear, digits = diagnostics.cell(metric, "gear", "edge"), figures.DIGITS[metric]
        if gear.value is not None:
            others = []
            for name, other in (("flat", "flat"), ("hard_verdict", "hard")):
                if (value := diagnostics.value(metric, name)) is not None:
                    others.append(f"{other} {say.number(value, digits)}")
            n = f"n = {diagnostics.cases(metric, 'gear', 'edge')}"
            lines = gear.interval or f"95% interval {say.NOT_KNOWN}", n, ", ".join(others)
            yield Key(f"{words}, GEAR", say.number(gear.value, digits), lines)
    mean = diagnostics.row("reward_mean", "gear", "response")
    if mean and mean["value"] is not None:
        flat = diagnostics.value("reward_mean", "flat", "response")
        below = f"flat {say.number(flat, 3)}" if flat is not None else ""
        yield Key("Mean reward, GEAR", say.number(mean["value"], 3), (f"n = {say.count(mean['n'])}", below))
        yield Key("Without a reward", say.count(mean["unscored"]), (f"of {say.count(mean['n'] + mean['unscored'])}",))


def _leakage(diagnostics: DiagnosticFigures) -> Section:
    noted: dict[str, list[str]] = {}
    for name in diagnostics.aggregations:
        if (row := diagnostics.row("leakage", name, "edge")) and row["note"]:
            noted.setdefault(say.visible(row["note"]), []).append(COMPARED[name])
    notes = [f"{'; '.join(names)}: {note}" for note, names in noted.items()]
    panels = [figures.panel(diagnostics, metric) for metric in figures.METRICS]
    return Section(
        "leakage",
        "False credit: what is paid without its condition, and what is lost with it?",
        figures.preserved(diagnostics),
        LEAKAGE,
        drawings=tuple(Drawing(panel.title, bar_chart(panel)) for panel in panels if panel.bars),
        tables=tuple(figures.metric_table(diagnostics, metric) for metric in figures.METRICS),
        notes=(*notes, *LEAKAGE_NOTES),
    )


def _rewards(view: RewardView, diagnostics: DiagnosticFigures, both: pd.DataFrame) -> Section:
    drawings = []
    frame = view.every_reward.select(["aggregation", "reward"]).to_pandas().dropna()
    rewards = {str(name): _numbers(part) for name, part in frame.groupby("aggregation")["reward"]}
    values = {words: rewards[name] for name, words in COMPARED.items() if name in rewards}
    if values:
        histograms = graphs.histograms(values)
        drawings.append(Drawing("Rewards of the same responses; the upright is their mean", histograms))
    title = "No response has a reward both ways"
    if len(both):
        flat, gear = (_numbers(both[name]) for name in ("flat", "gear"))
        title = graphs.losses(flat, gear)
        title_of_scatter = f"Each response both ways, n = {say.count(len(both))}; dotted: nothing changes"
        drawings.append(Drawing(title_of_scatter, graphs.scatter(flat, gear)))
    return Section(
        "rewards",
        "Rewards: what do the dependencies change?",
        title,
        drawings=drawings,
        tables=(figures.reward_table(diagnostics), _unscored(view.every_reward)),
        notes=("more than flat: a penalty counts less, since its condition is missing",),
    )


def _numbers(values: pd.Series[float]) -> Floats:
    return np.asarray(values, dtype=np.float64)


def _unscored(rewards: pa.Table) -> Table:
    """Responses with unscored criteria, and how many of them have bounds in place of a reward."""
    frame = rewards.select(["aggregation", "reward", "low", "unscored"]).to_pandas()
    rows = list[Cells]()
    for name in COMPARED:
        judged = frame[frame["aggregation"] == name]
        if judged["unscored"].any():
            numbers = len(judged), int((judged["unscored"] > 0).sum()), int(judged["unscored"].sum())
            bounded = int((judged["reward"].isna() & judged["low"].notna()).sum())
            rows.append((COMPARED[name], *map(count, (*numbers, bounded))))
    header = ("Aggregation", "judged", "with an unscored criterion", "unscored criteria", "bounds for a reward")
    return Table("unscored", "Unscored", header, rows)


def _graphs(view: RewardView, rows: list[Row]) -> Section:
    empty = sum(row["kept"] == 0 for row in rows)
    kinds = graphs.kinds(view.graph_nodes, view.graph_edges)
    edges = say.plural(sum(row["kept"] for row in rows), "dependency", "dependencies")
    title = f"{edges} in {say.plural(len(rows), 'rubric')}"
    if empty:
        title += f"; {say.count(empty)} {'has' if empty == 1 else 'have'} none and are rewarded flat"
    return Section(
        "graphs",
        "Graphs: which criterion licenses which?",
        title,
        "Made from question and rubric alone, once, before any response was looked at.",
        tables=(graphs.statistics(rows),),
        small=(graphs.makers(rows), graphs.dropped(view.graph_edges), *kinds),
    )


def _pictures(view: RewardView, rows: list[Row], both: pd.DataFrame) -> Section | None:
    rewarded = set(pc.unique(view.rewards["rubric_id"]).to_pylist())
    rewarded_graphs = [row for row in rows if row["rubric_id"] in rewarded]
    chosen = graphs.notable(rewarded_graphs, leaked_by_rubric(view.edge_cases))
    drawn = []
    for rubric, why in chosen.items():
        row, over, note = loser(both, rubric), None, "No response has a reward under this rubric."
        if row:
            over = earned(view.rewards, row, view.settings.threshold)
            rewards = f"flat {say.number(row['flat'])}, GEAR {say.number(row['gear'])}"
            note = f"Response {say.name(row['response_id'])}: {rewards}."
        nodes, edges = rows_of(view.graph_nodes, rubric), rows_of(view.graph_edges, rubric)
        drawn.append(Drawing(f"{say.name(rubric)}: {why}", picture(nodes, edges, over), note))
    if not drawn:
        return None
    return Section(
        "pictures",
        "Pictures: what does a response lose, and why?",
        f"{say.plural(len(drawn), 'graph')}, each with the response whose reward it changes most",
        LOOK,
        pictures=tuple(drawn),
    )


def _cases(view: RewardView) -> Section:
    cases = []
    for row in worst(view.edge_cases):
        nodes = {node["criterion_id"]: node for node in rows_of(view.graph_nodes, row["rubric_id"])}
        question, text = view.questions[row["item_id"]], view.texts[row["response_id"]]
        cases.append(case(row, earned(view.rewards, row, view.settings.threshold), nodes, question, text))
    title = f"{say.plural(len(cases), 'dependency', 'dependencies')} that a response does not keep" if cases else "None"
    question = "Worst cases: where did flat aggregation pay most?"
    return Section("cases", question, title, CASES, body=body(TEMPLATE, "cases", cases))


def _retentions(learned: pa.Table) -> Section | None:
    if not len(learned):
        return None
    rows = sorted(learned.to_pylist(), key=lambda row: -abs(row["retention"] - row["by_relation"]))
    lines = []
    for row in rows[:RETENTIONS]:
        dependency = f"{say.name(row['rubric_id'])}: {say.name(row['parent'])} → {say.name(row['child'])}"
        factors = Cell(row["retention"]), Cell(row["by_relation"])
        lines.append((dependency, RELATIONS[row["relation"]], *factors, count(row["n"])))
    header = ("Dependency", "kind", "learned", "by kind", "n")
    table = Table("learned", "Furthest from the factor of their kind", header, lines)
    more = len(rows) - len(lines)
    less = sum(row["retention"] < row["by_relation"] for row in rows)
    return Section(
        "retentions",
        "Learned retention factors: do people pay as the relations say?",
        f"{say.plural(less, 'factor')} of {say.count(len(rows))} fall below that of their kind",
        f"Fitted to the human score {say.name(rows[0]['target'])} on the calibration split; n: responses.",
        tables=(table,),
        notes=(f"{say.count(more)} more in the table retentions",) if more else (),
    )


HEURISTIC = "heuristic-"
"""How the name of an annotator begins that is no model."""


def facts(view: RewardView) -> Iterator[tuple[str, str]]:
    """By whom, from what and how the rewards were made: name and value."""
    gear = view.rewards.filter(pc.field("aggregation") == "gear")
    yield "run", view.run_id
    counted = pc.value_counts(view.rewards.filter(pc.field("aggregation") == "flat")["rater_id"]).to_pylist()
    judged = (f"{say.name(rater['values'])} ({say.count(rater['counts'])})" for rater in counted)
    yield "judged by", ", ".join(judged) or "nobody"
    yield "local scores", ", ".join(f"by {word}" for word in sorted(gear["decided_by"].unique().to_pylist()))
    if len(gear):
        # What the rows of GEAR say that they were made with
        eta = gear["eta"].unique().to_pylist()
        yield "inference", ", ".join(sorted(gear["inference"].unique().to_pylist()))
        yield "suppression strength η", ", ".join(map(say.level, sorted(eta)))
        retention = (
            f"{words} {say.level(view.retention[name])}" for name, words in RELATIONS.items() if name in view.retention
        )
        yield "retention factors before η", ", ".join(retention)
    yield "threshold", say.level(view.settings.threshold)
    intervals = f"95%, {say.count(view.settings.draws)} draws over items, seed {view.settings.seed}"
    yield "intervals", "; ".join((intervals, *cautions(view.diagnostics["clusters"].to_pylist())))


def caveats(view: RewardView, rows: list[Row]) -> Iterator[str]:
    """What to bear in mind. rows: of `graphs`."""
    # Whether every criterion's own score is 0 or 1
    scores = view.rewards.filter(pc.field("aggregation") == "flat")["marginals"].combine_chunks().items
    is_boolean = len(scores) > 0 and bool(pc.all(pc.is_in(scores, pa.array([0.0, 1.0]))).as_py())
    if is_boolean:
        yield (
            "Every verdict is yes or no: hard gating then leaks nothing by construction, and GEAR what its retention "
            "factors leave. Verdicts with probabilities would say more about either."
        )
    if heuristic := sum(row["annotator"].startswith(HEURISTIC) for row in rows):
        yield (
            f"{say.count(heuristic)} of {say.plural(len(rows), 'graph')} were made by a heuristic over the criteria's "
            "wording, not by a person or a language model: dependencies may be missing or wrong, and so may what is "
            "called false credit."
        )
    if failed := sum(row["failed"] for row in rows):
        yield f"The annotator gave nothing usable for {say.plural(failed, 'pair')} of criteria: they are independent."
    if view.settings.edge_retention:
        yield "Some dependencies have a factor of their own in place of that of their kind."
    if len(view.retentions):
        yield "What was learned about factors here is in table retentions; the rewards above were made without it."
    yield "Leakage and preservation are about the graph's dependencies: they do not say that a reward is right."

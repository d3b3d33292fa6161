"""A run's graphs and rewards as the reward report: tables in, a page out.

In reading order: what the page shows, the table of all aggregations, single responses that were paid most for
unlicensed criteria, and what the graphs are like.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from markupsafe import Markup

from rubricflow.tasks.core.contracts import Meanings, Record
from rubricflow.tasks.core.contracts.graph import RELATIONS
from rubricflow.tasks.core.contracts.settings.reward import Reward
from rubricflow.tasks.core.contracts.tables.reward import AGGREGATIONS, PARENTS
from rubricflow.tasks.core.contracts.tables.rubrics import without_graph
from rubricflow.tasks.core.display import draw, say
from rubricflow.tasks.core.display.charts import axis, bar_chart, square
from rubricflow.tasks.core.display.page import Drawing, Page, Section, body, rendered
from rubricflow.tasks.core.display.table import Bar, Cell, Cells, Panel, Row, Table, count
from rubricflow.tasks.core.stats.bootstrap import cautions
from rubricflow.tasks.rewards.report.picture import LOOK, STYLE, EarnedCredit, picture, rows_of, signed
from rubricflow.tasks.rewards.report.training import EvaluatedRollouts, alarms, ringing, section

TEMPLATE = Path(__file__).with_name("cases.html.j2")
COMPARED: Meanings = {**AGGREGATIONS, "random_graph": "random graph", "untyped": "untyped graph"}
"""Aggregations and ablations in words."""
DIGITS = {"leakage": 4, "preservation": 3}
HEADER = (
    "aggregation",
    "rewarded",
    "without reward",
    "mean",
    "sd",
    "leakage per edge",
    "violated edges",
    "leakage per child",
    "preservation per edge",
    "satisfied edges",
    "preservation per child",
)
NOTES = (
    "Leakage: the child's weight times what is left of it, over the rubric's credit, where the child is supported and "
    "its parent is not. Preservation: what is left of a child's own score where its parent is supported, too. "
    "Unlicensed penalties count by their size. Per child, a child with several parents counts once. 95% intervals "
    "from resampling items.",
    "hard: a child counts if every parent reaches the threshold, by what the judge decided (verdict, as published), "
    "by its own score (local) or by what is left of it (propagated); random and untyped graph: GEAR over other graphs, "
    "measured on the dependencies of these",
    "published, per edge (GEAR, Table 2, HealthBench with its authors' graphs, judge and policy): leakage flat 0.0922, "
    "hard 0.0003, GEAR 0.0032; preservation 1, 0.1877, 0.2706",
)
PAID = (pc.field("aggregation") == "flat") & (pc.field("leaked") > 0)
"""Which dependency cases the report is about."""
KEY = ["response_id", "rater_id", "sample"]
CASES, LOOKED_AT, PICTURES = 8, 2000, 3
"""Cases shown, how many of the largest they are chosen from, and graphs that are drawn."""
QUESTION_LENGTH, TEXT_LENGTH, CRITERION_LENGTH = 320, 800, 320
"""Characters that are shown."""
BINS = 48
"""Cells along a side of the scatter."""


@dataclass(frozen=True)
class RewardView:
    """What the report is made from: Arrow tables with the columns of tasks/core/contracts/tables."""

    study: str
    run_id: str
    settings: Reward
    rewards: pa.Table
    """Of flat aggregation and GEAR."""
    edge_cases: pa.Table
    """At least those that are PAID."""
    diagnostics: pa.Table
    graphs: pa.Table
    graph_nodes: pa.Table
    graph_edges: pa.Table
    questions: Mapping[str, str]
    """item_id → question, at least of the responses of the `worst` cases."""
    texts: Mapping[str, str]
    """response_id → text, of the same."""
    evaluated: EvaluatedRollouts | None = None
    """What the evaluation says of the rollouts, where it says something."""


def page(view: RewardView) -> str:
    """The report: a whole HTML document that needs no other file."""
    figures = by_key(view.diagnostics)
    both = side_by_side(view.rewards)
    responses, rubrics = (pc.count_distinct(view.rewards[name]).as_py() for name in ("response_id", "rubric_id"))
    judged = f"{say.plural(responses, 'response')} under {say.plural(rubrics, 'rubric')}"
    others = other_table(figures)
    said = alarms(view.evaluated.rows) if view.evaluated else {}
    other = Section("other", "Other numbers", "Inference, ablations and gains", tables=(others,))
    sections = [
        _leakage(view, figures),
        _rewards(both),
        section(view.evaluated, said) if view.evaluated else None,
        _pictures(view, both),
        _cases(view),
        _graphs(view),
        other if others.rows else None,
        Section("made", "How it was made", "What the rewards rest on", facts=list(_facts(view)), notes=_caveats(view)),
    ]
    return rendered(
        Page(
            kind="Reward report",
            study=say.name(view.study),
            title=ringing(said) or takeaway(figures),
            lead=f"{judged} rewarded. A criterion is unlicensed where a response has it without the criterion that it "
            "depends on.",
            sections=list(filter(None, sections)),
        ),
        STYLE,
    )


# The diagnostics.

Figures = Mapping[tuple[str, str, str, str], Row]
"""Metric, aggregation, per and slice → the row of `diagnostics`."""


def by_key(diagnostics: pa.Table) -> Figures:
    """The rows of `diagnostics` by what they measure."""
    return {(row["metric"], row["aggregation"], row["per"], row["slice"]): row for row in diagnostics.to_pylist()}


def takeaway(figures: Figures) -> str:
    """The finding of the whole report: leakage under GEAR over that under flat aggregation, on the same cases."""
    flat, gear = (_of(figures, "leakage", name)["value"] for name in ("flat", "gear"))
    if flat and gear is not None:
        return f"GEAR pays {say.share(gear / flat)} of the credit that flat aggregation pays for unlicensed criteria"
    return "Flat aggregation pays nothing for unlicensed criteria: there is no false credit to withhold"


def summary(diagnostics: pa.Table) -> Table:
    """Rewards, leakage and preservation, a row for each aggregation."""
    figures = by_key(diagnostics)
    rows = list[Cells]()
    for name in _measured(figures):
        mean = _of(figures, "reward_mean", name, "response")
        sd = _of(figures, "reward_sd", name, "response")
        cells = [count(mean["n"]), count(mean["unscored"]), Cell(mean["value"]), Cell(sd["value"])]
        for metric in DIGITS:
            edge = _of(figures, metric, name)
            child = _of(figures, metric, name, "child")
            cells += [_cell(edge), count(edge["n"]), Cell(child["value"], digits=DIGITS[metric])]
        rows.append((COMPARED[name], *cells))
    return Table("diagnostics", "Rewards, and what they pay without licence", HEADER, rows)


def by_parents(figures: Figures) -> Table:
    """Leakage and preservation per edge by the number of parents that a child has, a row for each and aggregation."""
    rows = list[Cells]()
    for name in PARENTS:
        for aggregation in _measured(figures):
            leakage, preservation = (figures.get((metric, aggregation, "edge", name)) for metric in DIGITS)
            if leakage and preservation and leakage["n"] + preservation["n"]:
                cells = [_cell(leakage), count(leakage["n"]), _cell(preservation), count(preservation["n"])]
                rows.append((name, COMPARED[aggregation], *cells))
    header = ("the child has", "aggregation", "leakage", "violated edges", "preservation", "satisfied edges")
    note = (
        "With one parent that is satisfied gates by its own score keep all of the child by construction, and GEAR is "
        "equal to them where the parent and all that it depends on are certain. GEAR keeps more than gates only where "
        "another parent fails."
    )
    return Table("parents", "By the number of parents", header, rows, (note,))


def other_table(figures: Figures) -> Table:
    """Every other number about all dependencies or responses."""
    shown = {*DIGITS, "leakage_reduction", "reward_mean", "reward_sd"}
    rows = list[Cells]()
    for row in figures.values():
        if row["slice"] == "all" and (row["metric"] not in shown or row["aggregation"] not in COMPARED):
            name = COMPARED.get(row["aggregation"], say.worded(row["aggregation"]))
            note = say.visible(row["note"] or "")
            rows.append((say.worded(row["metric"]), name, row["per"], _cell(row, 5), count(row["n"]), note))
    return Table("other", "Other numbers", ("What", "of", "per", "value [95%]", "n", "note"), rows)


def _measured(figures: Figures) -> list[str]:
    """What was measured, in the order of `COMPARED`."""
    measured = {aggregation for _, aggregation, *_ in figures}
    return [name for name in COMPARED if name in measured]


def _of(figures: Figures, metric: str, aggregation: str, per: str = "edge") -> Row:
    """The row of one number; nothing is known of one that was not measured."""
    unknown = {"metric": metric, "n": 0, "unscored": 0} | dict.fromkeys(("value", "low", "high", "clusters", "note"))
    return figures.get((metric, aggregation, per, "all"), unknown)


def _cell(row: Row, digits: int | None = None) -> Cell:
    """A number with its interval."""
    digits = digits or DIGITS[row["metric"]]
    return Cell(row["value"], row["low"], row["high"], digits=digits, ends="interval", clusters=row["clusters"])


def _leakage(view: RewardView, figures: Figures) -> Section:
    gear, hard = (_of(figures, "preservation", name)["value"] for name in ("gear", "hard_verdict"))
    title = "No dependency is satisfied in any response"
    if gear is not None:
        title = f"Where the parent is there, GEAR keeps {say.share(gear)} of a criterion"
        title += f", hard gating {say.share(hard)}" if hard is not None else ""
    bars = {metric: list[Bar]() for metric in DIGITS}
    notes = []
    for name in _measured(figures):
        for metric, shown in bars.items():
            row = _of(figures, metric, name)
            if row["value"] is not None:
                shown.append(Bar(COMPARED[name], row["value"], row["low"], row["high"]))
        if note := _of(figures, "leakage", name)["note"]:
            notes.append(f"{COMPARED[name]}: {say.visible(note)}")
    panels = [Panel(f"{metric.capitalize()} per edge", shown) for metric, shown in bars.items() if shown]
    return Section(
        "leakage",
        "False credit: what is paid without its condition, and what is lost with it?",
        title,
        drawings=[Drawing(panel.title, bar_chart(panel)) for panel in panels],
        tables=(summary(view.diagnostics), by_parents(figures)),
        notes=(*notes, *NOTES),
    )


# Rewards and single responses.


def side_by_side(rewards: pa.Table) -> pd.DataFrame:
    """One row per rater, response and sample that flat aggregation and GEAR both reward: KEY, rubric_id, flat, gear."""
    frame = rewards.select([*KEY, "rubric_id", "aggregation", "reward"]).to_pandas()
    wide = frame.pivot(index=[*KEY, "rubric_id"], columns="aggregation", values="reward")
    both: pd.DataFrame = wide.reindex(columns=["flat", "gear"]).dropna().reset_index()
    return both


def _rewards(both: pd.DataFrame) -> Section:
    if both.empty:
        return Section("rewards", "Rewards: what do the dependencies change?", "No response has a reward both ways")
    less, more = (float(np.mean(sign * (both["gear"] - both["flat"]) > 1e-9)) for sign in (-1, 1))
    title = f"GEAR rewards {say.share(less)} of the responses less than flat aggregation does"
    title += f" and {say.share(more)} more" if more else ""
    drawn = f"Each response both ways, n = {say.count(len(both))}; dotted: nothing changes"
    return Section(
        "rewards",
        "Rewards: what do the dependencies change?",
        title,
        drawings=[Drawing(drawn, scatter(both, title))],
        notes=("More than flat: a penalty counts less, since its condition is missing.",) if more else (),
    )


def scatter(both: pd.DataFrame, words: str) -> Markup:
    """Flat rewards across, GEAR's upwards, at least one; the size of a dot says how many responses it stands for."""
    flat = both["flat"].to_numpy()
    gear = both["gear"].to_numpy()
    on = axis([*flat.tolist(), *gear.tolist()], left=7, right=98)
    plot = square(on)
    marks = [*plot.frame("flat reward; upwards: GEAR"), plot.diagonal()]
    counts, xs, ys = np.histogram2d(flat, gear, BINS, ((on.low, on.high), (on.low, on.high)))
    for i, j in np.argwhere(counts):
        radius = max(1.2, 5.5 * float(np.sqrt(counts[i, j] / counts.max())))
        (place,) = plot.places([((xs[i] + xs[i + 1]) / 2, (ys[j] + ys[j + 1]) / 2)])
        marks.append(draw.circle(*place, radius, "mf"))
    return plot.svg(marks, f"GEAR's reward by the flat one, n = {say.count(len(flat))}; {words}")


def earned(view: RewardView, row: Row) -> EarnedCredit:
    """What this rater's judgments of this response earned: a criterion's own score is its share under flat
    aggregation. row: with the columns KEY."""
    same = view.rewards
    for name in KEY:
        same = same.filter(pc.field(name) == row[name])
    marginals = {reward["aggregation"]: dict(reward["marginals"]) for reward in same.to_pylist()}
    return EarnedCredit(marginals.get("flat", {}), marginals.get("gear", {}), view.settings.threshold)


def _pictures(view: RewardView, both: pd.DataFrame) -> Section | None:
    drawings = []
    for rubric in drawn_rubrics(view):
        over = None
        note = "No response has a reward under this rubric."
        mine = both[both["rubric_id"] == rubric]
        if len(mine):
            row = mine.iloc[int((mine["flat"] - mine["gear"]).abs().to_numpy().argmax())].to_dict()
            over = earned(view, row)
            rewards = f"flat {say.number(row['flat'])}, GEAR {say.number(row['gear'])}"
            note = f"Response {say.name(row['response_id'])}: {rewards}."
        drawn = picture(rows_of(view.graph_nodes, rubric), rows_of(view.graph_edges, rubric), over)
        drawings.append(Drawing(say.name(rubric), drawn, note))
    if not drawings:
        return None
    title = f"{say.plural(len(drawings), 'graph')}, each with the response whose reward it changes most"
    return Section("pictures", "Pictures: what does a response lose, and why?", title, LOOK, pictures=drawings)


def drawn_rubrics(view: RewardView) -> list[str]:
    """The rewarded rubrics that flat aggregation pays most for unlicensed criteria, then those with the most
    dependencies; none without dependencies."""
    rewarded = set(view.rewards["rubric_id"].unique().to_pylist())
    leaked = view.edge_cases.filter(PAID).select(["rubric_id", "leaked"]).to_pandas().groupby("rubric_id").sum()
    paid = leaked["leaked"].to_dict()
    rows = [row for row in view.graphs.to_pylist() if row["kept"] and row["rubric_id"] in rewarded]
    rows.sort(key=lambda row: (-paid.get(row["rubric_id"], 0.0), -row["kept"], row["rubric_id"]))
    return [row["rubric_id"] for row in rows[:PICTURES]]


def worst(edge_cases: pa.Table) -> list[Row]:
    """The violated dependencies that flat aggregation pays most for: one of a response and of a pair of criteria."""
    paid = edge_cases.filter(PAID)
    if not len(paid):
        return []
    ties = [(name, "ascending") for name in ("response_id", "rater_id", "sample", "child", "parent")]
    order = pc.select_k_unstable(paid, min(LOOKED_AT, len(paid)), [("leaked", "descending"), *ties])
    largest = paid.take(order).to_pylist()
    shown: set[tuple[str, ...]] = set()
    cases = []
    for row in largest:
        pair = (row["rubric_id"], row["parent"], row["child"])
        response = (row["response_id"],)
        if pair not in shown and response not in shown:
            shown |= {pair, response}
            cases.append(row)
    return cases[:CASES]


def _cases(view: RewardView) -> Section:
    cases = [_case(view, row) for row in worst(view.edge_cases)]
    title = f"{say.plural(len(cases), 'dependency', 'dependencies')} that a response does not keep" if cases else "None"
    return Section(
        "cases",
        "Worst cases: where did flat aggregation pay most?",
        title,
        "One of each response and of each pair of criteria. A case is as right as the judge and the graph are: look "
        "at both.",
        body=body(TEMPLATE, "cases", cases),
    )


def _case(view: RewardView, row: Row) -> Record:
    """One violated dependency, a row of `edge_cases` under flat aggregation, as the template shows it."""
    nodes = {node["criterion_id"]: node for node in rows_of(view.graph_nodes, row["rubric_id"])}
    credit = earned(view, row)
    parts = []
    for name, what in ((row["parent"], "missing"), (row["child"], "and yet paid")):
        node = nodes[name]
        title = f"{say.name(name)} ({signed(node['weight'])}, {node['role']})"
        text = say.visible(say.cut(node["text"], CRITERION_LENGTH))
        parts.append({"name": title, "what": what, "text": text, "earned": credit.words(name)})
    paid = f"Flat aggregation counts {say.share(row['leaked'])} of the rubric's credit for it"
    marginal = credit.marginal.get(row["child"])
    local = credit.local.get(row["child"])
    if marginal is not None and local:
        paid += f", GEAR {say.share(row['leaked'] * marginal / local)}"
    kind = "credit" if nodes[row["child"]]["weight"] > 0 else "penalty"
    return {
        "title": f"Unlicensed {kind}, {RELATIONS[row['relation']]}",
        "response": say.name(row["response_id"]),
        "question": say.visible(say.cut(view.questions[row["item_id"]], QUESTION_LENGTH)),
        "text": say.visible(say.cut(view.texts[row["response_id"]], TEXT_LENGTH)),
        "parts": parts,
        "paid": paid,
    }


# The graphs, and what the rewards rest on.

PUBLISHED: Mapping[str, float] = {
    "criteria": 11.48,
    "dependencies": 10.92,
    "invalid proposals": 0.42,
}
"""GEAR, Tables 3 and 14: HealthBench, mean of a rubric."""


def statistics(graphs: list[Row]) -> Table:
    """Means over these rows of `graphs`, next to the published ones."""
    columns = {
        "criteria": "criteria",
        "dependencies": "kept",
        "longest path": "depth",
        "invalid proposals": "invalid",
        "pairs that the roles allow": "candidates",
        "orders without a usable reply": "failed",
        "criteria without a given role": "roles_missing",
    }
    rows = []
    for words, name in columns.items() if graphs else ():
        rows.append((words, Cell(fmean(row[name] for row in graphs), digits=2), Cell(PUBLISHED.get(words), digits=2)))
    note = "published: HealthBench, 5,000 rubrics, by its authors' annotator; a path counts dependencies"
    return Table("statistics", "The graphs", ("Mean of a rubric", "here", "published"), rows, (note,))


def _graphs(view: RewardView) -> Section:
    graphs = view.graphs.to_pylist()
    empty = sum(row["kept"] == 0 for row in graphs)
    edges = say.plural(sum(row["kept"] for row in graphs), "dependency", "dependencies")
    title = f"{edges} in {say.plural(len(graphs), 'rubric')}"
    title += f"; without any, and rewarded flat: {say.count(empty)}" if empty else ""
    lead = "Made from question and rubric alone, once, before any response was looked at."
    said = without_graph(view.graphs, view.graph_edges)
    notes = [f"{said}. What is called false credit here may lack most of it."] if said else []
    heading = "Graphs: which criterion licenses which?"
    return Section("graphs", heading, title, lead, tables=(statistics(graphs),), notes=notes)


def _facts(view: RewardView) -> Iterator[tuple[str, str]]:
    """By whom, from what and how the rewards were made: name and value."""
    settings = view.settings
    gear = view.rewards.filter(pc.field("aggregation") == "gear")
    yield "run", view.run_id
    yield "judged by", ", ".join(map(say.name, sorted(gear["rater_id"].unique().to_pylist()))) or "nobody"
    yield "local scores", ", ".join(f"by {word}" for word in sorted(gear["decided_by"].unique().to_pylist()))
    yield "graphs by", ", ".join(map(say.name, sorted(view.graphs["annotator"].unique().to_pylist())))
    yield "inference", settings.inference
    factors = settings.retention.model_dump()
    yield "retention factors before η", ", ".join(f"{RELATIONS[name]} {say.level(factors[name])}" for name in RELATIONS)
    yield "suppression strength η", say.level(settings.eta)
    yield "threshold", say.level(settings.threshold)
    intervals = f"95%, {say.count(settings.draws)} draws over items, seed {settings.seed}"
    yield "intervals", "; ".join((intervals, *cautions(view.diagnostics["clusters"].to_pylist())))


def _caveats(view: RewardView) -> list[str]:
    """What to bear in mind."""
    caveats = []
    scores = view.rewards.filter(pc.field("aggregation") == "flat")["marginals"].combine_chunks().items
    if len(scores) and pc.all(pc.is_in(scores, pa.array([0.0, 1.0]))).as_py():
        caveats.append(
            "Every verdict is yes or no: hard gating then leaks nothing by construction, and GEAR what its retention "
            "factors leave."
        )
    if view.settings.edge_retention:
        caveats.append("Some dependencies have a factor of their own in place of that of their kind.")
    if view.settings.learn:
        caveats.append("Factors learned from people's scores are in table retentions; these rewards do not use them.")
    return [*caveats, "Leakage and preservation are about the graph's dependencies: not whether a reward is right."]

"""The diagnostics as people read them, and single responses that were paid most for unlicensed criteria: what the
reward report is made from.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from operator import itemgetter
from typing import Literal

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from rubricflow.tasks.core.contracts.graph import RELATIONS
from rubricflow.tasks.core.contracts.settings.reward import Reward
from rubricflow.tasks.core.contracts.tables.reward import AGGREGATIONS
from rubricflow.tasks.core.display import say
from rubricflow.tasks.core.display.table import Bar, Cell, Cells, Panel, Row, Table, count
from rubricflow.tasks.rewards.report.reward.picture import EarnedCredit, signed

By = Literal["response", "edge", "child", "graph"]
BY: tuple[By, ...] = ("edge", "child")
Metric = Literal["leakage", "preservation"]
METRICS: tuple[Metric, ...] = ("leakage", "preservation")
COMPARED: Mapping[str, str] = {**AGGREGATIONS, "random_graph": "random graph", "untyped": "untyped graph"}
"""Aggregations and ablations in words."""
SLICES: Mapping[str, str] = {
    "all": "all dependencies",
    "prerequisite": "prerequisites",
    **{relation: f"{words}s" for relation, words in RELATIONS.items()},
}
PUBLISHED: Mapping[str, Mapping[str, float]] = {
    "leakage": {"flat": 0.0922, "hard_verdict": 0.0003, "gear": 0.0032},
    "preservation": {"flat": 1.0, "hard_verdict": 0.1877, "gear": 0.2706},
}
"""GEAR, Table 2: HealthBench, its authors' graphs, judge and policy; per edge."""
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
"""Columns of `summary_rows`."""


class DiagnosticFigures:
    """The rows of `diagnostics`, by what they measure."""

    def __init__(self, table: pa.Table) -> None:
        key = itemgetter("metric", "aggregation", "per", "slice")
        self._rows: dict[tuple[str, ...], Row] = {key(row): row for row in table.to_pylist()}

    @property
    def aggregations(self) -> list[str]:
        """Those that were measured, in the order of `COMPARED`."""
        measured = {key[1] for key in self._rows}
        return [name for name in COMPARED if name in measured]

    def row(self, metric: str, aggregation: str, by: By, slice_: str = "all") -> Row | None:
        """The row of one number."""
        return self._rows.get((metric, aggregation, by, slice_))

    def value(self, metric: str, aggregation: str, by: By = "edge", slice_: str = "all") -> float | None:
        """One number; None where it is not known."""
        row = self.row(metric, aggregation, by, slice_)
        return row["value"] if row else None

    def cell(self, metric: str, aggregation: str, by: By, slice_: str = "all") -> Cell:
        """One number with its interval."""
        row = self.row(metric, aggregation, by, slice_) or dict.fromkeys(("value", "low", "high", "clusters"))
        return _cell(row, DIGITS.get(metric, 3))

    def cases(self, metric: str, aggregation: str, by: By, slice_: str = "all") -> Cell:
        """How many cases a number is the mean of."""
        row = self.row(metric, aggregation, by, slice_)
        return count(row["n"] if row else 0)

    def others(self) -> Iterator[Row]:
        """What no other table of the page shows."""
        shown = {"leakage", "leakage_reduction", "preservation", "reward_mean", "reward_sd"}
        return (row for row in self._rows.values() if row["metric"] not in shown or row["aggregation"] not in COMPARED)


def _cell(row: Row, digits: int) -> Cell:
    return Cell(row["value"], row["low"], row["high"], digits=digits, ends="interval", clusters=row["clusters"])


def sentence(diagnostics: DiagnosticFigures) -> str:
    """The takeaway of the whole report: leakage under GEAR over that under flat aggregation, on the same cases."""
    flat, gear = diagnostics.value("leakage", "flat"), diagnostics.value("leakage", "gear")
    if flat and gear is not None:
        return f"GEAR pays {say.share(gear / flat)} of the credit that flat aggregation pays for unlicensed criteria"
    if flat is None:
        return "No response has a criterion without the one that licenses it: there is no false credit to withhold"
    return "Flat aggregation pays nothing for unlicensed criteria: there is no false credit to withhold"


def preserved(diagnostics: DiagnosticFigures) -> str:
    """What suppressing costs where nothing is wrong."""
    gear, hard = (diagnostics.value("preservation", name) for name in ("gear", "hard_verdict"))
    if gear is None:
        return "No dependency is satisfied in any response"
    sentence = f"Where the parent is there, GEAR keeps {say.share(gear)} of a criterion"
    return sentence if hard is None else f"{sentence}, hard gating {say.share(hard)}"


def reward_table(diagnostics: DiagnosticFigures) -> Table:
    """Mean and spread of the rewards of each aggregation."""
    rows = list[Cells]()
    for name in diagnostics.aggregations:
        mean = diagnostics.row("reward_mean", name, "response")
        if mean:
            cells = (diagnostics.cell(metric, name, "response") for metric in ("reward_mean", "reward_sd"))
            rows.append((COMPARED[name], count(mean["n"]), count(mean["unscored"]), *cells))
    header = ("Aggregation", "rewarded", "without reward", "mean [95%]", "standard deviation [95%]")
    return Table("rewards", "Rewards by aggregation", header, rows)


def metric_table(diagnostics: DiagnosticFigures, metric: Metric) -> Table:
    """One diagnostic of each aggregation, per edge and per child, next to the published one."""
    rows = list[Cells]()
    for name in diagnostics.aggregations:
        cells = list[Cell]()
        for by in BY:
            cells += [diagnostics.cell(metric, name, by), diagnostics.cases(metric, name, by)]
        if metric == "leakage":
            cells.append(diagnostics.cell("leakage_reduction", name, "edge"))
        rows.append((COMPARED[name], *cells, Cell(PUBLISHED[metric].get(name), digits=4)))
    less = ("less than flat, as a share",) if metric == "leakage" else ()
    header = ("Aggregation", "per edge [95%]", "n", "per child [95%]", "n", *less, "published, per edge")
    title = {"leakage": "Leakage: lower is better", "preservation": "Preservation: higher is better"}[metric]
    return Table(metric, title, header, rows)


def relation_table(diagnostics: DiagnosticFigures, metric: Metric) -> Table:
    """One diagnostic by kind of dependency, activations apart."""
    names = [name for name in diagnostics.aggregations if name not in ("random_graph", "untyped")]
    rows = list[Cells]()
    for key, words in SLICES.items():
        if any(diagnostics.row(metric, name, "edge", key) for name in names):
            cells = [diagnostics.cell(metric, name, "edge", key) for name in names]
            rows.append((words, diagnostics.cases(metric, "flat", "edge", key), *cells))
    header = ("Dependency", "n", *(COMPARED[name] for name in names))
    return Table(f"{metric}-relations", f"{metric.capitalize()} by kind of dependency, per edge", header, rows)


def panel(diagnostics: DiagnosticFigures, metric: Metric) -> Panel:
    """One diagnostic as bars."""
    bars = []
    for name in diagnostics.aggregations:
        cell = diagnostics.cell(metric, name, "edge")
        if cell.value is not None:
            bars.append(Bar(COMPARED[name], cell.value, cell.low, cell.high))
    return Panel(f"{metric.capitalize()} per edge; n is in the table below", bars)


def other_table(diagnostics: DiagnosticFigures) -> Table:
    """Every other number, as it was written."""
    rows = []
    for row in diagnostics.others():
        metric, part = say.worded(row["metric"]), f"{row['per']}, {say.worded(row['slice'])}"
        aggregation = COMPARED.get(row["aggregation"], say.worded(row["aggregation"]))
        note = say.visible(row["note"] or "")
        rows.append((metric, aggregation, part, _cell(row, 5), count(row["n"]), note))
    return Table("other", "Other numbers", ("What", "of", "per", "value [95%]", "n", "note"), rows)


def summary_rows(table: pa.Table) -> list[tuple[str, ...]]:
    """Rows of text under `HEADER`, one per aggregation; '–' stands for a number that is not known. table: of
    diagnostics."""
    diagnostics = DiagnosticFigures(table)
    rows = []
    for name in diagnostics.aggregations:
        mean = diagnostics.row("reward_mean", name, "response") or {"n": 0, "unscored": 0}
        cells = [count(mean["n"]), count(mean["unscored"])]
        for metric in ("reward_mean", "reward_sd"):
            cells.append(diagnostics.cell(metric, name, "response")._replace(ends="none"))
        for metric in METRICS:
            cells += [diagnostics.cell(metric, name, "edge"), diagnostics.cases(metric, name, "edge")]
            cells.append(diagnostics.cell(metric, name, "child"))
        rows.append((COMPARED[name], *map(str, cells)))
    return rows


def leakiest(diagnostics: DiagnosticFigures) -> str:
    """Under which kind of dependency GEAR still pays most."""
    kinds = {SLICES[relation]: diagnostics.value("leakage", "gear", "edge", relation) for relation in RELATIONS}
    defined = {words: value for words, value in kinds.items() if value is not None}
    if not defined:
        return "No dependency is violated in any response"
    most = max(defined, key=lambda words: defined[words])
    return f"What GEAR still pays, it pays most under {most}: {say.number(defined[most], DIGITS['leakage'])} per case"


EVERY_REWARD = ("aggregation", "reward", "low", "unscored")
"""What the report shows of the rewards of every aggregation."""


@dataclass(frozen=True)
class RewardView:
    """What the report is made from: Arrow tables with the columns of tasks/core/contracts/tables."""

    study: str
    run_id: str
    settings: Reward
    rewards: pa.Table
    """Of flat aggregation and GEAR."""
    every_reward: pa.Table
    """Of all aggregations; columns EVERY_REWARD."""
    retention: Mapping[str, float]
    """Relation → the factor that GEAR's rows say they were made with; empty without such rows."""
    edge_cases: pa.Table
    diagnostics: pa.Table
    graphs: pa.Table
    graph_nodes: pa.Table
    graph_edges: pa.Table
    retentions: pa.Table
    """Empty where nothing was learned."""
    questions: Mapping[str, str]
    """item_id → question, at least of the responses that `needs_texts` names."""
    texts: Mapping[str, str]
    """response_id → text, of the same."""


CASES, LOOKED_AT = 8, 2000
"""Cases shown, and how many of the largest they are chosen from."""
QUESTION_LENGTH, TEXT_LENGTH, CRITERION_LENGTH = 320, 800, 320
"""Characters that are shown."""
KEY = ["response_id", "rater_id", "sample"]


@dataclass(frozen=True)
class DependencyEnd:
    """One end of a dependency in a case."""

    name: str
    text: str
    earned: str


@dataclass(frozen=True)
class FalseCreditCase:
    """False credit that one response was paid."""

    title: str
    response: str
    question: str
    text: str
    parent: DependencyEnd
    child: DependencyEnd
    paid: str


PAID = (pc.field("aggregation") == "flat") & (pc.field("leaked") > 0)
"""Which dependency cases the report is about."""


def needs_texts(edge_cases: pa.Table) -> list[str]:
    """The responses whose text and question the page shows."""
    return [row["response_id"] for row in worst(edge_cases)]


def worst(edge_cases: pa.Table) -> list[Row]:
    """The violated dependencies that flat aggregation pays most for: one of a response and of a pair of criteria."""
    paid = edge_cases.filter(PAID)
    if not len(paid):
        return []
    ties = [(name, "ascending") for name in ("response_id", "rater_id", "sample", "child", "parent")]
    order = pc.select_k_unstable(paid, min(LOOKED_AT, len(paid)), [("leaked", "descending"), *ties])
    largest = paid.take(order).to_pylist()
    shown: set[tuple[str, ...]] = set()
    cases: list[Row] = []
    for row in largest:
        pair, response = (row["rubric_id"], row["parent"], row["child"]), (row["response_id"],)
        if pair not in shown and response not in shown:
            shown |= {pair, response}
            cases.append(row)
    return cases[:CASES]


def leaked_by_rubric(edge_cases: pa.Table) -> dict[str, float]:
    """Rubric → what flat aggregation paid for unlicensed criteria in all; only those with some."""
    paid = edge_cases.filter(PAID)
    summed = paid.group_by("rubric_id").aggregate([("leaked", "sum")])
    return dict(zip(summed["rubric_id"].to_pylist(), summed["leaked_sum"].to_pylist(), strict=True))


def side_by_side(rewards: pa.Table) -> pd.DataFrame:
    """One row per rater, response and sample that flat aggregation and GEAR both reward: KEY, rubric_id, flat, gear."""
    frame = rewards.select([*KEY, "rubric_id", "aggregation", "reward"]).to_pandas().dropna(subset="reward")
    flat, gear = (frame[frame["aggregation"] == name].drop(columns="aggregation") for name in ("flat", "gear"))
    both: pd.DataFrame = flat.merge(gear, on=[*KEY, "rubric_id"], validate="one_to_one")
    both.columns = [*KEY, "rubric_id", "flat", "gear"]
    return both


def loser(both: pd.DataFrame, rubric_id: str) -> Row | None:
    """The row of the response under a rubric whose reward changes most; None where there is none."""
    under_rubric = both[both["rubric_id"] == rubric_id]
    if under_rubric.empty:
        return None
    most = int((under_rubric["flat"] - under_rubric["gear"]).abs().to_numpy().argmax())
    return {str(name): value for name, value in under_rubric.iloc[most].items()}


def earned(rewards: pa.Table, row: Row, threshold: float) -> EarnedCredit:
    """What this rater's judgments of this response earned: a criterion's own score is its share under flat
    aggregation."""
    same = rewards
    for name in KEY:
        same = same.filter(pc.field(name) == row[name])
    rows = same.select(["aggregation", "marginals"]).to_pylist()
    marginals = {reward["aggregation"]: dict(reward["marginals"]) for reward in rows}
    return EarnedCredit(marginals.get("flat", {}), marginals.get("gear", {}), threshold)


def case(row: Row, credit: EarnedCredit, nodes: Mapping[str, Row], question: str, text: str) -> FalseCreditCase:
    """One violated dependency, a row of `edge_cases` under flat aggregation. nodes: criterion → row of
    `graph_nodes`."""
    child = nodes[row["child"]]
    kind = "credit" if child["weight"] > 0 else "penalty"
    marginal, local = credit.marginal.get(row["child"]), credit.local.get(row["child"])
    paid = f"Flat aggregation counts {say.share(row['leaked'])} of the rubric's credit for it"
    if marginal is not None and local:
        paid += f", GEAR {say.share(row['leaked'] * marginal / local)}"
    return FalseCreditCase(
        title=f"Unlicensed {kind}, {RELATIONS[row['relation']]}",
        response=say.name(row["response_id"]),
        question=say.visible(say.cut(question, QUESTION_LENGTH)),
        text=say.visible(say.cut(text, TEXT_LENGTH)),
        parent=_part(nodes[row["parent"]], credit),
        child=_part(child, credit),
        paid=paid,
    )


def _part(node: Row, credit: EarnedCredit) -> DependencyEnd:
    local, marginal = credit.local.get(node["criterion_id"]), credit.marginal.get(node["criterion_id"])
    scores = say.number(local) if local is not None else say.NOT_KNOWN
    if local is not None and marginal is not None and abs(local - marginal) >= 0.005:
        scores += f" → {say.number(marginal)}"
    name = f"{say.name(node['criterion_id'])} ({signed(node['weight'])}, {node['role']})"
    return DependencyEnd(name, say.visible(say.cut(node["text"], CRITERION_LENGTH)), scores)

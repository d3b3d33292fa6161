"""Single responses: those that were paid most for unlicensed criteria, and what one earned by criterion."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from rubricflow.tasks.core.contracts.graph import RELATIONS
from rubricflow.tasks.core.display import say
from rubricflow.tasks.rewards.report.reward.layout import EarnedCredit, Row, signed

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
    flat, gear = _rewards_of(frame, "flat"), _rewards_of(frame, "gear")
    both: pd.DataFrame = flat.merge(gear, on=[*KEY, "rubric_id"], validate="one_to_one")
    return both


def _rewards_of(frame: pd.DataFrame, aggregation: str) -> pd.DataFrame:
    rows = frame[frame["aggregation"] == aggregation]
    return rows.drop(columns="aggregation").rename(columns={"reward": aggregation})


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
    same = rewards.filter(
        (pc.field("response_id") == row["response_id"])
        & (pc.field("rater_id") == row["rater_id"])
        & (pc.field("sample") == int(row["sample"]))
    )
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

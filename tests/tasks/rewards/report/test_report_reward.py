"""The reward report: its figures are those of the tables, its takeaways follow from them, and all text is text."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from builders.rewards_scene import case_rows, figure, graph_row, made, reward_rows
from builders.seen import Seen

from rubricflow.tasks.core.contracts.schema import conform
from rubricflow.tasks.core.contracts.tables.data import Items, Responses
from rubricflow.tasks.core.contracts.tables.reward import Diagnostics, EdgeCases, Rewards
from rubricflow.tasks.core.contracts.tables.rubrics import GraphEdges, GraphNodes, RubricGraphs
from rubricflow.tasks.core.store.catalogue import ask
from rubricflow.tasks.core.store.warehouse import Run, Warehouse
from rubricflow.tasks.rewards.report.rewards import (
    by_key,
    drawn_rubrics,
    other_table,
    page,
    side_by_side,
    statistics,
    summary,
    takeaway,
    worst,
)

EVIL = '</blockquote></style><script>alert(1)</script><img src=x onerror="1"> {{ 7*7 }} \u202e'


def test_the_takeaway_is_what_gear_pays_of_what_flat_pays() -> None:
    seen = Seen(page(made()))
    assert "GEAR pays 30% of the credit that flat aggregation pays for unlicensed criteria" in seen.words
    assert "8 responses under 2 rubrics rewarded. A criterion is unlicensed where a response has it " in (
        " ".join(seen.words) + " "
    )


@pytest.mark.parametrize("leakage", [{"flat": None, "gear": None}, {"flat": 0.0, "gear": 0.0}, {}])
def test_the_takeaway_where_nothing_leaks(leakage: dict[str, float | None]) -> None:
    rows = [figure("leakage", name, value) for name, value in leakage.items()]
    assert "there is no false credit to withhold" in takeaway(by_key(conform(Diagnostics, rows)))


def test_the_table_of_aggregations_has_the_numbers_of_the_diagnostics() -> None:
    table = summary(made().diagnostics)
    flat, gear = (dict(zip(table.header, map(str, row), strict=True)) for row in table.rows)
    assert (gear["aggregation"], gear["rewarded"], gear["without reward"], gear["mean"]) == ("GEAR", "6", "2", "0.400")
    assert gear["leakage per edge"] == "0.1000 [0.0500, 0.1500]"
    assert (flat["violated edges"], flat["satisfied edges"]) == ("4", "2")


def test_other_numbers_are_those_that_the_table_lacks() -> None:
    rows = other_table(by_key(made().diagnostics)).rows
    assert [(row[0], str(row[3]), row[5]) for row in rows] == [("reward mae", "0.00125", "against exact inference")]


def test_it_says_by_what_the_rewards_were_made() -> None:
    seen = Seen(page(made()))
    assert seen.after("retention factors before η", 1) == [
        "weak prerequisite 0.6, strong prerequisite 0.2, activation 0"
    ]
    assert seen.after("suppression strength η", 1) == ["1"]
    assert seen.after("judged by", 1) == ["\u2068judge\u2069"]


@pytest.mark.parametrize(("own", "said"), [(1.0, True), (0.75, False)])
def test_it_says_what_yes_and_no_verdicts_imply(own: float, said: bool) -> None:
    rows = reward_rows("a")
    rows[0] |= {"marginals": rows[0]["marginals"] | {"P2": own}}
    html = page(made(rubrics=("a",), rewards=conform(Rewards, rows)))
    assert ("Every verdict is yes or no" in html) == said


@pytest.mark.parametrize(("annotator", "said"), [("stated", True), ("authored", False), ("model", False)])
def test_it_says_of_which_rubrics_nobody_looked_for_dependencies(annotator: str, said: bool) -> None:
    view = made(graphs=conform(RubricGraphs, [graph_row("a", 2, annotator=annotator), graph_row("b", 2)]))
    assert ("1 of 2 rubrics" in page(view)) == said


def test_the_worst_cases_are_those_that_flat_pays_most_for_one_of_each_pair_and_response() -> None:
    rows = case_rows("a") + case_rows("b")
    rows[0] |= {"leaked": 0.2}
    found = worst(conform(EdgeCases, rows))
    assert [(row["response_id"], row["child"]) for row in found] == [
        ("a-r3", "P3"),
        ("b-r1", "P2"),
        ("b-r3", "P3"),
        ("a-r1", "P2"),
    ]
    twice = conform(EdgeCases, [*rows, rows[0] | {"response_id": "a-r9", "leaked": 0.9}])
    assert [row["response_id"] for row in worst(twice)] == ["a-r9", "a-r3", "b-r1", "b-r3"]


def test_the_response_that_changes_most_is_laid_over_its_graph() -> None:
    view = made(rubrics=("a",))
    both = side_by_side(view.rewards)
    assert both["response_id"].tolist() == ["a-r1", "a-r2", "a-r3"]
    assert both["gear"].tolist() == pytest.approx([0.2, 1.0, 0.0])
    assert "Response \u2068a-r3\u2069: flat −0.33, GEAR 0.00." in page(view)


def test_graphs_are_drawn_by_the_credit_that_flat_pays_and_then_by_size() -> None:
    rows = [graph_row(name, kept) for name, kept in (("a", 1), ("b", 2), ("c", 5), ("d", 0))]
    cases = conform(EdgeCases, case_rows("a"))
    view = made(rubrics=("a", "b", "c", "d"), graphs=conform(RubricGraphs, rows), edge_cases=cases)
    assert drawn_rubrics(view) == ["a", "c", "b"]
    assert drawn_rubrics(made(rubrics=("a",), graphs=view.graphs, edge_cases=cases)) == ["a"]


def test_the_statistics_of_the_graphs_are_means_over_rubrics() -> None:
    rows = [graph_row("a", 4, criteria=5, invalid=1), graph_row("b", 0, criteria=2)]
    table = {row[0]: (str(row[1]), str(row[2])) for row in statistics(rows).rows}
    assert table["criteria"] == ("3.50", "11.48")
    assert table["dependencies"] == ("2.00", "10.92")
    assert table["invalid proposals"] == ("0.50", "0.42")


def test_what_people_wrote_is_text() -> None:
    html = page(made(EVIL))
    seen = Seen(html)
    assert not {"img", "script", "iframe", "link"} & set(seen.tags)
    assert seen.tags.count("style") == 1
    assert "49" not in "".join(word for word in seen.words if "7*7" in word)
    assert "\u202e" not in html


@pytest.mark.parametrize(
    "empty", [("graph_edges", "edge_cases"), ("rewards", "edge_cases", "diagnostics"), ("edge_cases", "diagnostics")]
)
def test_a_run_that_lacks_something_has_a_page(empty: tuple[str, ...]) -> None:
    view = made()
    bare: dict[str, pa.Table] = {name: getattr(view, name).slice(0, 0) for name in empty}
    assert "</html>" in page(replace(view, **bare))


@pytest.fixture
def run(tmp_path: Path) -> Run:
    view, found = made(), Warehouse.open(tmp_path).run("one")
    responses = [
        {"response_id": f"a-{name}", "item_id": "i-a", "text": "", "split": "test", "groups": groups}
        for name, groups in (("r1", {"by": "m1"}), ("r2", {"by": "m1"}), ("r3", {"by": "m2"}), ("r4", {}))
    ]
    item = {"item_id": "i-a", "question": "", "key_elements": [], "type": "t", "rubric_id": "a"}
    found.commit("ingest", "all", {Items: [item], Responses: responses})
    found.commit("graph", "all", {GraphNodes: view.graph_nodes, GraphEdges: view.graph_edges})
    found.commit("reward", "all", {Rewards: view.rewards, EdgeCases: view.edge_cases})
    return found


def test_a_question_says_where_false_credit_is_paid(run: Run) -> None:
    answer = ask(run, "false_credit")
    rows = [dict(zip(answer.columns, row, strict=True)) for row in answer.fetchall()]
    assert [(row["rubric_id"], row["child"], row["cases"]) for row in rows] == [
        (rubric, child, 1) for rubric in ("a", "b") for child in ("P2", "P3")
    ]
    assert (rows[0]["flat"], rows[0]["gear"], rows[0]["hard_local"]) == (pytest.approx(1 / 3), pytest.approx(0.2), None)
    assert rows[0]["child_text"] == "Says why it leaves."


def test_a_question_says_which_edges_are_in_the_graphs_and_why_others_are_not(run: Run) -> None:
    answer = ask(run, "graph_edges")
    rows = [dict(zip(answer.columns, row, strict=True)) for row in answer.fetchall()]
    assert [(row["rubric_id"], row["child"], row["dropped"]) for row in rows[:3]] == [
        ("a", "P2", None),
        ("a", "P3", None),
        ("a", "P9", "unknown_criterion"),
    ]


def test_a_question_sets_rewards_side_by_side_by_group(run: Run) -> None:
    answer = ask(run, "reward_by_aggregation")
    rows = [dict(zip(answer.columns, row, strict=True)) for row in answer.fetchall()]
    of = {(row["aggregation"], row["variable"], row["value"]): row for row in rows}
    assert of["flat", "all", "all"]["responses"] == 8
    assert of["flat", "all", "all"]["unscored"] == 2
    assert of["gear", "by", "m1"]["mean"] == pytest.approx(0.6)
    assert of["gear", "by", "m2"]["mean"] == pytest.approx(0.0)
    assert len(rows) == 2 * 3


def test_a_case_says_what_flat_and_gear_count_for_it() -> None:
    html = page(made())
    assert "Flat aggregation counts 33% of the rubric&#39;s credit for it, GEAR 20%." in html
    assert "Unlicensed penalty, activation" in html
    assert "GEAR 0%." in html

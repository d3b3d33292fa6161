"""Layouts whose items list their criteria: on a few made-up rows, and on the real files where they lie beside the
checkout."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
import pytest

from rubricflow.tasks.core.contracts.bundle import Bundle, Criterion
from rubricflow.tasks.core.contracts.errors import InputError
from rubricflow.tasks.core.contracts.settings.data import Data
from rubricflow.tasks.core.contracts.settings.study import Study
from rubricflow.tasks.core.store.warehouse import Warehouse
from rubricflow.tasks.grading.ingest import prepared
from rubricflow.tasks.grading.ingest.sources import evaluation_only
from rubricflow.tasks.grading.ingest.task import ingest
from rubricflow.tasks.grading.lock.task import lock

DERIVE = {
    "origin": "criteria",
    "scale": {"min": 0, "max": 1, "step": 0.01},
    "kind": "criterion",
    "evidence": "none",
    "levels": ["not met", "met"],
}
VERDICTS = ["completion_id", "prompt_key", "criterion_index", "criterion", "points", "criteria_met", "explanation"]


class Found(NamedTuple):
    """What ingest and lock make of a data set."""

    items: dict[str, dict[str, Any]]
    responses: dict[str, dict[str, Any]]
    gradings: list[dict[str, Any]]
    judgments: list[dict[str, Any]]
    bundles: dict[str, Bundle]


def found(house: Path, layout: str, folder: Path, **study: Any) -> Found:
    data = {"layout": layout, "folder": str(folder)} | study.pop("data", {})
    plan = Study.model_validate({"name": "s", "data": data, "rubrics": {"derive": DERIVE}} | study)
    run = Warehouse.open(house / "house").run("one")
    made = ingest.fn(run, plan, house)
    locked = lock.fn(run, plan, house, made.items, made.responses, made.gradings, made.judgments)
    refs = (made.items, made.responses, made.gradings, made.judgments, locked.bundles)
    items, responses, gradings, judgments, bundles = (run.read(ref).to_pylist() for ref in refs)
    return Found(
        {row["item_id"]: row for row in items},
        {row["response_id"]: row for row in responses},
        gradings,
        judgments,
        {row["rubric_id"]: Bundle.unlock(row["bundle_id"], row["content"]) for row in bundles},
    )


def parquet(folder: Path, name: str, rows: Sequence[dict[str, Any]]) -> None:
    folder.mkdir(exist_ok=True)
    pd.DataFrame(rows).to_parquet(folder / name)


def told(criteria: Sequence[Criterion]) -> list[tuple[str, str | None, float, str]]:
    return [(c.id, c.parent, c.weight, c.text) for c in criteria]


# --- healthbench


def health(folder: Path) -> Path:
    """One prompt with three criteria, two of them alike, and two completions whose graders list them otherwise."""
    rubric = [("Asks back.", 5.0), ("Frightens.", -2.0), ("Asks back.", 5.0)]
    turns = [{"role": "user", "content": "It hurts."}, {"role": "assistant", "content": "Where?"}]
    row = {"prompt_key": "p", "conversation_json": json.dumps(turns), "ideal_completion": "See a doctor."}
    row["rubric_json"] = json.dumps([{"criterion": text, "points": points, "tags": None} for text, points in rubric])
    parquet(folder, "prompts_rubrics.parquet", [row | {"example_tags": '["x", "theme:hedging"]'}])
    completions = [
        {"completion_id": name, "prompt_key": "p", "run": run, "responder": "s", "grader": "g"}
        for name, run in (("a", "r|seed42"), ("b", "r"))
    ]
    scores = (0.3, -34.0)
    parquet(
        folder,
        "completions.parquet",
        [
            row | {"completion": "Rest.", "recorded_score": score}
            for row, score in zip(completions, scores, strict=True)
        ],
    )
    verdicts = [
        (name, "p", index, *rubric[at], str(met), "because")
        for name, order in (("a", (0, 1, 2)), ("b", (1, 2, 0)))
        for index, (at, met) in enumerate(zip(order, (True, True, False), strict=True))
    ]
    parquet(folder, "judge_verdicts.parquet", [dict(zip(VERDICTS, verdict, strict=True)) for verdict in verdicts])
    return folder


def test_healthbench(tmp_path: Path) -> None:
    made = found(tmp_path, "healthbench", health(tmp_path / "in"))
    (item,) = made.items.values()
    assert (item["question"], item["type"]) == ("User: It hurts.\n\nAssistant: Where?", "hedging")
    assert item["reference_answer"] == "See a doctor."
    criteria = made.bundles["p"].criteria
    assert [(c.text, c.weight, c.levels) for c in criteria] == [
        ("Asks back.", 5, ("not met", "met")),
        ("Frightens.", -2, ("not met", "met")),
        ("Asks back.", 5, ("not met", "met")),
    ]
    first, fright, second = (c.id for c in criteria)
    levels: defaultdict[str, dict[str, int]] = defaultdict(dict)
    for row in made.judgments:
        assert (row["rater_id"], row["rater_kind"]) == ("recorded", "replayed")
        levels[row["response_id"]][row["criterion_id"]] = row["decision"]
    assert levels == {"a": {first: 1, fright: 1, second: 0}, "b": {fright: 1, first: 1, second: 0}}
    assert [(g["response_id"], g["rater_kind"], g["score"]) for g in made.gradings] == [("a", "replayed", 0.3)]
    assert dict(made.responses["a"]["groups"]) == {"run": "r|seed42", "responder": "s", "grader": "g"}


def test_healthbench_is_for_evaluation_only_whatever_a_source_says(tmp_path: Path) -> None:
    folder = health(tmp_path / "in")
    (folder / "more.csv").write_text("id,item,text,side,score\nc,p,Sleep.,train,1\n")
    own = {"file": "more.csv", "scores": [{"rater": "me", "score": "score"}]}
    own |= {"responses": {"response_id": "id", "item_id": "item", "text": "text", "split": "side"}}
    made = found(tmp_path, "healthbench", folder, data={"sources": [own]})
    assert {name: row["split"] for name, row in made.responses.items()} == {"a": "test", "b": "test", "c": "test"}
    assert evaluation_only(Data(layout="healthbench"))
    assert not any(evaluation_only(Data(layout=name)) for name in ("plawbench", "mohler"))
    assert not evaluation_only(Data.model_validate({"sources": [own]}))


@pytest.mark.shared
def test_the_recorded_scores_of_the_seeded_runs_follow_from_the_recorded_verdicts(
    tmp_path: Path, shared_data: Path
) -> None:
    made = found(tmp_path, "healthbench", shared_data / "healthbench")
    assert (len(made.items), len(made.responses), len(made.judgments)) == (881, 2158, 25526)
    assert {row["split"] for row in made.responses.values()} == {"test"}
    weights = {name: {c.id: c.weight for c in bundle.criteria} for name, bundle in made.bundles.items()}
    earned: Counter[str] = Counter()
    decided: Counter[str] = Counter()
    for row in made.judgments:
        response = made.responses[row["response_id"]]
        earned[row["response_id"]] += weights[response["item_id"]][row["criterion_id"]] * row["decision"]
        decided[row["response_id"]] += 1
    for row in made.gradings:
        mine = weights[row["item_id"]]
        assert decided[row["response_id"]] == len(mine)
        flat = earned[row["response_id"]] / sum(weight for weight in mine.values() if weight > 0)
        assert flat == pytest.approx(row["score"], abs=1e-12)
    assert len(made.gradings) == 1784


# --- plawbench


@pytest.mark.parametrize(
    ("text", "points", "parts"),
    [
        ("【案情】\n（+5分）甲。\n(+10分) 乙。", 15, [("【案情】\n甲。", 5), ("【案情】\n乙。", 10)]),
        ("按顺序。\n一是甲。（+10分）\n（1）丙\n二是乙。（＋5）\n丁（未提及扣2分）", 15,
         [("按顺序。\n一是甲。\n（1）丙", 10), ("按顺序。\n二是乙。\n丁（未提及扣2分）", 5)]),
        ("1、（+2.5分）甲\n2、（+ 5 分）乙", 7.5, [("1、甲", 2.5), ("2、乙", 5)]),
        ("（+5）甲。（+5）乙。", 10, [("甲。", 5), ("乙。", 5)]),
        ("甲。（+5分）", 5, []),
        ("甲，扣2分。", 5, []),
        ("【依据】（10分）\n1（5分）甲\n2（5分）乙", 10, [("【依据】（10分）\n1甲", 5), ("【依据】（10分）\n2乙", 5)]),
        ("第一步（+10分）\n第二步（10分）", 20, [("第一步", 10), ("第二步", 10)]),
        ("（+5）甲（4分）乙\n（+5）丙", 10, [("甲（4分）乙", 5), ("丙", 5)]),
        ("一（+10分）\n（+2分）甲\n（+8分）乙\n二（+10分）", 20, [("一（+10分）\n甲", 2), ("乙", 8), ("二", 10)]),
        ("（+5）甲\n（+5）乙\n（+5）丙", 10, [("甲", 5), ("乙", 5), ("丙", 5)]),
    ],
)  # fmt: skip
def test_a_criterion_is_cut_at_its_marks(text: str, points: float, parts: list[tuple[str, float]]) -> None:
    assert prepared.sub_points(text, points) == parts


def test_plawbench_has_items_and_no_responses(tmp_path: Path) -> None:
    rubric = [{"criterion": "（+5分）甲。\n（+15分）乙。", "points": "15"}, {"criterion": "丙。", "points": "5"}]
    row = {"item_id": 7, "label": "家事", "context": "案情", "question": "能否？", "rubric_json": json.dumps(rubric)}
    parquet(tmp_path / "in", "rubrics.parquet", [row])
    made = found(tmp_path, "plawbench", tmp_path / "in")
    assert (made.items["7"]["context"], made.items["7"]["type"], made.responses) == ("案情", "家事", {})
    bundle = made.bundles["7"]
    assert told(bundle.criteria) == [("C1.1", "C1", 5, "甲。"), ("C1.2", "C1", 15, "乙。"), ("C2", None, 5, "丙。")]
    assert [(c.id, c.weight) for c in bundle.composites] == [("C1", 15)]
    assert [c.id for c in bundle.whole] == ["C1", "C2"]


def test_responses_to_a_layouts_items_come_from_a_source_beside_it(tmp_path: Path) -> None:
    row = {"item_id": 7, "label": "家事", "context": "案情", "question": "能否？"}
    row["rubric_json"] = json.dumps([{"criterion": "甲。", "points": "5"}])
    parquet(tmp_path / "in", "rubrics.parquet", [row])
    (tmp_path / "in" / "answers.csv").write_text("id,item,text\nr,7,可以。\n")
    own = {"file": "answers.csv", "responses": {"response_id": "id", "item_id": "item", "text": "text"}}
    made = found(tmp_path, "plawbench", tmp_path / "in", data={"sources": [own]})
    assert made.responses["r"]["text"] == "可以。"


@pytest.mark.shared
def test_most_criteria_of_plawbench_are_cut_and_add_up(tmp_path: Path, shared_data: Path) -> None:
    bundles = found(tmp_path, "plawbench", shared_data / "plawbench").bundles.values()
    sums = [
        (composite.weight, sum(point.weight for point in bundle.sub_points(composite.id)))
        for bundle in bundles
        for composite in bundle.composites
    ]
    assert (len(bundles), {len(bundle.whole) for bundle in bundles}, len(sums)) == (175, {4}, 550)
    assert sum(points > weight for weight, points in sums) == 15
    assert sum(points < weight for weight, points in sums) == 1


# --- writingbench


def writing(folder: Path) -> Path:
    said = {band: f"says {band}" for band in prepared.BANDS}
    checklist = [{"name": f"N{n}", "criteria_description": f"Looks at {n}.", **said} for n in range(5)]
    row = {"index": 16, "domain1": "Law", "domain2": "x", "query": "Write!", "checklist": json.dumps(checklist)}
    parquet(folder, "length_subset_criteria.parquet", [row | {"query_truncated": False}])
    return folder


def test_writingbench(tmp_path: Path) -> None:
    made = found(tmp_path, "writingbench", writing(tmp_path / "in"))
    assert [(row["question"], row["type"]) for row in made.items.values()] == [("Write!", "Law")]
    criteria = made.bundles["16"].criteria
    assert told(criteria)[:2] == [("C1", None, 10, "N0: Looks at 0."), ("C2", None, 10, "N1: Looks at 1.")]
    assert len(criteria) == 5
    assert criteria[0].levels[:4] == ("1", "2 (band 1-2): says 1-2", "3", "4 (band 3-4): says 3-4")
    assert (criteria[0].levels[9], criteria[0].top) == ("10 (band 9-10): says 9-10", 9)


# --- paperbench


def node(name: str, parent: str | None, weight: float = 1.0, place: int = 0, paper: str = "p") -> dict[str, Any]:
    return {"paper": paper, "node_id": name, "parent_id": parent, "depth": 0, "sibling_index": place} | {
        "requirement": f"{name} is done", "weight": weight, "task_category": None, "is_leaf": False}  # fmt: skip


TREE = [
    node("root", None),
    node("a", "root", 3),
    node("a1", "a", 2),
    node("both", "a", 1, 1),
    node("b", "root", 1, 1),
    node("both", "b", 1),
    node("twice", "b", 1, 1),
    node("twice", "b", 1, 2),
    node("leaf", "root", 1, 2),
]


def test_paperbench(tmp_path: Path) -> None:
    parquet(tmp_path / "in", "rubric_nodes.parquet", [*TREE, node("r", None, paper="q"), node("x", "r", 5, paper="q")])
    made = found(tmp_path, "paperbench", tmp_path / "in")
    assert made.items["p"]["question"] == "root is done"
    bundle = made.bundles["p"]
    assert told(bundle.criteria) == [
        ("a1", "a", 40, "a1 is done (part of: a is done)"),
        ("a/both", "a", 20, "both is done (part of: a is done)"),
        ("b/both", "b", 10, "both is done (part of: b is done)"),
        ("twice", "b", 10, "twice is done (part of: b is done)"),
        ("leaf", None, 20, "leaf is done"),
    ]
    assert told(bundle.composites) == [("a", None, 60, "a is done"), ("b", None, 20, "b is done")]
    assert [c.id for c in bundle.whole] == ["a", "b", "leaf"]
    assert told(made.bundles["q"].criteria) == [("x", None, 100, "x is done")]


@pytest.mark.parametrize("lost", [[0], [0, 1], []])
def test_a_tree_without_its_single_root_is_located(tmp_path: Path, lost: list[int]) -> None:
    rows = [one for at, one in enumerate(TREE) if at not in lost] + ([] if lost else [node("other", None)])
    parquet(tmp_path / "in", "rubric_nodes.parquet", rows)
    with pytest.raises(InputError, match=r"rubric_nodes\.parquet, row 1, field 'question': is empty"):
        found(tmp_path, "paperbench", tmp_path / "in")


def test_an_inner_node_of_two_parents_is_refused(tmp_path: Path) -> None:
    parquet(tmp_path / "in", "rubric_nodes.parquet", [*TREE, node("under", "both")])
    with pytest.raises(InputError, match=r"rubric_nodes\.parquet, row 1, field 'criteria.*: 'under' is given twice"):
        found(tmp_path, "paperbench", tmp_path / "in")


def test_a_paper_s_points_are_shared_out_to_its_leaves() -> None:
    frame = pd.DataFrame(TREE, dtype=object)
    (criteria,) = prepared.paperbench("rubric_nodes.parquet", frame.where(frame.notna(), None))["criteria"]
    parents = {one["parent"] for one in criteria}
    assert sum(one["weight"] for one in criteria if one["id"] not in parents) == pytest.approx(100)

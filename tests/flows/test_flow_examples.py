"""Worked examples from the tables to the report: what the judge's door makes of a split, and that no label leaks."""

from __future__ import annotations

import json
from dataclasses import dataclass

import numpy as np
import pytest
from builders.bundles import bundle, criterion, trait
from builders.rows import grading, item, judgment, locked, response, rubric
from copying_scene import JUDGES, PLAN, fared

from rubricflow.tasks.core.contracts.errors import InputError
from rubricflow.tasks.core.contracts.protocols import WorkedExamples
from rubricflow.tasks.core.contracts.settings.judge import Judge
from rubricflow.tasks.core.contracts.tables.data import Items, Responses
from rubricflow.tasks.core.contracts.tables.judging import Gradings, Judgments
from rubricflow.tasks.core.contracts.tables.rubrics import Bundles, Rubrics
from rubricflow.tasks.core.llm.backend import Scripted
from rubricflow.tasks.core.store.catalogue import ask
from rubricflow.tasks.core.store.warehouse import Warehouse
from rubricflow.tasks.grading.judge import shard_judge
from rubricflow.tasks.grading.judge.rows import Rater
from rubricflow.tasks.grading.judge.stored_cases import case_of, in_shard_order, sheets_of
from rubricflow.tasks.grading.judge.task import judge
from rubricflow.tasks.grading.judge.teaching import People, teaching_of

ENGINE = {"backend": "openai", "engine": {"model": "m", "urls": ["http://127.0.0.1:1/v1"]}}
ANSWERS = 12
OF_SPLIT = ["calibration"] * 6 + ["chosen"] * 2 + ["test"] * 4


@dataclass(frozen=True)
class Study:
    """A run with one item's responses, a third of them held out, and what people said of all of them."""

    run: object
    items: object
    responses: object
    bundles: object
    people: tuple


def made(folder, protocol="dhs", gradings=None, judgments=(), **changes):
    """gradings: rows of people's, in place of one of each response, 0 and 4 by turns."""
    traits = (trait("t", 0, 4, source="judged"),)
    final = "judged" if protocol in ("dhs", "autoscore") else "trait_mean"
    of = bundle(criterion("P"), criterion("Q"), ends=(0, 4), traits=traits, name=protocol, final_score=final)
    run = Warehouse.open(folder / "house").run("run")
    names = [f"r{n:02d}" for n in range(ANSWERS)]
    rows = [
        response(name, "i", text=f"answer of words {n}", split=OF_SPLIT[n], **{"author_id": f"a{n}"} | changes)
        for n, name in enumerate(names)
    ]
    said = [grading(name, "human-1", 4.0 * (n % 2)) for n, name in enumerate(names)] if gradings is None else gradings
    run.commit("ingest", "all", {Items: [item("i")], Responses: rows, Gradings: said, Judgments: [*judgments]})
    run.commit("lock", "all", {Rubrics: [rubric("i")], Bundles: [locked(of, "i")]})
    refs = [run.ref(row, "ingest") for row in (Items, Responses)]
    return Study(run, *refs, run.ref(Bundles, "lock"), tuple(run.ref(row, "ingest") for row in (Gradings, Judgments)))


def shown_to(study, monkeypatch, plan, folder, target="mean"):
    """Response → the examples that its calls showed, and what its prompt said."""
    backend = Scripted(lambda request: json.dumps({"rationale": "so", "score": 2}))
    monkeypatch.setattr(shard_judge, "rater", lambda *_: Rater("s:t", "llm", backend))
    judged = judge.fn(
        study.run, plan, folder, study.items, study.responses, study.bundles, people=study.people, target=target
    )
    rows = study.run.read(judged.attempts).to_pylist()
    return {row["response_id"]: row for row in rows}


def example_of(study, target="mean", by="similarity"):
    """The examples that a new response would be shown, by their ids."""
    people = People(*study.people, target)
    teaching = teaching_of(
        study.run, WorkedExamples(count=16, by=by), study.items, study.responses, study.bundles, people
    )
    (case,) = _case(study)
    (taught,) = teaching([case])
    return {example.response_id: example for example in taught.examples}


def _case(study):
    sheets, rows = sheets_of(study.run, study.items, study.bundles), in_shard_order(study.run, study.responses)
    return [case_of(row, *sheets[row["item_id"]]) for row in rows][-1:]


@pytest.mark.parametrize("by", ["level", "similarity"])
def test_the_judge_is_shown_labels_of_others_outside_the_test_split(tmp_path, monkeypatch, by):
    plan = Judge(protocol="dhs", examples={"count": 4, "by": by}, **ENGINE)
    shown = shown_to(made(tmp_path), monkeypatch, plan, tmp_path)
    free = {f"example:r{n:02d}" for n, split in enumerate(OF_SPLIT) if split != "test"}
    assert len(shown) == ANSWERS
    for name, row in shown.items():
        assert len(row["memory"]) == 4
        assert set(row["memory"]) <= free - {f"example:{name}"}
        assert row["prompt"].count("decided by people: score ") == 4
        assert row["prompt"].index("=====END") < row["prompt"].index("=====RESPONSE")


def test_a_question_tells_which_marked_answers_the_judge_of_a_response_was_shown(tmp_path, monkeypatch):
    study = made(tmp_path)
    shown = shown_to(study, monkeypatch, Judge(protocol="dhs", examples={"count": 3}, **ENGINE), tmp_path)
    for name, row in shown.items():
        answer = ask(study.run, "examples", {"response_id": name})
        told = [dict(zip(answer.columns, values, strict=True)) for values in answer.fetchall()]
        assert {f"example:{one['response_id']}" for one in told} == set(row["memory"])
        for one in told:
            number = int(one["response_id"][1:])
            assert (one["marked_by"], one["score"]) == ("human-1", 4.0 * (number % 2))
            assert one["begins"] == f"answer of words {number}"


def test_by_level_the_held_out_share_the_beginning_of_their_prompts(tmp_path, monkeypatch):
    plan = Judge(protocol="dhs", examples={"by": "level"}, **ENGINE)
    shown = shown_to(made(tmp_path), monkeypatch, plan, tmp_path)
    prompts = [shown[f"r{n:02d}"]["prompt"] for n, split in enumerate(OF_SPLIT) if split == "test"]
    assert len({prompt.partition("=====RESPONSE")[0] for prompt in prompts}) == 1


def test_another_label_is_another_request(tmp_path, monkeypatch):
    """The digests of requests, of which `grade_digest` is made, change with what people said, and with nobody else."""
    plan = Judge(protocol="dhs", examples={"by": "similarity", "count": 16}, **ENGINE)
    names = [f"r{n:02d}" for n in range(ANSWERS)]
    digests = []
    for first in (0.0, 4.0):
        said = [grading(name, "human-1", 4.0 * (n % 2)) for n, name in enumerate(names)]
        said[0] = grading("r00", "human-1", first)
        study = made(tmp_path / str(first), gradings=said)
        digests.append({name: row["request_digest"] for name, row in
                        shown_to(study, monkeypatch, plan, tmp_path).items()})  # fmt: skip
    assert [name for name in names if digests[0][name] == digests[1][name]] == ["r00"]


def test_an_author_is_shown_nothing_of_his_own(tmp_path):
    study = made(tmp_path, author_id="all one")
    people = People(*study.people, "mean")
    given = study.run, WorkedExamples(by="similarity"), study.items, study.responses, study.bundles, people
    (taught,) = teaching_of(*given)(_case(study))
    assert taught.examples == ()


@pytest.mark.parametrize(("target", "score"), [("mean", 2.0), ("human-1", 1.0), ("human-2", 3.0), ("settled", 4.0)])
def test_what_is_shown_is_the_score_that_counts(tmp_path, target, score):
    said = [grading(f"r{n:02d}", "human-1", 1.0) for n in range(8)]
    said += [grading(f"r{n:02d}", "human-2", 2.0 + (n % 2 or n == 0)) for n in range(8)]
    said += [grading(f"r{n:02d}", "settled", 4.0, rater_kind="adjudication") for n in range(8)]
    shown = example_of(made(tmp_path, gradings=said), target)
    assert shown["r00"].score == score
    assert {name for name, of in shown.items() if of.score != score} <= {"r02", "r04", "r06"}


def test_marks_are_the_mean_level_and_those_on_more_levels_are_left_out(tmp_path):
    marks = [judgment(f"r{n:02d}", "P", 1, "human-1") for n in range(8)]
    marks += [judgment(f"r{n:02d}", "P", 0, "human-2") for n in range(8)]
    marks += [judgment(f"r{n:02d}", "Q", n % 3, "human-1") for n in range(8)]
    shown = example_of(made(tmp_path, "rulers", judgments=marks))
    assert {tuple(of.levels.items()) for of in shown.values()} == {(("P", 1),)}


def test_a_protocol_that_states_no_score_wants_all_that_it_states(tmp_path):
    marks = [judgment(f"r{n:02d}", name, 1, "human-1") for n in range(8) for name in ("PQ" if n < 3 else "P")]
    shown = example_of(made(tmp_path, "pointwise", judgments=marks))
    assert shown.keys() == {"r00", "r01", "r02"}


@pytest.mark.parametrize(
    ("protocol", "plan", "gradings", "usable"),
    [
        ("dhs", {}, [], 0),
        ("dhs", {}, [grading(f"r{n:02d}", "human-1", 1.0) for n in range(8, 12)], 0),
        ("dhs", {"by": "level"}, [grading(f"r{n:02d}", "human-1", float(n)) for n in range(4)], 4),
        ("dhs", {"by": "similarity"}, [grading("r00", "human-1", 1.0)], 1),
        ("pointwise", {}, None, 0),
        ("mts", {}, None, 0),
    ],
)
def test_an_item_without_an_example_is_refused(tmp_path, protocol, plan, gradings, usable):
    study = made(tmp_path, protocol, gradings)
    people = People(*study.people, "mean")
    with pytest.raises(InputError, match=f"no worked example to show for item 'i', with {usable} usable labels"):
        teaching_of(study.run, WorkedExamples(**plan), study.items, study.responses, study.bundles, people)


# No label leaks: judges that know nothing but the labels they read.


@pytest.mark.parametrize(
    ("plan", "judge_of"),
    [
        ({"count": 4, "by": "level"}, "closest"),
        ({"count": 4, "by": "level"}, "missing"),
        ({}, "first"),
        ({}, "mean"),
        ({}, "closest"),
    ],
)
def test_calibration_promises_no_more_than_new_responses_keep(plan, judge_of):
    studies = [fared(judge_of, WorkedExamples(**plan), seed, signal=0.15) for seed in range(4)]
    gap = np.array([one.new - one.taught for one in studies])
    assert gap.mean() < 2 * gap.std() / np.sqrt(len(gap)) + 0.02
    assert sum(one.wrong > PLAN.release.risk for one in studies) <= 2


@pytest.mark.parametrize("judge_of", sorted(set(JUDGES) - {"missing"}))
def test_a_label_shown_to_its_own_response_would_be_seen(judge_of):
    study = fared(judge_of, WorkedExamples(count=4, by="level"), 0, signal=0.15, is_told=True)
    assert study.new - study.taught > 0.5

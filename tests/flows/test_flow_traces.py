"""Agents' trajectories through the whole flow: graded by turns and steps, by a scripted judge."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path

import pytest
from builders.command import last_run

from rubricflow.flows.grade import grade
from rubricflow.flows.label import prepared
from rubricflow.flows.plan import plan
from rubricflow.tasks.core.contracts.bundle import Bundle
from rubricflow.tasks.core.contracts.errors import ContractError, InputError
from rubricflow.tasks.core.contracts.tables.data import Responses, Units
from rubricflow.tasks.core.contracts.tables.judging import Attempts, Judgments
from rubricflow.tasks.core.contracts.tables.rubrics import Bundles
from rubricflow.tasks.core.llm.backend import Scripted
from rubricflow.tasks.core.text.traces import heading_at, headings, trace_units
from rubricflow.tasks.grading.judge import shard_judge
from rubricflow.tasks.grading.judge.rows import Rater
from rubricflow.tasks.grading.report.answers import shown_case
from rubricflow.tasks.people.review.reviews import Reviews
from rubricflow.tasks.people.review.view import show_case
from rubricflow.tasks.people.review.waiting import open_board
from tests.builders.traces import as_said

STUDY = Path(__file__).parents[1] / "data/traces"
LOST = "the parcel was lost in transit"
QUOTES = {
    "t1": {
        "LOOKED": ("step 4", 'find_order {"order": "4471"}'),
        "TRUE_TO_RESULT": ("step 5", '"state": "lost in transit"'),
    }
    | {"ASKED": ("turn 6", "Shall I send a new one to the same address?")},
    # A thought is no call, an error is no loss, and nobody was asked.
    "t2": {
        "LOOKED": ("turn 2", "I could call find_order first"),
        "TRUE_TO_RESULT": ("step 5", "this order was delivered"),
    }
    | {"ASKED": ("step 2", "A new parcel is on its way")},
    "t3": {
        "LOOKED": ("2", 'find_order {"order": "4471"}'),
        "TRUE_TO_RESULT": ("[step 3, result `find_order`]", LOST[-16:]),
    }
    | {"ASKED": (None, "May I? … send it again")},
    # What the customer says of a call is none.
    "t4": {
        "LOOKED": ("step 2", 'find_order {"order": "4471"}'),
        "TRUE_TO_RESULT": ("turn 1", "It was lost in transit."),
    }
    | {"ASKED": ("turn 1", "Can you send it again?")},
}
FOUND = {
    ("t1", "LOOKED"): "verified",
    ("t1", "TRUE_TO_RESULT"): "verified",
    ("t1", "ASKED"): "verified",
    ("t2", "LOOKED"): "other_kind",
    ("t2", "TRUE_TO_RESULT"): "verified",
    ("t2", "ASKED"): "misattributed",
    ("t3", "LOOKED"): "verified",
    ("t3", "TRUE_TO_RESULT"): "verified",
    ("t3", "ASKED"): "fabricated",
    ("t4", "LOOKED"): "misattributed",
    ("t4", "TRUE_TO_RESULT"): "other_kind",
    ("t4", "ASKED"): "other_kind",
}


def verdict(request):
    """The quotes of the trajectory that a request is about, each for level 1."""
    decisions = {}
    for name, (unit, quote) in QUOTES[request.subject].items():
        cited = {"quote": quote} | ({} if unit is None else {"unit": unit})
        decisions[name] = {"level": 1, "evidence": [cited]}
    return json.dumps({"decisions": decisions})


@pytest.fixture(scope="module")
def graded(tmp_path_factory):
    folder = tmp_path_factory.mktemp("traces")
    shutil.copytree(STUDY, folder, dirs_exist_ok=True)
    backend = Scripted(verdict)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shard_judge, "rater", lambda *_: Rater("llm:scripted", "llm", backend))
        grade(folder / "study.yaml", warehouse=folder / "warehouse")
    return last_run(folder / "warehouse"), folder


def test_a_quote_counts_only_where_it_stands_in_a_step_of_the_kind_asked_for(graded):
    run, _ = graded
    rows = run.table(Judgments, "judge").to_pylist()
    assert {(row["response_id"], row["criterion_id"]): row["evidence"][0]["status"] for row in rows} == FOUND
    for row in rows:
        assert row["decision"] == (FOUND[row["response_id"], row["criterion_id"]] == "verified")


def test_the_tables_hold_every_turn_and_step_of_every_form(graded):
    run, _ = graded
    texts = {row["response_id"]: row["text"] for row in run.table(Responses, "ingest").to_pylist()}
    rows = run.table(Units, "ingest").to_pylist()
    kinds = {name: [] for name in texts}
    for row in rows:
        if row["kind"] != "sentence":
            kinds[row["response_id"]].append(row["kind"])
    lookup, again = ["user", "assistant", "call", "result"], ["user", "call", "result", "assistant"]
    assert kinds["t1"] == ["system", *lookup, "assistant", *again]
    assert kinds["t2"] == ["user", "thought", "assistant", "call", "result", "assistant"]
    assert kinds["t3"] == ["user", "call", "result", "assistant"]
    assert kinds["t4"] == ["user", "assistant"]
    (first, _), source = trace_units(texts["t4"])[:2], (STUDY / "trajectories.jsonl").read_text().splitlines()[3]
    said = json.loads(source)["trace"][0]["content"]
    assert as_said(texts["t4"][first.start : first.end]) == said


def test_prompts_bar_every_line_so_that_no_words_are_another_turn(graded):
    run, _ = graded
    prompts = {row["response_id"]: row for row in run.table(Attempts, "judge").to_pylist()}
    shown = [line for line in prompts["t4"]["prompt"].splitlines() if line.startswith("[")]
    assert shown == ["[turn 1, user]", "[turn 2, assistant]"]
    assert "sentence" not in prompts["t1"]["system"]
    assert "turn N or step N" in prompts["t1"]["system"]


def test_report_and_review_page_say_in_which_step_a_quote_stands(graded):
    run, folder = graded
    rows = run.table(Judgments, "judge").to_pylist()
    text = next(row["text"] for row in run.table(Responses, "ingest").to_pylist() if row["response_id"] == "t1")
    (locked,) = run.table(Bundles, "lock").to_pylist()
    score = dict.fromkeys(("calibrated", "raw", "target", "points_judge", "points_text", "points_item"), math.nan)
    score |= {"response_id": "t1", "item_id": "parcel"}
    mine = [row for row in rows if row["response_id"] == "t1"]
    shown = shown_case(score, "Why?", Bundle.unlock(locked["bundle_id"], locked["content"]), mine, text, "")
    places = [mark["quotes"][0]["place"] for mark in shown["marks"]]
    assert places == ["step 4, call `find_order`", "step 5, result `find_order`", "turn 6, assistant"]
    assert shown["answer"].count('<b class="turn">') == len(headings(text))
    waiting = [{"response_id": "t1", "subject_kind": "score", "criteria": (), "why": "."}]
    board = open_board(
        run,
        plan(folder / "study.yaml", folder / "warehouse").study,
        waiting,
        {"judge": run.ref(Judgments, "judge")},
        None,
    )
    page = show_case(Reviews(board), board.cases[0], "Ada")
    assert "".join(piece["text"] for piece in page["pieces"]) == text
    titles = [piece["text"] for piece in page["pieces"] if piece["title"]]
    assert titles == [text[start:end] for start, end in headings(text)]
    asked = {one["criterion_id"]: one for one in page["asked"]}
    assert asked["LOOKED"]["machine"][0]["quotes"][0]["at"] == "step 4, call `find_order`"


def test_a_kind_of_evidence_is_refused_where_answers_are_plain_texts(graded):
    _, folder = graded
    plain = (folder / "study.yaml").read_text().replace("      traces: true\n", "").replace("text: trace", "text: id")
    (folder / "plain.yaml").write_text(plain)
    with pytest.raises(ContractError, match=r"LOOKED.*traces: true"):
        grade(folder / "plain.yaml", warehouse=folder / "other")


def test_what_is_no_trace_is_refused_by_file_and_row(graded):
    _, folder = graded
    rows = [
        {"id": "x", "task": "parcel", "trace": "just text"},
        {"id": "y", "task": "parcel", "trace": [{"role": "cat"}]},
    ]
    (folder / "trajectories.jsonl").write_text("\n".join(map(json.dumps, rows)))
    with pytest.raises(InputError, match=r"trajectories.jsonl, line 1, .*no JSON") as refused:
        grade(folder / "study.yaml", warehouse=folder / "third")
    assert "cat" in str(refused.value)


def test_the_conversations_of_a_log_are_judged_by_their_turns(tmp_path):
    call = {"id": "c", "type": "function", "function": {"name": "find_order", "arguments": '{"order": "4471"}'}}
    messages = [
        {"role": "system", "content": "Never promise a refund."},
        {"role": "user", "content": "Where is my parcel?"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": "lost in transit"},
        {"role": "assistant", "content": "It was lost, sorry."},
    ]
    why = 'It looked (`find_order {"order": "4471"}`) and found "lost in transit", not "a refund for you".'
    rows = [{"id": f"a{n}", "messages": messages, "score": n % 2, "explanation": why} for n in range(6)]
    rows.append({"id": "plain", "answer": "I do not know.", "score": 0, "explanation": 'It says "I do not know."'})
    (tmp_path / "log.jsonl").write_text("\n".join(map(json.dumps, rows)))
    file, names, _ = prepared([tmp_path / "log.jsonl"], None, None, None)
    grade(file, warehouse=tmp_path / "house")
    run = last_run(tmp_path / "house")
    assert len(names) == len(rows)
    texts = {row["response_id"]: row["text"] for row in run.table(Responses, "ingest").to_pylist()}
    assert [text[start:end] for text in [texts["plain"]] for start, end in headings(text)] == ["[turn 1, assistant]"]
    evidence = {row["response_id"]: row["evidence"] for row in run.table(Judgments, "judge").to_pylist()}
    found = [(quote["status"], heading_at(texts["a1"], quote["start"] or 0)) for quote in evidence["a1"]]
    assert found[:2] == [("verified", "step 3, call `find_order`"), ("verified", "step 4, result `find_order`")]
    assert found[2][0] == "fabricated"

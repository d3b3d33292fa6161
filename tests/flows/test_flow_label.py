"""Labels where people are: the page on a log, what it hides, and the file of labels, which vouches for all answers."""

from __future__ import annotations

import json
import random
import uuid
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from builders.files import read_csv
from fastapi.testclient import TestClient
from tiny_study import make_study

from rubricflow.flows import label as flow
from rubricflow.flows.label import label, write_labels
from rubricflow.tasks.grading.calibrate.next_labels import by_chance
from rubricflow.tasks.grading.logs.labels import read_labels
from rubricflow.tasks.grading.logs.read import read_log
from rubricflow.tasks.people.review.ledger import Act, Ledger, ledger_file

IDEAS = ("warm air rises", "it cools above", "vapour turns into drops", "heavy drops fall")


def log_file(path: Path, count: int = 40) -> Path:
    """Answers with some ideas each, judged; the judge quotes one of them, and what nobody wrote."""
    drawn, lines = random.Random(5), []
    for number in range(count):
        said = [idea for idea in IDEAS if drawn.random() < 0.6]
        why = f'It says "{said[0] if said else "nothing"}" and "clouds of cotton".'
        lines.append(
            {
                "id": f"a{number}",
                "question": f"Why {number}?",
                "answer": f"{number}: {'. '.join(said) or 'no idea'}",
                "score": len(said),
                "explanation": why,
            }
        )
    path.write_text("\n".join(map(json.dumps, lines)))
    return path


@pytest.fixture
def opened(monkeypatch):
    """opened(log, …): a client of the page that `label` would serve, let in as Ada."""
    apps = []
    monkeypatch.setattr(flow, "serve", lambda app, *_: apps.append(app))

    def opening(log: Path, **options) -> TestClient:
        label([log], warehouse=str(log.parent / "house"), browser=False, **options)
        client = TestClient(apps[-1], base_url="http://127.0.0.1:8765")
        assert client.post("/api/me", json={"name": "Ada"}).status_code == 200
        return client

    return opening


def vote(client: TestClient, number: int, value: str) -> None:
    case = client.get(f"/api/cases/{number}").json()
    about = {"subject_kind": "score", "response_id": case["response_id"], "rater": "Ada"}
    for kind, more in (("vote", {"value": value, "digest": case["asked"][0]["digest"]}), ("submit", {})):
        sent = client.post("/api/acts", json={"act_id": str(uuid.uuid4()), "kind": kind, **about, **more})
        assert sent.status_code == 200, sent.text


def test_the_verdict_is_hidden_until_the_vote_and_labels_outlive_the_page(tmp_path, opened):
    log = log_file(tmp_path / "log.jsonl")
    to = tmp_path / "log.labels.csv"
    client = opened(log, count=8)
    listed = client.get("/api/cases").json()
    assert len(listed["cases"]) == 8
    before = client.get("/api/cases/0").json()
    assert before["question"] == f"Why {before['response_id'][1:]}?"
    assert (before["hides"], before["predicted"], before["sees_machine"]) == ("verdict", None, False)
    assert "value" not in json.dumps([one["machine"] for one in before["asked"]]) or all(
        told["value"] is None for one in before["asked"] for told in one["machine"]
    )
    standing = {piece["text"]: piece["holds"] for piece in before["explanation"]}
    assert standing["clouds of cotton"] is False
    marked = [piece["text"] for piece in before["pieces"] if piece["of"]]
    assert marked == [text for text, holds in standing.items() if holds]
    for number in range(5):
        vote(client, number, str(number % 3))
    after = client.get("/api/cases/0").json()
    assert after["hides"] is None
    assert after["sees_machine"]
    drawn = [row["response_id"] for row in listed["cases"][:5] if row["why"].startswith("drawn")]
    counted = client.get("/api/cases").json()["vouching"]
    assert counted["here"] == listed["vouching"]["here"] + len(drawn)
    written = read_csv(to)
    assert {row["answer_id"]: row["score"] for row in written} == {
        row["response_id"]: str(number % 3) for number, row in enumerate(listed["cases"][:5])
    }
    assert {row["answer_id"] for row in written if not row["split"]} >= set(drawn[:-1])
    assert {row["probability"] for row in written if row["split"]} <= {""}
    chances = [float(row["probability"]) for row in written if not row["split"]]
    assert chances == pytest.approx([len(chances) / 40] * len(chances))
    people = read_labels(to, read_log([log]))
    assert set(people["answer_id"]) == {row["answer_id"] for row in written}
    again = opened(log, count=8)  # as after a kill: the file is read, and nothing asked anew
    assert read_csv(to) == written
    cases = again.get("/api/cases").json()["cases"]
    assert {row["response_id"] for row in cases if row["submitted"]} == {row["answer_id"] for row in written}


def test_a_graded_study_is_labelled_as_well(tmp_path, opened):
    client = opened(make_study(tmp_path / "tiny"), count=3)
    vote(client, 0, "2")
    (row,) = read_csv(tmp_path / "tiny" / "study.labels.csv")
    assert row["score"] == "2"
    assert row["answer_id"] == client.get("/api/cases/0").json()["response_id"]


def test_labels_drawn_by_chance_stand_for_all_whatever_is_chosen_beside_them(tmp_path):
    """Over many draws the weighted mean of the drawn is the mean of all; that of all labels is not, as those with high
    values are chosen."""
    size, drawn_first, chosen = 30, 6, 6
    values = np.linspace(0, 10, size).round()
    names = [f"r{number}" for number in range(size)]
    means, whole = [], []
    nobody = pd.DataFrame(columns=["response_id", "rater", "score", "split"])
    for seed in range(50):
        order = [names[place] for place in by_chance(names, seed)]
        taught = names[-chosen:]
        asked = [*taught, *[name for name in order if name not in taught][:drawn_first]]
        folder = tmp_path / str(seed)
        folder.mkdir()
        with Ledger(ledger_file(folder)) as ledger:
            acts = []
            for name in asked:
                about = {
                    "study": "s",
                    "subject_kind": "score",
                    "response_id": name,
                    "criterion_id": None,
                    "rater_id": "A",
                }
                value = f"{values[names.index(name)]:g}"
                acts.append(Act(act_id=str(uuid.uuid4()), kind="vote", value=value, digest="0" * 64, **about))
                acts.append(Act(act_id=str(uuid.uuid4()), kind="submit", value=None, **about))
            ledger.add_all(acts)
        write_labels(folder / "labels.csv", folder, "s", order, taught, {}, nobody)
        rows = read_csv(folder / "labels.csv")
        drawn = [row for row in rows if not row["split"]]
        assert sum(row["answer_id"] not in taught for row in drawn) == drawn_first - 1
        assert [float(row["probability"]) for row in drawn] == pytest.approx([len(drawn) / size] * len(drawn))
        means.append(np.mean([float(row["score"]) for row in drawn]))
        whole.append(np.mean([float(row["score"]) for row in rows]))
    error = np.std(means) / np.sqrt(len(means))
    assert abs(np.mean(means) - values.mean()) < 3.5 * error
    assert np.mean(whole) - values.mean() > 10 * error

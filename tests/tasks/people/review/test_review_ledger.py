"""The ledger of acts: durable, idempotent, only ever added to."""

import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import uuid
from contextlib import closing
from dataclasses import asdict, fields, replace
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rubricflow.tasks.core.contracts.errors import ContractError, StoreError
from rubricflow.tasks.people.review.ledger import Act, Ledger

VOTE = Act(
    act_id=str(uuid.UUID(int=1)),
    study="essays",
    kind="vote",
    subject_kind="label",
    response_id="r1",
    criterion_id="c1",
    value="2",
    rater_id="Ann",
    digest="d",
)


def vote(number, **changes):
    return replace(VOTE, act_id=str(uuid.UUID(int=number)), **changes)


def as_act(stored):
    return Act(**{field.name: getattr(stored, field.name) for field in fields(Act)})


def test_keeps_acts_by_study_in_their_order(tmp_path):
    undo = Act(str(uuid.UUID(int=4)), "essays", "undo", "label", "r1", "c1", None, "Ann", undoes=VOTE.act_id)
    acts = [VOTE, vote(2, comment="é\n\0", blind=True), vote(3, study="other", blind=False), undo]
    before = datetime.now(UTC)
    with Ledger(tmp_path / "deep" / "votes.sqlite") as ledger:
        added = [ledger.add(act) for act in acts]
    with Ledger(tmp_path / "deep" / "votes.sqlite") as ledger:
        assert ledger.acts("essays") == [added[0], added[1], added[3]]
        assert ledger.acts("other") == [added[2]]
        assert ledger.acts("none") == []
        assert ledger.acts("essays", after=2) == [added[3]]
        ledger.close()
    assert [as_act(stored) for stored in added] == acts
    assert [stored.number for stored in added] == [1, 2, 3, 4]
    assert before <= added[0].stored_at <= datetime.now(UTC)
    assert all(one.stored_at < next_.stored_at for one, next_ in pairwise(added))


def test_the_same_act_is_stored_once_and_another_under_its_id_is_refused(tmp_path):
    with Ledger(tmp_path / "v") as ledger:
        first = ledger.add(VOTE)
        ledger.add(vote(2))
        assert ledger.add(VOTE) == first
        with pytest.raises(ContractError, match="says something else"):
            ledger.add(replace(VOTE, value="1"))
        with pytest.raises(ContractError, match="says something else"):
            ledger.add(replace(VOTE, study="other"))
        assert len(ledger.acts("essays")) == 2


def test_several_acts_are_stored_together_or_not_at_all(tmp_path):
    with Ledger(tmp_path / "v") as ledger:
        first = ledger.add(VOTE)
        assert ledger.add_all([VOTE, vote(2), vote(2)])[:2] == [first, ledger.acts("essays")[1]]
        with pytest.raises(ContractError, match="says something else"):
            ledger.add_all([vote(3), replace(VOTE, value="0")])
        assert [act.act_id for act in ledger.acts("essays")] == [VOTE.act_id, vote(2).act_id]


def test_time_goes_on_where_the_clock_does_not(tmp_path, monkeypatch):
    with Ledger(tmp_path / "v") as ledger:
        first = ledger.add(VOTE)

        class Stopped(datetime):
            @classmethod
            def now(cls, zone=None):
                return datetime(2001, 1, 1, tzinfo=zone)

        monkeypatch.setattr("rubricflow.tasks.people.review.ledger.datetime", Stopped)
        assert first.stored_at < ledger.add(vote(2)).stored_at < ledger.add(vote(3)).stored_at


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE acts SET value = '0'",
        "DELETE FROM acts",
        "INSERT OR REPLACE INTO acts SELECT * FROM acts",
        "INSERT OR REPLACE INTO acts SELECT 1, at, 'new', study, kind, subject_kind, response_id, criterion_id, '0', "
        "rater_id, comment, blind, undoes, digest, seal FROM acts",
    ],
)
def test_the_file_itself_refuses_to_change_an_act(tmp_path, statement):
    with Ledger(tmp_path / "v") as ledger:
        stored = ledger.add(VOTE)
        with sqlite3.connect(tmp_path / "v") as raw, pytest.raises(sqlite3.DatabaseError, match="only ever added"):
            raw.execute(statement)
        assert ledger.acts("essays") == [stored]


def test_many_threads_and_ledgers_write_at_once(tmp_path):
    def write(offset, ledger):
        for number in range(20):
            ledger.add(vote(1000 * offset + number))
            ledger.add(vote(7, study="shared"))

    with Ledger(tmp_path / "v") as one, Ledger(tmp_path / "v") as other:
        threads = [threading.Thread(target=write, args=(i, (one, other)[i % 2])) for i in range(1, 7)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        acts = one.acts("essays")
        assert len(acts) == 120
        assert len(other.acts("shared")) == 1
    assert all(a.stored_at < b.stored_at and a.number < b.number for a, b in pairwise(acts))


WRITER = """
import sys, uuid
from rubricflow.tasks.people.review.ledger import Act
from rubricflow.tasks.people.review.ledger import Ledger
with Ledger(sys.argv[1]) as ledger:
    while True:
        act = Act(str(uuid.uuid4()), "essays", "vote", "label", "r", "c", "1", "Ann", digest="d")
        ledger.add(act)
        print(act.act_id, flush=True)
"""


def test_what_was_answered_outlives_a_kill(tmp_path):
    root = Path(__file__).parents[4]
    command = [sys.executable, "-c", WRITER, str(tmp_path / "v")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=root) as writer:
        answered = [writer.stdout.readline().strip() for _ in range(30)]
        os.kill(writer.pid, signal.SIGKILL)
        answered += writer.stdout.read().split("\n")[:-1]
    with Ledger(tmp_path / "v") as ledger:
        kept = [act.act_id for act in ledger.acts("essays")]
        assert kept[: len(answered)] == answered
        assert len(kept) - len(answered) <= 1  # the one whose answer it had no time to write
        ledger.add(VOTE)


def test_a_spoilt_or_full_file_is_named(tmp_path):
    with Ledger(tmp_path / "v") as ledger:
        ledger.add(VOTE)
        pages = ledger._connection.execute("PRAGMA page_count").fetchone()[0]
        ledger._connection.execute(f"PRAGMA max_page_count={pages}")
        with pytest.raises(StoreError, match="disk is full"):
            ledger.add(vote(2, comment="x" * 100_000))
        assert len(ledger.acts("essays")) == 1
    with sqlite3.connect(tmp_path / "v") as raw:
        raw.execute("DROP TRIGGER no_update")
        raw.execute("UPDATE acts SET value = 'much', seal = NULL")
    with pytest.raises(StoreError, match="level or score"):
        Ledger(tmp_path / "v")


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ({"act_id": "1"}, "UUID"),
        ({"act_id": str(uuid.UUID(int=0xABC)).upper()}, "UUID"),
        ({"study": ""}, "no study"),
        ({"rater_id": " \n"}, "no study, response or rater"),
        ({"comment": "\ud800"}, "not Unicode"),
        ({"kind": "like"}, "'like' is unknown"),
        ({"subject_kind": "essay"}, "'essay' is unknown"),
        ({"criterion_id": None}, "names its concept"),
        ({"subject_kind": "score"}, "on a score none"),
        ({"value": None}, "neither a level"),
        ({"value": "-1"}, "neither a level"),
        ({"value": "02"}, "neither a level"),
        ({"value": "٢"}, "neither a level"),
        ({"value": "2.0"}, "neither a level"),
        ({"subject_kind": "score", "criterion_id": None, "value": "nan"}, "neither a level"),
        ({"subject_kind": "score", "criterion_id": None, "value": "1_0"}, "neither a level"),
        ({"kind": "adjudicate", "comment": " "}, "records the discussion"),
        ({"digest": ""}, "digest"),
        ({"undoes": VOTE.act_id}, "undoes another"),
        ({"kind": "undo", "value": None}, "undoes another"),
        ({"kind": "submit"}, "no value"),
    ],
)
def test_an_act_that_makes_no_sense_is_none(changes, rule):
    with pytest.raises(ContractError, match=rule):
        replace(VOTE, **changes)


@settings(max_examples=40)
@given(
    st.text(st.characters(codec="utf-8"), min_size=1),
    st.text(st.characters(codec="utf-8"), min_size=1).filter(str.strip),
    st.none() | st.text(st.characters(codec="utf-8")),
)
def test_any_text_comes_back_as_it_was(study, text, comment):
    act = replace(VOTE, study=study, response_id=text, criterion_id=text, rater_id=text, comment=comment)
    with Ledger(":memory:") as ledger:
        assert asdict(act).items() <= asdict(ledger.add(act)).items()
        assert [as_act(stored) for stored in ledger.acts(study)] == [act]


def harmed(tmp_path, *statements):
    """A ledger of three acts, then changed behind its back."""
    with Ledger(tmp_path / "v") as ledger:
        ledger.add_all(vote(number) for number in range(3))
    with closing(sqlite3.connect(tmp_path / "v")) as raw:
        for name in ("no_update", "no_delete"):
            raw.execute(f"DROP TRIGGER {name}")
        for statement in statements:
            raw.execute(statement)
        raw.commit()
    return tmp_path / "v"


@pytest.mark.parametrize(
    ("statement", "rule"),
    [
        ("UPDATE acts SET value = '0' WHERE number = 2", "act 2 was changed"),
        ("UPDATE acts SET rater_id = 'kim', seal = NULL WHERE number = 2", "act 2 was changed"),
        ("DELETE FROM acts WHERE number = 2", "act 2 is missing"),
        ("DELETE FROM acts WHERE number = 3", "act 3 is missing"),
    ],
)
def test_an_act_that_was_changed_or_taken_out_is_named(tmp_path, statement, rule):
    with pytest.raises(StoreError, match=f"/v: the ledger of votes cannot be used: {rule}"):
        Ledger(harmed(tmp_path, statement))


def test_a_ledger_of_an_earlier_version_is_read_and_goes_on_with_seals(tmp_path):
    path = harmed(tmp_path, "ALTER TABLE acts DROP COLUMN seal")
    with Ledger(path) as ledger:
        assert len(ledger.acts("essays")) == 3
        ledger.add(vote(7))
        assert ledger.look() == (4, ())


@settings(max_examples=25)
@given(st.data())
def test_flipped_bytes_are_named_or_change_no_act(data):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "v"
        with Ledger(path) as ledger:
            acts = ledger.add_all(vote(number, comment="why " * number) for number in range(9))
        content = bytearray(path.read_bytes())
        for _ in range(data.draw(st.integers(1, 40))):
            content[data.draw(st.integers(0, len(content) - 1))] ^= 1 << data.draw(st.integers(0, 7))
        path.write_bytes(content)
        try:
            with Ledger(path) as ledger:
                said = "" if ledger.acts("essays") == acts else "other acts"
        except StoreError as error:
            said = str(error)
        assert not said or str(path) in said

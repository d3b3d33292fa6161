"""The record of a training: whatever moment a process is killed at, every batch that was added stands in it once."""

import logging
import shutil
import tempfile
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rubricflow.flows import recorder
from rubricflow.flows.recorder import MOST_BATCHES, Recorder, gather
from rubricflow.tasks.core.contracts.errors import StoreError
from rubricflow.tasks.core.contracts.tables.data import Responses
from rubricflow.tasks.core.contracts.tables.reward import HeldOutQuality
from rubricflow.tasks.core.store.warehouse import Run, Warehouse

ROLLOUTS = 3


class Killed(BaseException):
    """The end of a process."""


def batch(number):
    rows = [
        {
            "response_id": f"p-{number:06d}-{place}",
            "item_id": "i",
            "author_id": None,
            "text": "=1+1 \ud7ff",
            "split": "train",
            "groups": {},
        }
        for place in range(ROLLOUTS)
    ]
    quality = [{"step": number, "item_id": "i", "quality": 0.5}]
    return f"p-{number:06d}", {"trainer": {Responses: rows}, "held_out": {HeldOutQuality: quality}}


def recorded(run):
    """How often each batch stands in the record; each whole and in both stages."""
    if not run.shards("trainer"):
        return Counter()
    names = run.read(run.ref(Responses, "trainer"))["response_id"].to_pylist()
    steps = run.read(run.ref(HeldOutQuality, "held_out"))["step"].to_pylist()
    counts = Counter(int(name.split("-")[1]) for name in names)
    assert counts == Counter({number: count * ROLLOUTS for number, count in Counter(steps).items()})
    return Counter(steps)


def dying(monkeypatch, after):
    """Kills at the n-th of the steps that change something on disk: before it, or in the middle of it."""
    left = [after]

    def step(before):
        def stepping(*arguments, **named):
            left[0] -= 1
            if left[0] == 0:
                raise Killed
            before(*arguments, **named)

        return stepping

    monkeypatch.setattr(Run, "commit", step(Run.commit))
    monkeypatch.setattr(Path, "rename", step(Path.rename))
    monkeypatch.setattr(shutil, "rmtree", step(shutil.rmtree))
    monkeypatch.setattr(recorder, "conform", _half_way(recorder.conform, left))


def _half_way(conform, left):
    def conforming(row, rows):
        left[0] -= 1
        if left[0] == 0:
            raise Killed
        return conform(row, rows)

    return conforming


@settings(max_examples=20)
@given(after=st.integers(1, 80), again=st.integers(1, 20), batches=st.integers(1, 12))
def test_a_killed_process_loses_no_batch_and_none_stands_twice(after, again, batches):
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        run, added = Warehouse.open(folder).run("training"), []
        writer = Recorder(run)
        dying(patch, after)
        with suppress(Killed):
            for number in range(batches):
                writer.add(*batch(number))
                added.append(number)
            writer.close()
        patch.undo()
        dying(patch, again)  # whoever gathers may be killed, too
        with suppress(Killed):
            gather(run)
        patch.undo()
        gather(run)
        standing = recorded(run)
        assert set(standing.values()) <= {1}
        assert set(added) <= standing.keys() <= {*added, len(added)}


def test_a_long_training_has_few_files_and_something_to_look_at_from_the_first_batch(tmp_path):
    run = Warehouse.open(tmp_path).run("training")
    writer, shards = Recorder(run), []
    for number in range(3 * MOST_BATCHES):
        writer.add(*batch(number))
        shards.append(len(run.shards("trainer")))
    assert shards[0] == 1
    assert shards[-1] <= 3 + 7
    writer.close()
    assert recorded(run) == Counter(range(3 * MOST_BATCHES))
    assert [path.name for path in (run.folder / recorder.RECENT).iterdir()] == [".lock"]


def test_who_reads_the_record_has_all_of_it_and_several_may_write(tmp_path):
    run = Warehouse.open(tmp_path).run("training")
    writers = [Recorder(run) for _ in range(2)]
    for number in range(11):
        writers[number % 2].add(*batch(number))
        if number % 3 == 0:
            gather(run)
            assert recorded(run) == Counter(range(number + 1))
    for writer in (*writers, *writers):
        writer.close()
    assert recorded(run) == Counter(range(11))


def test_a_batch_that_cannot_be_put_aside_is_an_error_and_one_that_cannot_be_gathered_waits(
    tmp_path, monkeypatch, caplog
):
    run = Warehouse.open(tmp_path).run("training")
    writer = Recorder(run)

    def full(*_):
        raise StoreError("cannot write x: No space left on device")

    with monkeypatch.context() as patch, caplog.at_level(logging.WARNING):
        patch.setattr(Run, "commit", full)
        writer.add(*batch(0))
    assert "No space left" in caplog.text
    writer.add(*batch(1))
    with monkeypatch.context() as patch:
        patch.setattr(recorder, "conform", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device")))
        with pytest.raises(StoreError, match="No space left"):
            writer.add(*batch(2))
    writer.close()
    assert recorded(run) == Counter(range(2))

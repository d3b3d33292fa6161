"""Labels of a study with recorded replies: drawn among the responses that have one that can be read."""

from __future__ import annotations

import hashlib
from collections import Counter
from itertools import compress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from builders.files import write_csv
from hypothesis import given, settings
from hypothesis import strategies as st

from rubricflow.tasks.core.contracts.errors import InputError
from rubricflow.tasks.core.contracts.settings.data import Split
from rubricflow.tasks.core.contracts.settings.judge import Foreign
from rubricflow.tasks.core.contracts.settings.study import Study
from rubricflow.tasks.core.store.warehouse import Warehouse
from rubricflow.tasks.grading.ingest.survey import Survey, gradable, splits
from rubricflow.tasks.grading.ingest.task import ingest

FOREIGN: dict[str, Any] = {
    "file": "replies.csv",
    "response_id": "id",
    "reply": "reply",
    "reader": {"json_keys": ["score"]},
    "scale": {"min": 0, "max": 5},
}
REPLIES = {"good": '{"score": 3}', "off the scale": '{"score": 7}', "prose": "No idea.", "blank": ""}


def surveyed(rows: list[dict[str, Any]]) -> Survey:
    """rows: item, author, labelled."""
    return Survey(
        items={},
        places={f"r{n}": n for n in range(len(rows))},
        item_id=[row["item"] for row in rows],
        author_id=[row["author"] for row in rows],
        given=[None] * len(rows),
        labelled=bytearray(row["labelled"] for row in rows),
        kept=bytearray([1] * len(rows)),
    )


def sides_of(rows: list[dict[str, Any]], plan: Split) -> tuple[list[str | None], bytearray]:
    """The split, and which responses have a usable reply; rows: also `reply`, the kind of reply or None."""
    recorded = [[f"r{n}", REPLIES[row["reply"]]] for n, row in enumerate(rows) if row["reply"]]
    with TemporaryDirectory() as folder:
        write_csv(Path(folder) / "replies.csv", ["id", "reply"], recorded)
        able = gradable(surveyed(rows), Foreign.model_validate(FOREIGN), Path(folder))
    return splits(surveyed(rows), plan, able), able


ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "item": st.sampled_from("ab"),
            "author": st.sampled_from("uvwxyz"),
            "labelled": st.booleans(),
            "reply": st.sampled_from([None, "good", "good", *REPLIES]),
        }
    ),
    max_size=40,
).filter(lambda rows: any(row["reply"] == "good" for row in rows))


@settings(max_examples=20)
@given(ROWS, st.integers(0, 12), st.sampled_from(["item", "set"]), st.integers(0, 3))
def test_what_was_asked_for_calibrates_or_half_of_what_can(
    rows: list[dict[str, Any]], asked: int, per: Any, seed: int
) -> None:
    got, able = sides_of(rows, Split(calibration=asked, per=per, seed=seed))
    assert [bool(can) for can in able] == [row["reply"] == "good" for row in rows]
    pool_of = [row["item"] if per == "item" else "" for row in rows]
    usable = [row["labelled"] and row["reply"] == "good" for row in rows]
    calibrating = [side == "calibration" for side in got]
    pools, drawn = Counter(compress(pool_of, usable)), Counter(compress(pool_of, calibrating))
    assert drawn == Counter({pool: min(asked, count // 2) for pool, count in pools.items()})
    assert all(compress(usable, calibrating))


@settings(max_examples=20)
@given(ROWS, st.integers(0, 12), st.sampled_from(["item", "set"]), st.sampled_from(["author", "item"]))
def test_an_author_or_item_is_drawn_for_labels_that_can_be_used(
    rows: list[dict[str, Any]], asked: int, per: Any, by: Any
) -> None:
    got, _ = sides_of(rows, Split(calibration=asked, per=per, by=by))
    usable = Counter(row[by] for row in rows if row["labelled"] and row["reply"] == "good")
    chosen = {row[by] for row, side in zip(rows, got, strict=True) if side == "calibration"}
    assert chosen <= set(usable)
    assert sum(usable[whole] for whole in chosen) <= usable.total() // 2


def test_without_recorded_replies_the_split_is_as_it_was() -> None:
    rows = [{"item": f"i{n % 3}", "author": f"a{n % 50}", "labelled": n % 4 > 0} for n in range(300)]
    plans = [
        Split(calibration=40, per=per, by=by, seed=seed)
        for per in ("item", "set")
        for by in ("response", "author", "item")
        for seed in (0, 1)
    ]
    plans.append(Split(shares=(0.5, 0.3, 0.2)))
    drawn = "\n".join(",".join(map(str, splits(surveyed(rows), plan))) for plan in plans)
    assert hashlib.sha256(drawn.encode()).hexdigest()[:16] == "28dd6956d04502d1"


STUDY: dict[str, Any] = {
    "name": "s",
    "data": {
        "sources": [
            {"file": "items.csv", "items": {"item_id": "id", "question": "question"}},
            {
                "file": "responses.csv",
                "responses": {"response_id": "id", "item_id": "item", "text": "text"},
                "scores": [{"rater": "a", "score": "a"}],
            },
        ]
    },
    "rubrics": {"file": "rubrics.yaml"},
    "judge": {"protocol": "dhs", "backend": "replay", "foreign": FOREIGN},
    "split": {"calibration": 200},
}


@pytest.fixture
def base(tmp_path: Path) -> Path:
    write_csv(tmp_path / "items.csv", ["id", "question"], [["i", "Why?"]])
    write_csv(tmp_path / "responses.csv", ["id", "item", "text", "a"], [[f"r{n}", "i", "Heat.", 1] for n in range(40)])
    write_csv(tmp_path / "replies.csv", ["id", "reply"], [[f"r{n}", REPLIES["good"]] for n in range(0, 40, 5)])
    return tmp_path


def split_of(base: Path, study: dict[str, Any], limit: int | None = None) -> dict[str, str]:
    run = Warehouse.open(base / "house").run("r")
    rows = run.read(ingest.fn(run, Study.model_validate(study), base, limit).responses).to_pylist()
    return {row["response_id"]: row["split"] for row in rows}


def test_the_run_says_what_was_drawn_from_what(base: Path, capsys: pytest.CaptureFixture[str]) -> None:
    got = split_of(base, STUDY)
    calibrating = {name for name, side in got.items() if side == "calibration"}
    assert len(calibrating) == 4
    assert calibrating <= {f"r{n}" for n in range(0, 40, 5)}
    assert set(got.values()) == {"calibration", "test"}
    assert capsys.readouterr().err == (
        "split: 4 of 8 labelled responses with a readable recorded reply calibrate; 32 labelled ones have none\n"
    )


def test_replies_about_other_responses_are_refused(base: Path) -> None:
    write_csv(base / "replies.csv", ["id", "reply"], [["x1", REPLIES["good"]]])
    with pytest.raises(InputError, match="no reply is about a response of the data, such as 'r0'"):
        split_of(base, STUDY)


def test_a_reader_that_reads_nothing_is_refused_with_what_it_looked_for(base: Path) -> None:
    foreign = FOREIGN | {"reader": {"json_keys": [["total", "mark"], "bonus"]}}
    with pytest.raises(InputError, match="none of 8 replies reads as a score") as stop:
        split_of(base, STUDY | {"judge": STUDY["judge"] | {"foreign": foreign}})
    assert (stop.value.file, stop.value.hint) == ("replies.csv", "looked for total/mark + bonus")

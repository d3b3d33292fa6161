"""The door of ingest, end to end on small files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rubricflow.tasks.core.contracts.errors import InputError
from rubricflow.tasks.core.contracts.schema import TableRef
from rubricflow.tasks.core.contracts.settings.study import Study
from rubricflow.tasks.core.store.warehouse import Run, Warehouse
from rubricflow.tasks.grading.ingest.task import Ingested, ingest

STUDY: dict[str, Any] = {
    "name": "s",
    "data": {
        "sources": [
            {"file": "items.csv", "items": {"item_id": "id", "question": "question"}},
            {
                "file": "responses.csv",
                "responses": {"response_id": "id", "item_id": "item", "text": "text"},
                "scores": [{"rater": "a", "score": "a"}, {"rater": "b", "score": "b"}],
            },
        ]
    },
    "rubrics": {"file": "rubrics.yaml"},
    "split": {"calibration": 100},
}


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """Eight responses to one item: a scores the first six, b the last four."""
    (tmp_path / "items.csv").write_text("id,question\ni,Why?\n")
    lines = [f"r{n},i,Heat. {n},{n if n < 6 else ''},{n if n >= 4 else ''}" for n in range(8)]
    (tmp_path / "responses.csv").write_text("\n".join(["id,item,text,a,b", *lines]) + "\n")
    return tmp_path


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Warehouse.open(tmp_path / "warehouse").run("one")


def tables_of(data: Ingested) -> list[TableRef]:
    return [ref for ref in data if ref]


def calibrating(run: Run, data: Ingested) -> set[str]:
    rows = run.read(data.responses).to_pylist()
    return {row["response_id"] for row in rows if row["split"] == "calibration"}


def test_every_table_is_written(base: Path, run: Run) -> None:
    data = ingest.fn(run, Study.model_validate(STUDY), base)
    assert data.preferences is None  # there are no pairs
    assert [ref.rows for ref in tables_of(data)] == [1, 8, 24, 10, 0, 0]
    assert [ref.table for ref in tables_of(data)] == list(Ingested._fields[:-1])


@pytest.mark.parametrize(("target", "labelled", "count"), [("mean", 8, 4), ("a", 6, 3), ("b", 4, 2)])
def test_the_targets_labels_calibrate(base: Path, run: Run, target: str, labelled: int, count: int) -> None:
    study = Study.model_validate(STUDY | {"evaluation": {"target": target}})
    chosen = calibrating(run, ingest.fn(run, study, base))
    first = 4 if target == "b" else 0
    assert len(chosen) == count
    assert chosen <= {f"r{n}" for n in range(first, first + labelled)}


def test_a_limit_that_leaves_the_target_no_score_is_no_mistake(base: Path, run: Run) -> None:
    study = Study.model_validate(STUDY | {"evaluation": {"target": "a"}})
    assert calibrating(run, ingest.fn(run, study, base, 1)) == set()  # r6 is drawn


def test_a_target_that_is_no_rater_is_named(base: Path, run: Run) -> None:
    study = Study.model_validate(STUDY | {"evaluation": {"target": "c"}})
    with pytest.raises(InputError, match="'c' is no rater of the sources; there are a, b") as stop:
        ingest.fn(run, study, base)
    assert stop.value.field == "evaluation.target"
    assert not run.done("ingest", "all")


def test_what_a_machine_recorded_is_no_target(base: Path, run: Run) -> None:
    recorded = {"rater": "b", "kind": "replayed", "score": "b"}
    sources = STUDY["data"]["sources"]
    data = {"sources": [sources[0], sources[1] | {"scores": [sources[1]["scores"][0], recorded]}]}
    study = STUDY | {"data": data}
    with pytest.raises(InputError, match="'b' is no rater of the sources; there are a"):
        ingest.fn(run, Study.model_validate(study | {"evaluation": {"target": "b"}}), base)
    assert calibrating(run, ingest.fn(run, Study.model_validate(study), base)) <= {f"r{n}" for n in range(6)}


def test_shards_hold_what_one_table_would(base: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    study = Study.model_validate(STUDY)
    whole = ingest.fn(run, study, base)
    monkeypatch.setattr("rubricflow.tasks.core.store.source.ROWS", 3)
    other = run.warehouse.run("other")
    cut = ingest.fn(other, study, base)
    assert [ref.digest for ref in tables_of(cut)] == [ref.digest for ref in tables_of(whole)]
    assert sorted(other.shards("ingest")) == ["00000", "00001", "00002", "all"]
    assert other.read(cut.responses)["response_id"].to_pylist() == [f"r{n}" for n in range(8)]


def test_a_bad_last_row_leaves_nothing_written(base: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rubricflow.tasks.core.store.source.ROWS", 3)
    with (base / "responses.csv").open("a") as file:
        file.write("r0,i,again,1,1\n")
    with pytest.raises(InputError, match=r"responses\.csv, line 10 .row 9., .*: response id 'r0' occurs twice"):
        ingest.fn(run, Study.model_validate(STUDY), base)
    assert not run.folder.exists()


@pytest.mark.parametrize("after", [0, 2, 3])
def test_a_killed_ingest_ends_like_any_other(base: Path, run: Run, monkeypatch: pytest.MonkeyPatch, after: int) -> None:
    study = Study.model_validate(STUDY)
    whole = ingest.fn(run, study, base)
    monkeypatch.setattr("rubricflow.tasks.core.store.source.ROWS", 3)
    other, commit, left = run.warehouse.run("other"), Run.commit, iter(range(after))

    def dying(self: Run, *shard: Any) -> None:
        if next(left, None) is None:
            raise KeyboardInterrupt
        commit(self, *shard)

    with monkeypatch.context() as killed:
        killed.setattr(Run, "commit", dying)
        with pytest.raises(KeyboardInterrupt):
            ingest.fn(other, study, base)
    assert len(other.shards("ingest")) == after
    assert not other.done("ingest", "all")
    again = ingest.fn(other, study, base)
    assert [ref.digest for ref in tables_of(again)] == [ref.digest for ref in tables_of(whole)]


def fair_study(**more: Any) -> Study:
    return Study.model_validate(STUDY | {"evaluation": {"target": "fair"} | more})


@pytest.fixture
def marked_twice(tmp_path: Path) -> Path:
    """Sixty responses; b gives one less than a wherever both mark, a alone marks each third, b alone each fourth."""
    (tmp_path / "items.csv").write_text("id,question\ni,Why?\n")
    lines = []
    for n in range(60):
        score = 1 + n % 4
        a, b = ("" if n % 4 == 1 else score), ("" if n % 3 == 0 else score - 1)
        lines.append(f"r{n:02d},i,Heat. {n},{a},{b if a != '' or b != '' else score - 1}")
    (tmp_path / "responses.csv").write_text("\n".join(["id,item,text,a,b", *lines]) + "\n")
    return tmp_path


def fair_rows(run: Run, data: Ingested) -> dict[str, dict[str, Any]]:
    return {row["response_id"]: row for row in run.read(data.gradings).to_pylist() if row["rater_id"] == "fair"}


def test_fair_scores_are_gradings_of_every_marked_response(marked_twice: Path, run: Run) -> None:
    data = ingest.fn(run, fair_study(), marked_twice)
    given = [row for row in run.read(data.gradings).to_pylist() if row["rater_id"] != "fair"]
    fair = fair_rows(run, data)
    assert fair.keys() == {row["response_id"] for row in given}
    for key, row in fair.items():
        own = [one for one in given if one["response_id"] == key]
        assert row["rater_kind"] == "adjudication"
        assert dict(row["signals"])["ratings"] == len(own)
        assert dict(row["signals"])["standard_error"] > 0
    single = {key for key, row in fair.items() if dict(row["signals"])["ratings"] == 1}
    ones = {row["rater_id"]: row["response_id"] for row in given if row["score"] == 1 and row["response_id"] in single}
    assert fair[ones["a"]]["score"] < 1 < fair[ones["b"]]["score"]


def test_what_a_calibration_learns_from_is_blind_to_the_test_split(marked_twice: Path, tmp_path: Path) -> None:
    first = Warehouse.open(tmp_path / "w").run("one")
    data = ingest.fn(first, fair_study(), marked_twice)
    side = {row["response_id"]: row["split"] for row in first.read(data.responses).to_pylist()}
    head, *lines = (marked_twice / "responses.csv").read_text().splitlines()
    turned = [line if side[line[:3]] != "test" else _turned(line) for line in lines]
    (marked_twice / "responses.csv").write_text("\n".join([head, *turned]) + "\n")
    other = Warehouse.open(tmp_path / "w").run("two")
    before, after = fair_rows(first, data), fair_rows(other, ingest.fn(other, fair_study(), marked_twice))
    learnt = [key for key in before if side[key] != "test"]
    assert learnt
    assert all(after[key]["score"] == before[key]["score"] for key in learnt)
    assert any(after[key]["score"] != before[key]["score"] for key in before if side[key] == "test")


def _turned(line: str) -> str:
    *rest, a, b = line.split(",")
    return ",".join([*rest, a and str(4 - int(a)), b and str(4 - int(b))])


def test_raters_who_share_nothing_are_no_ground_for_fair_scores(base: Path, run: Run) -> None:
    lines = [f"r{n},i,Heat. {n},{n if n < 4 else ''},{n if n >= 4 else ''}" for n in range(8)]
    (base / "responses.csv").write_text("\n".join(["id,item,text,a,b", *lines]) + "\n")
    with pytest.raises(InputError, match=r"2 sets that share no response in the train and calibration.*: a; b") as stop:
        ingest.fn(run, fair_study(), base)
    assert stop.value.field == "evaluation.target"
    assert not run.done("ingest", "all")
    by_chance = fair_study().model_copy(
        update={"evaluation": fair_study().evaluation.model_copy(update={"random_assignment": True})}
    )
    assert len(fair_rows(run, ingest.fn(run, by_chance, base))) == 8


def test_a_rater_may_not_take_the_name_of_the_fair_score(base: Path, run: Run) -> None:
    sources = [
        STUDY["data"]["sources"][0],
        STUDY["data"]["sources"][1] | {"scores": [{"rater": "fair", "score": "a"}]},
    ]
    study = Study.model_validate(STUDY | {"data": {"sources": sources}, "evaluation": {"target": "fair"}})
    with pytest.raises(InputError, match="a rater of the sources is called 'fair'"):
        ingest.fn(run, study, base)

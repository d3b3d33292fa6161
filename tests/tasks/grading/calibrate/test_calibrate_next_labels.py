"""What a graded run says of the labels it has, and which it asks for next."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from builders.bundles import bundle, criterion, trait
from builders.rows import grading, item, locked, response
from builders.studies import study

from rubricflow.tasks.core.contracts.schema import conform
from rubricflow.tasks.core.contracts.settings.study import Release
from rubricflow.tasks.core.contracts.tables.calibration import Calibrations, ReleaseRules
from rubricflow.tasks.core.contracts.tables.data import Items, Responses
from rubricflow.tasks.core.contracts.tables.judging import Gradings
from rubricflow.tasks.core.contracts.tables.people import NextLabels
from rubricflow.tasks.core.contracts.tables.rubrics import Bundles
from rubricflow.tasks.core.store.warehouse import Warehouse
from rubricflow.tasks.grading.calibrate.next_labels import (
    agreement,
    held_out,
    labels,
    next_labels,
    promise,
    read_items,
    read_predictions,
)
from rubricflow.tasks.grading.calibrate.task import calibrate

ONE = bundle(criterion("c1"), ends=(0, 4), traits=(trait("t", 0, 3),), name="pointwise", signals=("criteria", "length"))
LABELLED = {"q1": 40, "q2": 3}
SIZE = 80


def graded(root, plan, split=lambda at: "test" if at % 2 else "calibration", label=round):
    """A run of two items with 80 responses each, the first 40 and 3 labelled; number 79 of each has no score."""
    rng = np.random.default_rng(0)
    responses, people, machine = [], [], []
    for item_id, labelled in LABELLED.items():
        for at in range(SIZE):
            key, quality = f"{item_id}-{at}", rng.random()
            side = split(at) if at < labelled else "test"
            responses.append(response(key, item_id, author_id=f"a{at}", split=side))
            signals = {"criterion.c1": quality, "length": 5 + rng.random()}
            given = {"item_id": item_id, "signals": signals if at < SIZE - 1 else {}}
            machine.append(grading(key, "m", float(round(4 * quality)) if at < SIZE - 1 else None, **given))
            if at < labelled:
                people.append(grading(key, "h", float(label(4 * quality)), item_id=item_id))
    run = Warehouse.open(root).run("small")
    run.commit("ingest", "all", {Items: map(item, LABELLED), Responses: responses, Gradings: people})
    run.commit("lock", "all", {Bundles: [locked(ONE, name) for name in LABELLED]})
    run.commit("judge", "all", {Gradings: machine})
    ingested = (run.ref(Items, "ingest"), run.ref(Responses, "ingest"), run.ref(Gradings, "ingest"))
    calibrate.fn(run, plan, *ingested, run.ref(Gradings, "judge"), run.ref(Bundles, "lock"))
    return read_items(run, plan), read_predictions(run)


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """Items and predictions of a run as they are, and its study."""
    return *graded(tmp_path_factory.mktemp("plain"), study()), study()


class TestNextLabels:
    def test_asks_about_what_is_graded_and_has_no_label(self, plain):
        rows = next_labels(*plain, 1000)
        assert {row["response_id"] for row in rows} == {
            f"{name}-{at}" for name, labelled in LABELLED.items() for at in range(labelled, SIZE - 1)
        }
        assert [row["rank"] for row in rows] == list(range(1, len(rows) + 1))
        assert len(conform(NextLabels, rows)) == len(rows)

    def test_says_of_each_how_it_was_sampled_and_why(self, plain):
        rows = next_labels(*plain, 20)
        assert {row["sampled"] for row in rows} == {"chosen", "drawn"}
        first = next(row for row in rows if row["sampled"] == "chosen")
        assert (first["item_id"], first["why"]) == ("q2", "its item has 2 labels")
        drawn = {row["why"] for row in rows if row["sampled"] == "drawn"}
        assert drawn == {"drawn by chance: its label counts for the promise and the figures"}

    def test_a_score_that_nobody_gave_is_a_reason(self, tmp_path):
        plan = study(calibration={"method": "identity"})
        rows = next_labels(*graded(tmp_path / "w", plan, label=lambda score: min(2, round(score))), plan, 60)
        assert any("no person has given yet" in row["why"] for row in rows if row["sampled"] == "chosen")

    @pytest.mark.parametrize("by", ["item", "author"])
    def test_where_items_or_authors_of_several_are_kept_whole_none_is_chosen(self, plain, by):
        rows = next_labels(*plain[:2], study(split={"by": by}), 20)
        assert {row["sampled"] for row in rows} == {"drawn"}

    def test_the_held_out_labels_teach_nothing(self, tmp_path):
        plan = study()
        rows = next_labels(*graded(tmp_path / "w", plan, split=lambda _: "test"), plan, 20)
        assert {row["why"] for row in rows if row["sampled"] == "chosen"} == {"its item has 0 labels"}

    def test_everything_labelled_is_nothing_to_ask(self, plain):
        items, predictions, _ = plain
        known = [item._replace(rows=item.rows.filter(pc.is_valid(item.rows["target"]))) for item in items]
        assert next_labels(known, predictions, study(), 20) == []
        assert next_labels([], pa.table({}), study(), 20) == []


class TestHeldOut:
    def test_are_the_test_scores_with_a_label_and_a_risk(self, plain):
        items, predictions, _ = plain
        found = held_out(items, predictions, 1.0)
        rows = [row for item in items for row in item.rows.to_pylist()]
        tested = {row["response_id"] for row in rows if row["split"] == "test" and row["target"] is not None}
        counted = (None, "no_promise", "risk")
        told = {row["response_id"] for row in predictions.to_pylist() if row["route_reason"] in counted}
        assert len(found.risk) == len(tested & told) >= 20
        assert not found.wrong.any()
        assert held_out(items, predictions, 0.0).wrong.sum() >= found.wrong.sum()
        assert len(held_out([], predictions, 1.0).risk) == 0


def figure(**changes):
    row = {"stage": "calibrated", "value": 0.5, "low": 0.3, "high": 0.7, "n": 50, "note": None}
    return row | changes


def rule(scope, threshold=None, **changes):
    kept = threshold is not None
    row = {"scope": scope, "threshold": threshold, "n": 60, "released": 50 * kept, "wrong": int(kept), "upper": 0.07}
    row |= {"refused": None if kept else "no_promise", "note": None}
    return row | changes


class TestSupport:
    def test_counts_labels_by_what_becomes_of_them(self, tmp_path):
        sides = ("calibration", "test", "chosen")
        items, _ = graded(tmp_path / "w", study(), split=lambda at: sides[at % 3])
        assert labels(items) == "43 labels of 160 graded responses: 15 calibration, 14 test, 14 chosen"

    def test_agreement_stands_beside_people_with_its_interval_and_number(self):
        told = agreement([figure(), figure(stage="human", value=0.8, n=40)])
        assert told == (
            "agreement: QWK 0.50, 95% interval [0.30, 0.70], on 50 held-out responses; two people: 0.80 on 40; "
            "about 750 more held out would tell it within ±0.05"
        )

    def test_agreement_that_is_not_known_says_why(self):
        assert agreement([]).endswith("no labels are held out")
        assert agreement([figure(value=None, note="both are constant")]).endswith("both are constant")
        assert "without an interval" in agreement([figure(low=None, high=None)])

    @pytest.mark.parametrize(
        ("rules", "told"),
        [
            ([rule("all", 0.1)], "kept for 50 of 60 labels (1 wrong, at most 7.0%)"),
            ([rule("a", 0.1), rule("b", 0.1)], "kept for 2 of 2 items"),
            ([rule("a", 0.1), rule("b")], "kept for 1 of 2 items; for the others, about 104"),
            ([rule("all")], "nothing may be released; about 104"),
        ],
    )
    def test_the_promise_and_what_it_takes(self, plain, rules, told):
        assert told in promise(rules, held_out(*plain[:2], 1.0), Release(risk=0.1))

    def test_a_promise_that_no_number_of_labels_makes(self, plain):
        risks = held_out(*plain[:2], 1.0)
        wrong = risks._replace(wrong=np.ones_like(risks.wrong))
        assert "for any number of labels" in promise([rule("all")], wrong, Release())
        empty = wrong._replace(risk=np.empty(0), wrong=np.empty(0, dtype=bool))
        assert "no held-out score tells" in promise([rule("all")], empty, Release())


class TestChosenLabels:
    def test_teach_the_mapping_and_have_no_part_in_the_promise(self, tmp_path):
        def fitted(folder, side):
            plan = study(calibration={"method": "identity"}, release={"by": "set"})
            graded(tmp_path / folder, plan, split=lambda at: side if at % 4 == 1 else ("calibration", "test")[at % 2])
            run = Warehouse.open(tmp_path / folder).run("small")
            promises = run.read(run.ref(ReleaseRules, "calibrate")).to_pylist()
            return run.read(run.ref(Calibrations, "calibrate"))["n"].to_pylist(), promises[0]["n"]

        (without, promised), (with_them, still) = fitted("test", "test"), fitted("chosen", "chosen")
        assert with_them[0] == without[0] + 11
        assert still == promised

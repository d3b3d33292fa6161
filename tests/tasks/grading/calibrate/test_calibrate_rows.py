"""Gradings to features, mappings and predictions, without files."""

import itertools
import json
import math

import numpy as np
import pyarrow as pa
import pytest
from builders.bundles import bundle as locked
from builders.bundles import criterion, trait
from builders.rows import grading as grading_row
from builders.studies import study as least_study
from hypothesis import given, settings
from hypothesis import strategies as st

from rubricflow.tasks.core.contracts.errors import ContractError
from rubricflow.tasks.core.contracts.schema import schema
from rubricflow.tasks.core.contracts.tables.calibration import Predictions
from rubricflow.tasks.core.contracts.tables.judging import Gradings
from rubricflow.tasks.grading.calibrate.alignment import apply, fit
from rubricflow.tasks.grading.calibrate.calibration import read_calibration
from rubricflow.tasks.grading.calibrate.features import feature_names, features, map_columns, matrix
from rubricflow.tasks.grading.calibrate.fit import fit_items
from rubricflow.tasks.grading.calibrate.predictions import predict
from rubricflow.tasks.grading.calibrate.rows import (
    GRADING,
    Item,
    graded_items,
    one_per_response,
    only_rater,
    whole_responses,
)

GRADING_SCHEMA = pa.schema([schema(Gradings).field(name) for name in GRADING])
PEOPLE = ("response_id", "rater_id", "rater_kind", "score")
PEOPLE_SCHEMA = pa.schema([schema(Gradings).field(name) for name in PEOPLE])
SPLIT_SCHEMA = pa.schema([("response_id", pa.string()), ("split", pa.string()), ("author_id", pa.string())])
METHODS = ["stacked", "rulers", "linear", "isotonic", "linking", "identity", "text_only"]
RULERS = ("trait_scores", "length", "confidence", "uncertainty", "tie")


def bundle(signals=RULERS, traits=("a", "b"), scale=(0, 3, 1), trait_range=(0, 3), text=""):
    of = tuple(trait(name, *trait_range) for name in traits)
    return locked(*(criterion(f"c{name}", name) for name in traits), ends=scale, traits=of, text=text, signals=signals)


def grading(response, score=1.0, traits=None, signals=None, item="q", rater="m", **changes):
    given = {"item_id": item, "trait_scores": traits or {}, "signals": signals or {}}
    return grading_row(response, rater, score, **given | changes)


def table(*rows):
    return pa.Table.from_pylist(list(rows), schema=GRADING_SCHEMA)


def judged(response, quality, item="q", top=3, **more):
    """A judge whose traits and length follow a quality in 0 .. 1."""
    traits = {"a": round(top * quality), "b": round(top * (1 - (1 - quality) ** 2))}
    means = {"mean.a": quality, "mean.b": 1 - (1 - quality) ** 2, "criterion.ca": quality, "criterion.cb": quality**2}
    signals = {"length": math.log1p(100 * quality), "tie": float(round(9 * quality) % 2), **means}
    return grading(response, float(round(top * quality)), traits, signals, item, **more)


def class_set(seed, sizes, bundles, calibration=40):
    """Items with graded responses; human scores for all of them, the first `calibration` of each calibrate."""
    rng = np.random.default_rng(seed)
    rows, people, splits = [], [], []
    for (item, size), one in zip(sizes.items(), bundles.values(), strict=True):
        for at, quality in enumerate(rng.random(size)):
            name = f"{item}-{at:03d}"
            noisy = np.clip(quality + rng.normal(0, 0.15), 0, 1)
            score = one.scale.min + one.scale.step * round(noisy * (one.scale.levels - 1))
            rows.append(judged(name, quality, item))
            people.append({"response_id": name, "rater_id": "r1", "score": float(score)})
            splits.append({"response_id": name, "split": "calibration" if at < calibration else "test"})
    return rows, people, splits


def items_of(bundles, rows, people, splits, target="mean"):
    human = pa.Table.from_pylist([{"rater_kind": "human"} | row for row in people], schema=PEOPLE_SCHEMA)
    return graded_items(bundles, table(*rows), pa.Table.from_pylist(splits, schema=SPLIT_SCHEMA), human, target)


def study(method="rulers", minimum=20, **release):
    return least_study(calibration={"method": method, "minimum": minimum}, release=release)


def run_all(bundles, rows, people, splits, plan=None):
    """Mappings by item, and predictions by response."""
    items = items_of(bundles, rows, people, splits)
    fitted = fit_items(items, "m", plan or study()).mappings
    predicted = [row for item in items for row in predict(fitted[item.item_id], item).to_pylist()]
    return fitted, {row["response_id"]: row for row in predicted}


# features


def test_each_signal_has_its_columns_in_bundle_order():
    one = bundle(("criteria", "trait_means", "score", "trait_scores", "tie", "tie"))
    names = ["criterion.ca", "criterion.cb", "mean.a", "mean.b", "score", "trait.a", "trait.b", "tie"]
    assert feature_names([one], pooled=False) == (names, [])


def test_the_papers_trace_is_rebuilt_from_a_grading():
    four = bundle(traits=("t1", "t2", "t3", "t4"), scale=(1, 6, 1), trait_range=(1, 6))
    row = grading(
        "r",
        4.0,
        {"t1": 4, "t2": 4, "t3": 3, "t4": 3},
        {"length": math.log1p(2307), "confidence": 0.85, "uncertainty": 0.15, "tie": 0.0, "quotes": 9.0},
    )
    found = features([(table(row), four)], pooled=False)
    assert found.names == ("trait.t1", "trait.t2", "trait.t3", "trait.t4", "length", "confidence", "uncertainty", "tie")
    assert found.matrix.tolist() == [[4, 4, 3, 3, math.log(2308), 0.85, 0.15, 0]]
    assert found.usable.all()
    assert found.left_out == ()


def test_what_the_judge_never_gives_is_left_out_and_named():
    found = features([(table(judged("r1", 0.2), judged("r2", 0.9)), bundle())], pooled=False)
    assert found.names == ("trait.a", "trait.b", "length", "tie")
    assert found.left_out == ("confidence", "uncertainty")


def test_a_row_without_a_given_feature_is_not_usable():
    rows = table(
        judged("r1", 0.2),
        grading("r2", 1.0, {"a": 1}, {"length": 3.0, "tie": 0.0}),
        judged("r3", 0.5, status="precheck"),
        grading("r4", None, {"a": 1, "b": 1}, {"length": 3.0, "tie": 0.0}),
    )
    assert features([(rows, bundle())], pooled=False).usable.tolist() == [True, False, False, False]


def test_an_absent_count_of_invalid_quotes_is_none_found():
    one = bundle(("invalid_evidence", "tie"))
    rows = table(grading("r1", 1.0, {}, {"tie": 0.0}), grading("r2", 1.0, {}, {"tie": 1.0, "invalid_evidence": 2.0}))
    assert features([(rows, one)], pooled=False).matrix.tolist() == [[0, 0], [2, 1]]
    assert features([(rows.slice(0, 1), one)], pooled=False).left_out == ("invalid_evidence",)


def test_pooled_features_are_shares_of_each_items_ranges():
    signals = ("trait_scores", "trait_means", "score", "length", "criteria")
    small, large = bundle(signals), bundle(signals, scale=(10, 60, 10), trait_range=(1, 6))
    rows = grading("r", 3.0, {"a": 3, "b": 1.5}, {"mean.a": 0.9, "mean.b": 0.4, "length": 5.0})
    other = grading("s", 20.0, {"a": 6, "b": 1}, {"mean.a": 1.0, "mean.b": 0.0, "length": 6.0})
    found = features([(table(rows), small), (table(other), large)], pooled=True)
    assert found.names == ("trait.a", "trait.b", "mean.a", "mean.b", "score", "length")
    np.testing.assert_allclose(found.matrix, [[1, 0.5, 0.9, 0.4, 1, 5], [1, 0, 1, 0, 0.2, 6]])
    assert found.left_out == ("criteria",)


def test_pooled_items_with_other_traits_share_the_mean_of_their_traits():
    signals = ("trait_scores", "trait_means")
    parts = [
        (table(grading("r", 1.0, {"a": 3, "b": 0}, {"mean.a": 0.8, "mean.b": 0.2})), bundle(signals)),
        (table(grading("s", 1.0, {"x": 3}, {"mean.x": 0.9})), bundle(signals, traits=("x",))),
    ]
    found = features(parts, pooled=True)
    assert found.names == ("trait.mean", "mean.mean")
    np.testing.assert_allclose(found.matrix, [[0.5, 0.5], [1, 0.9]])


def test_a_trait_called_mean_is_not_taken_for_the_mean():
    odd = bundle(("trait_scores",), traits=("mean", "b"))
    rows = table(grading("r", 1.0, {"mean": 3, "b": 0}))
    assert features([(rows, odd)], pooled=False).matrix.tolist() == [[3, 0]]
    assert features([(rows, odd), (rows, odd)], pooled=True).matrix.tolist() == [[0.5], [0.5]]


def test_a_feature_that_the_bundle_cannot_give_is_refused():
    with pytest.raises(ContractError, match=r"trait\.zzz"):
        matrix(table(judged("r", 0.5)), bundle(), ["trait.zzz"], pooled=True)


def test_map_columns_reads_slices_chunks_and_absences():
    rows = [{"x": 1.0}, {}, {"y": 2.0, "x": 3.0}, {"z": 4.0}]
    kind = pa.map_(pa.string(), pa.float64())
    whole = pa.array([list(row.items()) for row in rows], kind)
    column = pa.chunked_array([whole.slice(1, 2), whole.slice(0, 0), whole.slice(0, 1), whole.slice(3)], kind)
    expected = [[math.nan, math.nan], [2, 3], [math.nan, 1], [math.nan, math.nan]]
    np.testing.assert_array_equal(map_columns(column, ["y", "x"]), expected)
    assert map_columns(pa.chunked_array([], kind), ["x"]).shape == (0, 1)
    assert map_columns(column, []).shape == (4, 0)


# samples and human scores


def test_samples_are_averaged_over_the_scored_ones():
    rows = table(
        grading("r2", None, sample=0, unscored_reason="unreadable_reply"),
        grading("r1", 3.0, {"a": 3}, {"length": 4.0, "tie": 1.0}, sample=1),
        grading("r1", None, {"a": 9}, {"length": 99.0}, sample=2, unscored_reason="no_reply"),
        grading("r1", 2.0, {"a": 2, "b": 1}, {"length": 4.0, "tie": 0.0}, sample=0),
        grading("r2", None, sample=1),
        grading("r3", 0.0, {}, {"precheck": 1.0}, status="precheck", sample=0),
        grading("r3", 0.0, {}, {"precheck": 1.0}, status="precheck", sample=1),
    )
    found = one_per_response(rows).to_pylist()
    assert [row["response_id"] for row in found] == ["r1", "r2", "r3"]
    assert [row["score"] for row in found] == [2.5, None, 0.0]
    assert [row["status"] for row in found] == ["scored", "unscored", "precheck"]
    assert found[0]["trait_scores"] == [("a", 2.5), ("b", 1.0)]
    assert found[0]["signals"] == [("length", 4.0), ("tie", 0.5)]
    assert found[1]["unscored_reason"] == "unreadable_reply"


def test_gradings_of_two_raters_or_of_an_unknown_item_are_refused():
    with pytest.raises(ContractError, match="m, n"):
        only_rater(["m", "n", "m"])
    with pytest.raises(ContractError, match="'q'"):
        items_of({"other": bundle()}, [judged("r1", 0.5)], [], [])


def test_rows_are_put_with_their_item():
    bundles = {"b": bundle(), "ä": bundle(), "B": bundle(), "none": bundle(), "": bundle()}
    names = ["ä", "b", "B", "b", ""]
    rows = [judged(f"r{5 - at}", 0.5, item) for at, item in enumerate(names)]
    items = items_of(bundles, rows, [{"response_id": "r2", "rater_id": "h", "score": 2.0}], [])
    found = {item.item_id: item.rows["response_id"].to_pylist() for item in items}
    assert found == {"": ["r1"], "B": ["r3"], "b": ["r2", "r4"], "none": [], "ä": ["r5"]}
    assert {item.item_id: item.rows["target"].to_pylist() for item in items}["b"] == [2.0, None]


# mappings and predictions


def test_an_item_with_enough_labels_has_the_published_mapping_of_its_own():
    bundles = {"q": bundle()}
    rows, people, splits = class_set(0, {"q": 70}, bundles)
    fitted, predicted = run_all(bundles, rows, people, splits)
    mapping = fitted["q"]
    assert (mapping.scope, mapping.method, mapping.n) == ("q", "rulers", 40)
    assert mapping.features == ("trait.a", "trait.b", "length", "tie")
    x = [[*row["trait_scores"].values(), row["signals"]["length"], row["signals"]["tie"]] for row in rows]
    expected = apply(fit(x[:40], [row["score"] for row in people[:40]], 0, 3), x, (0, 3, 1))
    found = [predicted[row["response_id"]] for row in rows]
    for name in ("latent", "aligned", "score", "clipped"):
        assert [row[name] for row in found] == getattr(expected, name).tolist()
    assert {row["calibration_id"] for row in found} == {mapping.calibration_id}
    assert [row["raw"] for row in found] == [row["score"] for row in rows]


def test_items_with_few_labels_share_a_pooled_mapping_each_on_its_own_scale():
    bundles = {"big": bundle(), "p": bundle(scale=(0, 5, 0.5)), "q": bundle(scale=(10, 60, 10)), "unseen": bundle()}
    sizes = {"big": 60, "p": 25, "q": 25}
    rows, people, splits = class_set(1, sizes, {name: bundles[name] for name in sizes}, calibration=15)
    splits = [row | {"split": "calibration"} if row["response_id"].startswith("big") else row for row in splits]
    rows += [judged("unseen-1", 0.9, "unseen")]
    splits += [{"response_id": "unseen-1", "split": "test"}]
    fitted, predicted = run_all(bundles, rows, people, splits)
    assert fitted["big"].scope == "big"
    assert fitted["p"] is fitted["q"] is fitted["unseen"]
    assert (fitted["p"].scope, fitted["p"].bundle_id, fitted["p"].n) == ("pooled", None, 30)
    by_item = {name: [row for row in predicted.values() if row["item_id"] == name] for name in bundles}
    assert {row["score"] for row in by_item["p"]} <= {k / 2 for k in range(11)}
    assert {row["score"] for row in by_item["q"]} <= {10.0 * k for k in range(1, 7)}
    assert len({row["score"] for row in by_item["q"]}) > 2
    assert all(10 <= row["aligned"] <= 60 for row in by_item["q"])
    assert by_item["unseen"][0]["score"] in {0, 1, 2, 3}


def test_pooled_quality_maps_to_the_same_share_of_every_scale():
    bundles = {"p": bundle(), "q": bundle(scale=(10, 70, 1))}
    rows, people, splits = class_set(2, {"p": 30, "q": 30}, bundles, calibration=15)
    rows += [judged("p-same", 0.55, "p"), judged("q-same", 0.55, "q")]
    splits += [{"response_id": f"{item}-same", "split": "test"} for item in "pq"]
    fitted, predicted = run_all(bundles, rows, people, splits)
    assert fitted["p"].scope == "pooled"
    share_p, share_q = predicted["p-same"]["aligned"] / 3, (predicted["q-same"]["aligned"] - 10) / 60
    assert share_p == pytest.approx(share_q)


def test_too_few_labels_keep_the_raw_score_on_the_scales_steps():
    bundles = {"q": bundle(scale=(0, 3, 0.5))}
    rows, people, splits = class_set(3, {"q": 12}, bundles, calibration=9)
    rows[0] |= {"score": 1.25}
    fitted, predicted = run_all(bundles, rows, people, splits)
    assert (fitted["q"].method, fitted["q"].n, fitted["q"].features) == ("identity", 9, ("score",))
    first = predicted["q-000"]
    assert (first["raw"], first["score"], first["latent"], first["aligned"]) == (1.25, 1.5, None, 1.25)
    assert (first["clipped"], first["calibration_id"]) == (False, fitted["q"].calibration_id)
    assert (first["low"], first["high"], first["risk"], first["level_probabilities"]) == (None, None, None, None)
    assert (first["route"], first["route_reason"]) == ("review", "uncalibrated")


@pytest.mark.parametrize(
    ("calibration", "scope", "method"),
    [(20, "q", "rulers"), (19, "pooled", "rulers"), (10, "pooled", "rulers"), (9, "pooled", "identity")],
)
def test_an_own_mapping_needs_the_stated_number_of_labels_and_a_pool_ten(calibration, scope, method):
    fitted, _ = run_all({"q": bundle()}, *class_set(3, {"q": 40}, {"q": bundle()}, calibration))
    assert (fitted["q"].scope, fitted["q"].method, fitted["q"].n) == (scope, method, calibration)


def test_without_labels_or_features_the_mapping_is_the_identity():
    bundles = {"q": bundle(("confidence",))}
    rows, people, splits = class_set(4, {"q": 50}, bundles)
    with pytest.raises(ContractError, match="but the judge gives no feature"):
        run_all(bundles, rows, people, splits)
    fitted, predicted = run_all(bundles, rows, [], splits)
    assert (fitted["q"].method, fitted["q"].n, fitted["q"].left_out) == ("identity", 0, ())
    assert all(row["score"] == row["raw"] for row in predicted.values())


def test_prechecked_and_unscored_responses_are_not_fitted_on_and_keep_what_they_have():
    bundles = {"q": bundle()}
    rows, people, splits = class_set(5, {"q": 60}, bundles)
    plain, _ = run_all(bundles, rows, people, splits)
    odd = [
        grading("pre", 0.0, {}, {"precheck": 1.0, "length": 0.0}, status="precheck"),
        grading("none", None, {"a": 1.0, "b": 1.0}, {"length": 3.0, "tie": 0.0}, unscored_reason="invalid_reply"),
        grading("part", 2.0, {"a": 1.0}, {"length": 3.0, "tie": 0.0}),
    ]
    people = people + [{"response_id": row["response_id"], "rater_id": "r1", "score": 3.0} for row in odd]
    splits = splits + [{"response_id": row["response_id"], "split": "calibration"} for row in odd]
    fitted, predicted = run_all(bundles, rows + odd, people, splits)
    assert fitted == plain
    names = ("raw", "score", "latent", "aligned", "clipped", "calibration_id", "unscored_reason")
    found = {key: tuple(predicted[key][name] for name in names) for key in ("pre", "none", "part")}
    assert found == {
        "pre": (0.0, 0.0, None, None, False, None, None),
        "none": (None, None, None, None, False, None, "invalid_reply"),
        "part": (2.0, None, None, None, False, None, "criterion_unscored"),
    }


@settings(max_examples=6)
@given(st.integers(0, 10**6), st.sampled_from([5, 40]))
def test_nothing_outside_the_calibration_split_changes_a_mapping(seed, calibration):
    rng = np.random.default_rng(seed)
    bundles = {"p": bundle(), "q": bundle(scale=(0, 6, 1))}
    rows, people, splits = class_set(seed, {"p": 60, "q": 60}, bundles, calibration)
    fitted, predicted = run_all(bundles, rows, people, splits)
    tests = {row["response_id"] for row in splits if row["split"] == "test"}
    other_rows = []
    for row in rows:
        if row["response_id"] not in tests:
            other_rows.append(row)
        elif rng.random() < 0.7:
            new = judged(row["response_id"], rng.random(), row["item_id"])
            other_rows.append(new | {"signals": new["signals"] | {"confidence": 0.5, "uncertainty": 0.5}})
    other_people = [
        row | {"score": float(rng.integers(0, 4))} if row["response_id"] in tests else row for row in people
    ]
    rng.shuffle(other_rows)
    rng.shuffle(other_people)
    other, again = run_all(bundles, other_rows, other_people, splits)
    assert {item: one.content for item, one in other.items()} == {item: one.content for item, one in fitted.items()}
    assert all(again[key] == predicted[key] for key in predicted if key not in tests)


# risk and route


def test_a_grading_without_a_signal_of_the_spread_has_a_score_but_no_risk():
    bundles = {"q": bundle(("score", "length", "tie"))}
    rows, people, splits = class_set(11, {"q": 60}, bundles)
    rows += [grading("bare", 2.0), grading("full", 2.0, {}, {"length": 3.0, "tie": 0.0})]
    splits += [{"response_id": key, "split": "test"} for key in ("bare", "full")]
    _, predicted = run_all(bundles, rows, people, splits, study("linear"))
    bare, full = predicted["bare"], predicted["full"]
    assert bare["score"] == full["score"]
    assert (bare["risk"], bare["low"], bare["level_probabilities"]) == (None, None, None)
    assert (bare["route"], bare["route_reason"]) == ("review", "uncalibrated")
    assert full["risk"] is not None


def test_level_probabilities_interval_and_the_risk_that_they_tell_go_together():
    bundles = {"q": bundle(scale=(1, 4, 0.5))}
    rows, people, splits = class_set(12, {"q": 90}, bundles, 60)
    (item,) = items_of(bundles, rows, people, splits)
    mapping = fit_items([item], "m", study("linear", tolerance=1, coverage=0.8)).mappings["q"]
    told = mapping.model_copy(update={"spread": mapping.spread.model_copy(update={"errors": None})})
    predicted = {row["response_id"]: row for row in predict(told, item).to_pylist()}
    levels = 1 + 0.5 * np.arange(7)
    for row in predicted.values():
        chances = np.array(row["level_probabilities"])
        assert chances.sum() == pytest.approx(1)
        assert row["risk"] == pytest.approx(chances[np.abs(levels - row["score"]) > 0.5 + 1e-9].sum())
        assert row["low"] <= row["score"] <= row["high"]
        assert {row["low"], row["high"]} <= set(levels)


@settings(max_examples=6)
@given(st.integers(0, 10**6), st.integers(0, 3), st.sampled_from(METHODS), st.booleans(), st.sampled_from([15, 80]))
def test_a_level_that_no_person_gave_is_never_released(seed, absent, method, whole_set, calibration):
    bundles = {"p": bundle(), "q": bundle()}
    rows, people, splits = class_set(seed, {"p": 120, "q": 120}, bundles, calibration)
    people = [row for row in people if row["score"] != absent]
    # Everything is released that may be.
    plan = study(method, risk=0.9, tolerance=0, by="set" if whole_set else "item")
    _, predicted = run_all(bundles, rows, people, splits, plan)
    released = {row["score"] for row in predicted.values() if row["route"] == "release"}
    assert absent not in released
    assert all((row["route"] == "release") == (row["route_reason"] is None) for row in predicted.values())


def test_scores_go_out_up_to_the_threshold_and_no_further():
    bundles = {"q": bundle(scale=(0, 10, 1))}
    rows, people, splits = class_set(13, {"q": 400}, bundles, 250)
    (item,) = items_of(bundles, rows, people, splits)
    calibration = fit_items([item], "m", study("isotonic", risk=0.3, tolerance=2)).mappings["q"]
    found = predict(calibration, item)
    threshold = float(np.unique(found["risk"].to_numpy())[5])
    rule = calibration.rules["q"].model_copy(update={"threshold": threshold})
    found = predict(calibration.model_copy(update={"rules": {"q": rule}}), item).to_pylist()
    released = [row["risk"] for row in found if row["route"] == "release"]
    held = [row["risk"] for row in found if row["route_reason"] == "risk"]
    assert len(released) + len(held) == 400
    assert max(released) == threshold < min(held)


@pytest.mark.parametrize("calibration", [15, 60])
def test_the_order_of_rows_changes_no_bit_of_what_is_chosen(calibration):
    bundles = {"p": bundle(), "q": bundle(scale=(0, 6, 1))}
    rows, people, splits = class_set(14, {"p": 70, "q": 70}, bundles, calibration)
    plan = study("choose")
    items = items_of(bundles, rows, people, splits)
    again = items_of(bundles, rows[::-1], people[::-1], splits[::-1])
    assert fit_items(again[::-1], "m", plan) == fit_items(items, "m", plan)


def test_a_decision_without_a_quote_where_none_is_demanded_goes_to_a_person_and_keeps_its_score():
    bundles = {"q": bundle()}
    rows, people, splits = class_set(21, {"q": 80}, bundles)
    weak = [row | {"signals": row["signals"] | {"weak": 1.0}} if at % 10 == 9 else row for at, row in enumerate(rows)]
    before, after = (run_all(bundles, given, people, splits, study("identity"))[1] for given in (rows, weak))
    named = {row["response_id"] for row in weak if "weak" in row["signals"]}
    assert {name for name, row in after.items() if row["route_reason"] == "weak_evidence"} == named
    told = ("raw", "aligned", "score", "low", "high", "risk")
    assert all(before[name][column] == after[name][column] for name in before for column in told)


def test_each_decision_has_one_row_per_method_and_one_of_them_is_chosen():
    bundles = {"big": bundle(), "p": bundle(), "q": bundle()}
    rows, people, splits = class_set(15, {"big": 60, "p": 30, "q": 30}, bundles, 15)
    splits = [row | {"split": "calibration"} if row["response_id"].startswith("big") else row for row in splits]
    found = fit_items(items_of(bundles, rows, people, splits), "m", study("choose"))
    scopes = [(row["scope"], row["method"]) for row in found.candidates]
    assert sorted(scopes) == sorted((scope, method) for scope in ("big", "pooled") for method in METHODS)
    chosen = {row["scope"]: row["method"] for row in found.candidates if row["chosen"]}
    assert chosen == {one.scope: one.method for one in found.mappings.values()}
    assert {row["scope"]: row["n"] for row in found.candidates} == {"big": 60, "pooled": 30}
    assert [row["scope"] for row in found.release_rules] == ["big", "p", "q"]


def test_a_pool_of_items_has_an_offset_for_each():
    bundles = {"p": bundle(scale=(0, 6, 1)), "q": bundle(scale=(0, 6, 1))}
    rows, people, splits = class_set(16, {"p": 40, "q": 40}, bundles, 18)
    people = [
        row | {"score": min(6.0, row["score"] + 2) if row["response_id"][0] == "q" else row["score"]} for row in people
    ]
    fitted, _ = run_all(bundles, rows, people, splits, study("linear"))
    offsets = fitted["p"].mapping.offsets
    assert offsets["q"] > 0.05 > -0.05 > offsets["p"]


def test_a_mean_of_two_persons_weighs_as_two_ratings():
    people = [{"response_id": "r1", "rater_id": name, "score": 1.0} for name in ("h1", "h2")]
    people += [{"response_id": "r2", "rater_id": "h1", "score": 3.0}]
    rows = [judged("r1", 0.5), judged("r2", 0.5), judged("r3", 0.5)]
    for target, expected in (("mean", [2, 1, None]), ("h1", [1, 1, None]), ("h2", [1, None, None])):
        (item,) = items_of({"q": bundle()}, rows, people, [], target)
        assert item.rows["ratings"].to_pylist() == expected


@given(
    sizes=st.lists(st.integers(1, 5), max_size=12),
    most=st.integers(1, 7),
    cuts=st.lists(st.integers(1, 4), max_size=40),
)
def test_tables_of_whole_responses_hold_all_rows_and_hardly_more_than_asked(sizes, most, cuts):
    ids = [f"r{number:02d}" for number, size in enumerate(sizes) for _ in range(size)]
    table = pa.table({"response_id": pa.array(ids, pa.string()), "row": pa.array(range(len(ids)), pa.int64())})
    starts = [0, *itertools.accumulate(cuts)]
    slices = [table.slice(start, cut) for start, cut in zip(starts, [*cuts, None], strict=True)]
    batches = [batch for rows in slices for batch in rows.to_batches()]
    parts = list(whole_responses(batches, most))
    assert [row for part in parts for row in part["row"].to_pylist()] == list(range(len(ids)))
    names = [set(part["response_id"].to_pylist()) for part in parts]
    assert sum(map(len, names)) == len(sizes)
    assert all(len(part) < most + max(sizes) for part in parts)
    assert all(len(part) >= most for part in parts[:-1])


# later


def later(content, rows, one):
    """Predictions for gradings of an item by a stored mapping."""
    return predict(read_calibration(content), Item(rows["item_id"][0].as_py(), one, rows))


@pytest.mark.parametrize(
    ("calibration", "asked", "method"),
    [(40, name, name) for name in [*METHODS[:-1], "ridge"]] + [(12, "stacked", "stacked"), (4, "rulers", "identity")],
)
def test_a_stored_mapping_gives_the_same_predictions_later(calibration, asked, method):
    bundles = {"p": bundle(), "q": bundle(scale=(0, 5, 0.5))}
    rows, people, splits = class_set(6, {"p": 50, "q": 50}, bundles, calibration)
    fitted, predicted = run_all(bundles, rows, people, splits, study(asked, risk=0.3))
    for item, one in bundles.items():
        assert (fitted[item].method, fitted[item].scope) == (method, item if calibration == 40 else "pooled")
        stored = fitted[item].row()["content"]
        own = [row for row in rows if row["item_id"] == item]
        found = later(stored, table(*own), one)
        assert found.to_pylist() == [predicted[row["response_id"]] for row in own]
        assert sorted([*found.column_names, "split"]) == sorted(schema(Predictions).names)


def test_a_pooled_mapping_serves_a_new_item():
    bundles = {"p": bundle(), "q": bundle()}
    rows, people, splits = class_set(7, {"p": 20, "q": 20}, bundles, 15)
    fitted, _ = run_all(bundles, rows, people, splits)
    new = later(fitted["p"].content, table(judged("n", 0.9, "new")), bundle(scale=(0, 100, 5))).to_pylist()[0]
    assert new["score"] % 5 == 0
    assert new["score"] > 40
    with pytest.raises(ContractError, match=r"gives no feature 'trait\.a'"):
        later(fitted["p"].content, table(judged("n", 0.9, "new")), bundle(traits=("x",)))


def test_a_new_item_goes_by_the_promise_for_the_set_and_the_levels_seen_on_its_scale():
    bundles = {"p": bundle(), "q": bundle()}
    rows, people, splits = class_set(7, {"p": 60, "q": 60}, bundles, 55)
    for by, expected in (("set", {None}), ("item", {"no_promise"})):
        plan = study("linear", minimum=100, risk=0.5, tolerance=0, by=by)
        content = run_all(bundles, rows, people, splits, plan)[0]["p"].content
        new = later(content, table(judged("n", 0.5, "new")), bundles["p"])
        assert set(new["route_reason"].to_pylist()) == expected
        far = later(content, table(judged("n", 0.5, "new")), bundle(scale=(0, 100, 5)))
        assert far["route_reason"].to_pylist() == ["level_unseen"]


def test_content_of_another_format_is_refused():
    bundles = {"q": bundle()}
    mapping = run_all(bundles, *class_set(9, {"q": 50}, bundles))[0]["q"]
    assert read_calibration(mapping.content) == mapping
    older = json.dumps(json.loads(mapping.content) | {"format": 1})
    with pytest.raises(ContractError, match="format 1; this version reads format 3"):
        read_calibration(older)
    for odd in ("{}", "[]", "nothing", json.dumps({"format": 2})):
        with pytest.raises(ContractError):
            read_calibration(odd)


def test_items_with_one_bundle_pool_their_criteria():
    one = bundle(("criteria",))
    found = features([(table(judged("r", 0.5)), one), (table(judged("s", 0.7)), one)], pooled=True)
    assert found.names == ("criterion.ca", "criterion.cb")
    assert found.left_out == ()


def test_single_samples_are_returned_as_they_are():
    rows = table(judged("r2", 0.2), judged("r1", 0.8))
    assert one_per_response(rows) is rows

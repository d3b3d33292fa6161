"""Rows of `rater_effects`: flags only for what was put in, and no severity where none compares."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
import pandas as pd
import pytest
from builders.rows import grading, item, response
from hypothesis import given, settings
from hypothesis import strategies as st

from rubricflow.tasks.core.contracts.errors import InputError
from rubricflow.tasks.core.contracts.schema import conform
from rubricflow.tasks.core.contracts.tables.data import Items, Responses
from rubricflow.tasks.core.contracts.tables.evaluation import RaterEffects
from rubricflow.tasks.core.contracts.tables.judging import Gradings
from rubricflow.tasks.core.stats.agreement import qwk
from rubricflow.tasks.core.store.warehouse import Run, Warehouse
from rubricflow.tasks.grading.evaluate.agree import compare, compare_over_items
from rubricflow.tasks.grading.evaluate.baselines import OTHER, against_others, scores_of_other_run
from rubricflow.tasks.grading.evaluate.raters import MARK, rater_effects, read_marks
from rubricflow.tasks.grading.evaluate.slices import ScoreSlice, Setting
from tests.builders.ratings import Rating, World, marked

STEPS = {("g", ""): 1.0}
EQUAL = World(dict.fromkeys(("anna", "ben", "carla"), 0.0))


class MarkedResponse(NamedTuple):
    """What one person gave one response."""

    response: str
    item: str
    rubric: str
    rater: str
    marks: Mapping[str, float]
    period: str | None
    cluster: str


def marks_of(rows: list[MarkedResponse]) -> pd.DataFrame:
    """The same in columns."""
    names = ("response_id", "item_id", "rubric_id", "rater_id", "marks", "period", "cluster")
    frame = pd.DataFrame(rows, columns=names)
    traits = frame.pop("marks").apply(pd.Series)
    return frame.join(traits.add_prefix(MARK))


def scene(
    change: Callable[[Rating, int], float] = lambda one, at: one.score, seed: int = 0, n: int = 400
) -> list[MarkedResponse]:
    """Marks by three equal raters, each changed; the response's number is its period: early, then late."""
    ratings, _ = marked(EQUAL, seed, n=n)
    rows = []
    for one in ratings:
        at = int(one.response[1:])
        period = "early" if at < n / 2 else "late"
        marks = {"": float(np.clip(change(one, at), 0, 4))}
        rows.append(MarkedResponse(one.response, f"i{at % 2}", "g", one.rater, marks, period, one.response))
    return rows


def effects(rows, at_random=False):
    found = rater_effects(marks_of(rows), STEPS, at_random, 200, 0)
    assert len(conform(RaterEffects, found)) == len(found)
    assert len({tuple(row[name] for name in RaterEffects.key) for row in found}) == len(found)
    return found


def flags(found):
    return {row["rater_id"]: row["flags"] for row in found if row["slice"] == "all" and row["trait"] == ""}


@pytest.mark.parametrize("seed", range(4))
def test_equal_raters_need_no_retraining(seed):
    assert not any(flags(effects(scene(seed=seed))).values())


@pytest.mark.parametrize(
    ("change", "flag"),
    [
        (lambda one, at: one.score - (one.rater == "ben"), "strict"),
        (lambda one, at: one.score + (one.rater == "ben"), "lenient"),
        (lambda one, at: (at * 7) % 5 if one.rater == "ben" else one.score, "erratic"),
        (lambda one, at: round(2 + (one.score - 2) * 0.3) if one.rater == "ben" else one.score, "central"),
        (lambda one, at: one.score - (one.rater == "ben") * (1.4 if at >= 200 else 0), "drift"),
    ],
    ids=["strict", "lenient", "erratic", "central", "drift"],
)
def test_what_was_put_in_is_flagged(change, flag):
    found = flags(effects(scene(change)))
    assert flag in found["ben"]
    assert flag not in found["anna"] + found["carla"]


def test_drift_stands_beside_its_periods():
    found = effects(scene(lambda one, at: one.score - (one.rater == "ben") * (1.4 if at >= 200 else 0)))
    shifts = {row["value_of"]: row for row in found if (row["rater_id"], row["slice"]) == ("ben", "period")}
    assert shifts["late"]["high"] < 0 < shifts["early"]["low"]
    assert {row["value_of"] for row in found if row["slice"] == "item"} == {"i0", "i1"}


def test_leniency_is_in_steps_of_the_scale():
    rows = scene(lambda one, at: one.score - (one.rater == "ben"))
    plain, halves = (
        rater_effects(marks_of(rows), STEPS, False, 0, 0),
        rater_effects(marks_of(rows), {("g", ""): 0.5}, False, 0, 0),
    )
    assert [row["leniency"] * 2 for row in plain] == pytest.approx([row["leniency"] for row in halves])
    assert flags(plain) == flags(halves)


def test_raters_who_share_nothing_have_no_severity():
    rows = [row for row in scene() if row.rater != "carla"]
    ben = {row.response for row in rows if row.rater == "ben"}
    apart = [row for row in rows if row.rater == "ben" or row.response not in ben]
    by_name = {row["rater_id"]: row for row in effects(apart)}
    assert all(row.get("severity") is None and "shares no response" in row["note"] for row in by_name.values())
    assert all(row["flags"] == [] for row in by_name.values())
    assert by_name["ben"]["ratings"] == len(ben)
    assert all(row["severity"] is not None for row in effects(apart, at_random=True) if row["slice"] == "all")


def test_two_linked_sets_compare_within_themselves_only():
    first = scene(lambda one, at: one.score - 2 * (one.rater == "ben"))
    second = [row._replace(response=f"x{row.response}", rater=row.rater.upper()) for row in first]
    found = [row for row in effects([*first, *second]) if row["slice"] == "all"]
    assert all(row["severity"] is None and row["infit"] is not None for row in found)
    assert found[0]["note"] == "compares with BEN, CARLA only"
    assert not any("strict" in row["flags"] for row in found)


def test_a_halo_is_flagged_beside_the_others():
    rng = np.random.default_rng(0)
    rows = []
    for at in range(300):
        true = rng.normal() + rng.normal(size=3)
        for name in ("anna", "ben", "carla"):
            own = true + rng.normal(size=3) * 0.5 + (rng.normal() * 1.5 if name == "ben" else 0)
            marks = dict(zip("xyz", np.clip(np.round(own + 2), 0, 4).tolist(), strict=True))
            rows.append(MarkedResponse(f"r{at}", "i", "g", name, marks | {"": sum(marks.values())}, None, f"r{at}"))
    found = effects(rows)
    assert "halo" in flags(found)["ben"]
    assert "halo" not in flags(found)["anna"] + flags(found)["carla"]
    assert {row["trait"] for row in found} == {"", "x", "y", "z"}


def test_one_person_has_no_effects():
    assert effects([row for row in scene() if row.rater == "ben"]) == []


# A judge beside another run: paired on the responses that both scored, and the same as comparing the two runs.


SCALES = {"p": (0.0, 4.0, 1.0), "q": (0.0, 4.0, 1.0)}
BASE = OTHER + "base"


def scores(seed, n=80, noise=0.6, other_noise=1.5):
    rng = np.random.default_rng(seed)
    target = rng.integers(0, 5, 2 * n).astype(float)
    near = (np.clip(np.round(target + rng.normal(0, spread, 2 * n)), 0, 4) for spread in (noise, other_noise))
    authors = np.tile(np.arange(n // 2), 4)
    frame = pd.DataFrame({"target": target, **dict(zip(("calibrated", BASE), near, strict=True)), "cluster": authors})
    names = [f"r{i}" for i in range(2 * n)]
    return frame.assign(item_id=["p"] * n + ["q"] * n, response_id=names, author_id=[f"a{c:03d}" for c in authors])


def figures(frame, draws=300, scale=SCALES["p"]):
    part = ScoreSlice("all", "all", frame, scale, "author")
    return {
        (row["metric"], row["value_of"]): row for row in against_others(part, Setting(SCALES, "m", draws=draws, seed=7))
    }


@pytest.mark.parametrize("seed", range(5))
def test_the_gain_is_that_of_two_runs_compared(seed):
    frame = scores(seed, other_noise=1.5 if seed % 2 else 0.6)
    rows = figures(frame)
    ids = ["response_id", "item_id", "author_id", "target"]
    a = frame[[*ids, BASE]].rename(columns={BASE: "calibrated"})
    b = frame[[*ids, "calibrated"]]
    of_item = (frame["item_id"] == "q").to_numpy()
    gap = compare(a[of_item], b[of_item], SCALES["q"], 300, 7)[0]["qwk"]
    assert rows["over_other_qwk", "q"]["value"] == pytest.approx(gap.estimate)
    assert (rows["over_other_qwk", "q"]["low"], rows["over_other_qwk", "q"]["high"]) == pytest.approx(
        (gap.low, gap.high), abs=0.03
    )
    over_items = compare_over_items(a, b, SCALES, 300, 7)
    mean = rows["over_other_qwk_item_mean", "all"]
    assert mean["value"] == pytest.approx(over_items.estimate)
    assert (mean["low"], mean["high"]) == pytest.approx((over_items.low, over_items.high), abs=0.03)


def test_only_responses_that_both_scored_count():
    frame = scores(9)
    gone = frame.assign(**{BASE: frame[BASE].where(frame.index % 4 > 0)})
    row = figures(gone)["over_other_qwk", "p"]
    kept = gone.dropna().query("item_id == 'p'")
    assert row["n"] == len(kept) == 60
    mine, theirs = (qwk(kept["target"], kept[name], 0, 4).value for name in ("calibrated", BASE))
    assert row["value"] == pytest.approx(mine - theirs)


def test_nothing_stands_beside_it_without_another_run():
    assert figures(scores(1).drop(columns=BASE)) == {}
    assert figures(scores(1).assign(**{BASE: np.nan})) == {}


def test_scores_are_placed_by_response_and_on_the_items_own_scale():
    frame = scores(2).head(3)
    assert scores_of_other_run(frame, {"r2": 4.0, "r0": 0.0, "x": 99.0}, SCALES, "base").tolist()[::2] == [0.0, 4.0]
    assert scores_of_other_run(frame, {"r1": None}, SCALES, "base").isna().all()
    for off in (-0.5, 4.5):
        with pytest.raises(InputError, match="'base' scores some of the items on another scale"):
            scores_of_other_run(frame, {"r1": off}, SCALES, "base")


# What the evaluation reads a batch at a time is what the tables hold, however they are cut into shards.


TRAITS = st.dictionaries(st.sampled_from(["form", "content"]), st.integers(0, 3).map(float))
SCORES = st.none() | st.integers(0, 6).map(float)
ANSWERS = st.lists(
    st.tuples(
        st.sampled_from(["q1", "q2"]),
        st.sampled_from([None, "anna", "ben"]),
        st.sampled_from([None, "early", "late"]),
        st.dictionaries(st.sampled_from(["h1", "h2", "a machine"]), st.tuples(SCORES, TRAITS), max_size=3),
    ),
    max_size=8,
)


def written(run: Run, answers, cut: int):
    """The tables of a run in two shards, cut at a row; and what persons said, as plain rows."""
    responses, gradings, plain = [], [], []
    for number, (item_id, author, period, marks) in enumerate(answers):
        key = f"r{number}"
        groups = {} if period is None else {"period": period}
        responses.append(response(key, item_id) | {"author_id": author, "groups": groups})
        for rater, (score, traits) in marks.items():
            row = grading(key, rater, score, item_id=item_id, trait_scores=traits)
            gradings.append(row)
            if row["rater_kind"] == "human":
                scores = traits | ({} if score is None else {"": score})
                plain.append((key, item_id, f"rubric-{item_id}", rater, period, author or key, scores))
    items = [item(name, rubric_id=f"rubric-{name}") for name in ("q1", "q2")]
    run.commit("ingest", "00", {Items: items, Responses: responses[:cut], Gradings: gradings[cut:]})
    run.commit("ingest", "01", {Items: [], Responses: responses[cut:], Gradings: gradings[:cut]})
    return plain


@settings(max_examples=12)
@given(answers=ANSWERS, cut=st.integers(0, 8))
def test_marks_are_those_of_the_plain_rows_however_the_tables_are_cut(tmp_path_factory, answers, cut):
    run = Warehouse.open(tmp_path_factory.mktemp("w")).run("small")
    plain = written(run, answers, cut)
    marks = read_marks(run, *(run.ref(row, "ingest") for row in (Items, Responses, Gradings)))
    names = ("response_id", "item_id", "rubric_id", "rater_id", "period", "cluster")
    rows = list(marks[[*names]].astype(object).where(marks[[*names]].notna(), None).itertuples(index=False, name=None))
    traits = {name.removeprefix(MARK): marks[name] for name in marks.columns if name.startswith(MARK)}
    scores = [
        {trait: column[place] for trait, column in traits.items() if not math.isnan(column[place])}
        for place in range(len(rows))
    ]
    marked = [(*row, own) for row, own in zip(rows, scores, strict=True)]
    assert sorted(marked, key=_of_whom) == sorted(plain, key=_of_whom)


def _of_whom(row):
    """Response and rater."""
    return row[0], row[3]


def test_no_table_of_responses_or_scores_is_read_whole(tmp_path, monkeypatch):
    run = Warehouse.open(tmp_path).run("small")
    written(run, [("q1", "anna", None, {"h1": (1.0, {}), "h2": (2.0, {})})], 1)
    refs = [run.ref(row, "ingest") for row in (Items, Responses, Gradings)]
    whole, read = [], Run.read
    monkeypatch.setattr(Run, "read", lambda run, ref, *more: whole.append(ref.table) or read(run, ref, *more))
    read_marks(run, *refs)
    assert whole == ["items"]

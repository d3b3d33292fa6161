"""A judge compared with people's preferences between two answers to a question: how often it is right, where it is
sure, and what it is worth compared with chance, the longer answer and people themselves."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from rubricflow.tasks.core.stats.agreement import Stat
from rubricflow.tasks.core.stats.arrays import Floats
from rubricflow.tasks.core.stats.preferences import FOLDS, cross_fitted, right
from rubricflow.tasks.grading.evaluate.slices import Record, ScoreSlice, Setting, record, share

PREFERENCES = "preferences"
COVERAGE = (0.5, 0.6, 0.7, 0.8, 0.9)
"""Shares of the pairs, the surest first, of which the accuracy is given."""
FEWEST_PAIRS = 10
"""Pairs that a kind of item needs for figures of its own."""
_SIGN = {"a": 1.0, "b": -1.0, "tie": 0.0}
_PAIR = ["response_a", "response_b"]
NO_COMPARISONS = pd.DataFrame(columns=["item_id", *_PAIR, "sample", "shown_first", "winner"])


def preference_figures(
    preferences: pd.DataFrame,
    gradings: pd.DataFrame,
    comparisons: pd.DataFrame,
    type_of: Mapping[str, str],
    on: Setting,
) -> Iterator[Record]:
    """Rows of `metrics` about the pairs of which people prefer one answer; none without any.

    preferences: rows of the table; where several persons judge a pair the majority counts, and a pair without one is
    left out. gradings: response_id, sample, score, strength (NaN but for pairwise judges) and length of the machine.
    comparisons: rows of the table, none but for pairwise judges. type_of: item -> its type.

    A verdict is the sign of a margin, of strengths where both answers have one and else of scores; one without a sign
    is right by half. Of several samples the mean margin counts (`pair_accuracy`), and besides the rule that is chosen
    inside folds of items (`pair_chosen`), whose confidence gives the slice 'coverage'; of one sample the margin does.
    Intervals are over items.
    """
    preferences = _one_way_round(preferences)
    pairs = _people(preferences)
    if pairs.empty:
        return
    margins, lengths = _margins(pairs, gradings)
    told = np.flatnonzero(~np.isnan(margins).all(axis=1))
    unscored = len(margins) - len(told)
    yield from _people_agree(preferences, on)
    if not len(told):
        yield _record("pair_accuracy", Stat(None, "no pair has a verdict"), 0, on, unscored=unscored)
        return
    pairs, lengths, has = pairs.iloc[told], lengths[told], ~np.isnan(margins[told])
    filled = np.nan_to_num(margins[told])
    y = pairs["preferred"].to_numpy(float)
    items = pairs["item_id"].to_numpy(str)
    codes = np.unique(items, return_inverse=True)[1]
    types = np.array([type_of[item] for item in items])
    kinds = [str(kind) for kind in np.unique(types) if FEWEST_PAIRS <= (types == kind).sum() < len(types)]

    def figure(name: str, margin: Floats, part: tuple[str, str] = ("all", "all"), weights: Any = 1.0) -> Record:
        of_each = np.broadcast_to(np.asarray(weights, float), len(y))
        value, ends = share(right(margin, y) * of_each, of_each, codes, on)
        return _record(name, value, int(np.count_nonzero(of_each)), on, part, interval=ends, unscored=unscored)

    def everywhere(name: str, margin: Floats) -> Iterator[Record]:
        yield figure(name, margin)
        yield from (figure(name, margin, ("type", kind), types == kind) for kind in kinds)

    yield _record("pair_chance", Stat(0.5), len(y), on)
    yield figure("pair_length", lengths)
    combined = confidence = filled.mean(axis=1)
    yield from everywhere("pair_accuracy", combined)
    if filled.shape[1] > 1:
        for number, column in enumerate(filled.T):
            yield figure("pair_accuracy", column, ("sample", str(number)), has[:, number])
        if len(set(items)) >= 2 * FOLDS:
            confidence, rules = cross_fitted(filled, y, items.tolist(), on.seed)
            words = [f"{rule} in {rules.count(rule)} of {len(rules)} folds" for rule in sorted(set(rules))]
            whole, *parts = everywhere("pair_chosen", confidence)
            yield from (whole | {"note": ", ".join(words)}, *parts)
    for part in COVERAGE if len(np.unique(np.abs(confidence))) > 1 else ():
        weights = surest(np.abs(confidence), part)
        yield figure("pair_accuracy", confidence, ("coverage", f"{part:.0%}"), weights)
    yield from _best(pairs, combined, on)
    yield from _verdicts(pairs, comparisons, on)


def machine_scores(gradings: Iterable[pa.RecordBatch]) -> pd.DataFrame:
    """Of batches of `gradings` (response_id, sample, score, signals) what `preference_figures` takes."""
    names = ("strength", "length")
    parts = [pd.DataFrame(columns=["response_id", "sample", "score", *names])]
    for batch in gradings:
        columns = {name: batch[name].to_pandas() for name in ("response_id", "sample", "score")}
        columns |= {name: pc.map_lookup(batch["signals"], name, "first").to_pandas() for name in names}
        parts.append(pd.DataFrame(columns))
    frame: pd.DataFrame = pd.concat([part for part in parts if len(part)] or parts)
    return frame.astype(dict.fromkeys(("score", *names), float))


def surest(confidence: Floats, part: float) -> Floats:
    """(n,) How much of each row is among the surest, whose sum is this part of n: rows that are as sure as the last one
    share what is left."""
    left = part * len(confidence)
    weights = np.zeros(len(confidence))
    for value in np.unique(confidence)[::-1]:
        rows = confidence == value
        weights[rows] = min(1.0, left / rows.sum())
        left -= rows.sum()
        if left <= 0:
            break
    return weights


def _record(name: str, value: Stat, n: int, on: Setting, part: tuple[str, str] = ("all", "all"), **more: Any) -> Record:
    whole = ScoreSlice(*part, pd.DataFrame(), (0.0, 1.0, 1.0), "item")
    return record(whole, name, value, n, stage="raw", raters=(PREFERENCES, on.machine), **more)


def _one_way_round(preferences: pd.DataFrame) -> pd.DataFrame:
    """The rows with the smaller id first, and `vote`, 1 for a, -1 for b and 0 for a tie."""
    rows = preferences.assign(vote=preferences["winner"].map(_SIGN))
    swapped = rows["response_a"] > rows["response_b"]
    rows.loc[swapped, _PAIR] = rows.loc[swapped, _PAIR[::-1]].to_numpy()
    rows.loc[swapped, "vote"] *= -1
    return rows


def _people(preferences: pd.DataFrame) -> pd.DataFrame:
    """One row per pair that more people prefer one way than the other: item_id, response_a and response_b, and
    `preferred`, 1 for a and -1 for b."""
    votes = preferences.groupby(["item_id", *_PAIR], as_index=False)["vote"].sum()
    decided: pd.DataFrame = votes[votes["vote"] != 0].reset_index(drop=True)
    return decided.assign(preferred=np.sign(decided["vote"].to_numpy()))


def _margins(pairs: pd.DataFrame, gradings: pd.DataFrame) -> tuple[Floats, Floats]:
    """(pairs, samples) margins of a over b, NaN where there is none; (pairs,) how much longer a is."""
    found = []
    for name in ("strength", "score"):  # an empty answer has a score, and was compared with none
        table = gradings.pivot_table(index="response_id", columns="sample", values=name, dropna=False)
        a, b = (table.reindex(pairs[side]).to_numpy(float) for side in _PAIR)
        # Differences of computed numbers that mean the same may differ in their last digits.
        found.append(np.round(a - b, 9))
    length = gradings.groupby("response_id")["length"].first()
    longer = [length.reindex(pairs[name]).to_numpy(float) for name in _PAIR]
    return np.where(np.isnan(found[0]), found[1], found[0]), np.nan_to_num(longer[0] - longer[1])


def _people_agree(preferences: pd.DataFrame, on: Setting) -> Iterator[Record]:
    """How often two people say the same of a pair; nothing where no pair has two."""
    same = []
    codes = []
    for (item, *_), votes in preferences.groupby(["item_id", *_PAIR])["vote"]:
        both = [float(one == other) for one, other in combinations(votes, 2)]
        same += both
        codes += [str(item)] * len(both)
    if same:
        value, ends = share(np.array(same), np.ones(len(same)), np.unique(codes, return_inverse=True)[1], on)
        yield _record("pair_people", value, len(same), on, interval=ends)


def _best(pairs: pd.DataFrame, margin: Floats, on: Setting) -> Iterator[Record]:
    """How often the answer that people prefer to all others of its question that they judged, of three at least, is
    above each of them: of answers that share the first place one is drawn. Nothing where no item has such an answer."""
    sides = pairs.assign(margin=margin * pairs["preferred"])
    sides["better"] = np.where(pairs["preferred"] > 0, pairs["response_a"], pairs["response_b"])
    first = []
    for _, rows in sides.groupby("item_id"):
        names = set(rows["response_a"]) | set(rows["response_b"])
        won = rows["better"].value_counts()
        if len(names) > 2 and won.iloc[0] == len(names) - 1:
            against = rows[rows["better"] == won.index[0]]["margin"]
            first.append(0.0 if (against < 0).any() else 1 / (1 + int((against == 0).sum())))
    if first:
        value, ends = share(np.array(first), np.ones(len(first)), np.arange(len(first)), on)
        yield _record("pair_best", value, len(first), on, interval=ends)


def _verdicts(pairs: pd.DataFrame, comparisons: pd.DataFrame, on: Setting) -> Iterator[Record]:
    """Single verdicts, in all and by sample: how often one is right, how often both orders bring the same winner, how
    often it is then right, and how often the answer shown first wins, ties counted by half."""
    rows = comparisons[comparisons["winner"].notna()].merge(pairs, on=[*_PAIR, "item_id"])
    if rows.empty:
        return
    rows = rows.assign(vote=rows["winner"].map(_SIGN))
    rows["right"] = right(rows["vote"].to_numpy(), rows["preferred"].to_numpy())
    rows["first"] = 0.5 + 0.5 * rows["vote"] * rows["shown_first"].map(_SIGN)
    both = rows.pivot_table(
        index=["item_id", *_PAIR, "preferred", "sample"], columns="shown_first", values="vote", dropna=True
    ).reset_index()
    if {"a", "b"} <= set(both.columns):
        both = both.dropna(subset=["a", "b"])
        both = both.assign(agreed=((both["a"] == both["b"]) & (both["a"] != 0)).astype(float))
        both["right"] = right(both["a"].to_numpy(float), both["preferred"].to_numpy(float))
    else:
        both = pd.DataFrame(columns=["item_id", "sample", "agreed", "right"])
    samples: Sequence[Any] = ["all", *sorted(rows["sample"].unique())] if rows["sample"].nunique() > 1 else ["all"]
    for sample in samples:
        part = ("all", "all") if sample == "all" else ("sample", str(sample))
        here, of_both = ((t if sample == "all" else t[t["sample"] == sample]) for t in (rows, both))
        parts: Iterable[tuple[str, pd.DataFrame, str, str | None]] = (
            ("pair_verdict", here, "right", None),
            ("pair_first", here, "first", None),
            ("pair_agreed_share", of_both, "agreed", None),
            ("pair_agreed", of_both, "right", "agreed"),
        )
        for name, table, top, by in parts:
            if len(table):
                weights = np.ones(len(table)) if by is None else table[by].to_numpy(float)
                codes = np.unique(table["item_id"].to_numpy(str), return_inverse=True)[1]
                value, ends = share(table[top].to_numpy(float) * weights, weights, codes, on)
                yield _record(name, value, int(np.count_nonzero(weights)), on, part, interval=ends)

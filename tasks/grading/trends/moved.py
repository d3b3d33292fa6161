"""What is watched of a log, answer by answer; and what of it moved between old and new logs."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from math import ceil, log
from typing import NamedTuple
from zlib import crc32

import numpy as np
import pandas as pd
from sklearn.isotonic import IsotonicRegression

from rubricflow.tasks.core.stats.drift import DriftEvidence, MeanChange, Values, change, evidence
from rubricflow.tasks.core.text.quotes import find

CHANNELS: Mapping[str, str] = {
    "score": "mean score",
    "refused": "share without a score",
    "answer_length": "characters of the answer",
    "explanation_length": "characters of the explanation",
    "output_tokens": "tokens of the answer",
    "failed_quotes": "share of quotes that do not stand in the answer",
    "disagreement": "spread of repeated verdicts or jurors",
    "judge_bias": "judge's score less people's",
    "unexplained": "people's score less what earlier labels let expect of the judge's",
}
SLICED = ("score", "refused", "judge_bias")
"""Channels that are watched by criterion, subject and group, too."""
FALSE_ALARMS = 0.01
"""Of all looks at all channels together; half for whole channels, half for their slices."""
CLASS_SIZE = 10
"""Answers to a case from which on they are compared with each other, not the case with other cases."""
FEWEST = 10
FEWEST_LABELS = 50
_QUOTE = re.compile(r"[\"“«„]([^\"“”«»„\n]{12,400})[\"”»]")
KEY = ("channel", "slice", "value_of")
OBSERVED = ("answer_id", "case_id", "group", *KEY, "value")
"""Columns of what is watched: an answer's value in a channel, of all of the answer (slice 'all') or a part."""


def observed(verdicts: pd.DataFrame, labels: pd.DataFrame | None = None) -> pd.DataFrame:
    """Columns `OBSERVED`, in the order of the log.

    verdicts: columns of a log's verdicts, its key answer_id, criterion, sample. labels: answer_id, criterion, score, a
    row for each rater. A channel that the log says nothing of has no row.
    """
    rows = verdicts.copy()
    rows["order"] = pd.factorize(rows["answer_id"])[0]
    rows["refused"] = (rows["status"] != "scored").astype(float)
    for name, text in (("answer_length", "answer"), ("explanation_length", "explanation")):
        rows[name] = rows[text].str.len().astype(float)
    quotes = rows["explanation"].fillna("").map(_QUOTE.findall)
    rows["failed_quotes"] = [
        np.mean([find(quote, answer) is None for quote in quoted]) if isinstance(answer, str) and quoted else np.nan
        for answer, quoted in zip(rows["answer"], quotes, strict=True)
    ]
    repeated = rows.groupby(["answer_id", "criterion"])["score"]
    rows["disagreement"] = repeated.transform(lambda scores: scores.std(ddof=1) if scores.count() > 1 else np.nan)
    if labels is not None and len(labels):
        people = labels.groupby(["answer_id", "criterion"])["score"].mean().rename("label")
        rows = rows.join(people, on=["answer_id", "criterion"])
        rows["judge_bias"] = rows["score"] - rows["label"]
    channels = [name for name in (*CHANNELS, "label") if name in rows and rows[name].notna().any()]
    rows["all"] = "all"
    parts = []
    for by in ("all", "criterion", "subject", "group"):
        if by != "all" and rows[by].nunique() < 2:
            continue
        kept = channels if by == "all" else [name for name in channels if name in SLICED]
        means = rows.groupby(["order", "answer_id", "case_id", by], sort=False, dropna=False)[kept].mean()
        long = (
            means.reset_index()
            .melt(["order", "answer_id", "case_id", by], kept, "channel")
            .dropna(subset=["value", by])
        )
        parts.append(long.rename(columns={by: "value_of"}).assign(slice=by))
    found = pd.concat(parts).sort_values(["slice", "value_of", "channel", "order"], kind="stable")
    group = rows.drop_duplicates("answer_id").set_index("answer_id")["group"]
    found["group"] = found["answer_id"].map(group).fillna("").astype(str)
    return found.reset_index(drop=True)[[*OBSERVED]]


class Moved(NamedTuple):
    """One channel of one slice, old logs against new ones."""

    channel: str
    slice: str
    value_of: str
    evidence: DriftEvidence
    bar: float
    """The logarithm from which on it counts as moved."""
    change: MeanChange

    @property
    def is_found(self) -> bool:
        return self.evidence.log_peak >= self.bar


class Drift(NamedTuple):
    """What a comparison of logs found."""

    rows: tuple[Moved, ...]
    """Every channel and slice that was tested; those that moved first, the clearest of them at the top."""
    is_paired: bool
    """Whether cases come again and are compared with themselves."""
    to_label: int
    """Labels of new answers to ask for: 0 where nothing moved."""

    @property
    def found(self) -> tuple[Moved, ...]:
        return tuple(row for row in self.rows if row.is_found)


def drifted(old: Sequence[pd.DataFrame], new: Sequence[pd.DataFrame], grows: bool = False) -> Drift:
    """Whether new logs are like old ones, each as `observed`, in the order of time.

    Over all channels, slices and looks, however often it is called as logs are added to `new`, the chance that anything
    is found while nothing moved is at most `FALSE_ALARMS`. grows: logs may be added to a single new one. Channels and
    slices of the old logs are tested that have FEWEST values there.
    """
    old, new = _explained(old, old), _explained(new, old)
    before = pd.concat(old)
    whole = before[(before["slice"] == "all") & (before["channel"] == "refused")]
    is_class = bool(whole.groupby("case_id").size().median() >= CLASS_SIZE)
    logs = [{tuple(map(str, key)): of for key, of in part.groupby(list(KEY), sort=False)} for part in (*old, *new)]
    counts = before[before["channel"] != "label"].groupby(list(KEY), sort=False).size().reset_index(name="size")
    keys = [(str(a), str(b), str(c)) for a, b, c, size in counts.itertuples(index=False) if size >= FEWEST]
    shared = Counter(slice == "all" for _, slice, _ in keys)
    rows = []
    paired = set()
    is_single = len(new) == 1 and not grows
    for key in keys:
        first = next((part[key] for part in logs[len(old) :] if key in part), None)
        known = {case for part in logs[: len(old)] if key in part for case in part[key]["case_id"]}
        # What labels let expect is of a score, not of a case.
        comes_again = first is not None and key[0] != "unexplained" and first["case_id"].isin(known).mean() > 0.5
        is_paired = not is_class and comes_again
        if is_paired:
            paired.add(key[0])
        values = [_values(part.get(key), is_class, is_paired) for part in logs]
        bar = log(len(shared) * shared[key[1] == "all"] / FALSE_ALARMS)
        found = evidence(values[: len(old)], values[len(old) :], bar, crc32("/".join(key).encode()), is_single)
        rows.append(Moved(*key, found, bar, change(values[: len(old)], values[len(old) :])))
    rows.sort(key=lambda row: (not row.is_found, row.bar - row.evidence.log_peak))
    return Drift(tuple(rows), "refused" in paired, _to_label(rows, before))


def _values(part: pd.DataFrame | None, is_class: bool, is_paired: bool) -> Values:
    """A channel's values in a log: of answers within their case, of cases within themselves, or of cases in a group."""
    if part is None:
        return Values(np.zeros(0), ())
    if is_class:
        return Values(part["value"].to_numpy(float), part["case_id"].tolist())
    cases = part.groupby("case_id", sort=False).agg({"value": "mean", "group": "first"})
    return Values(cases["value"].to_numpy(float), (cases.index if is_paired else cases["group"]).tolist())


def _explained(logs: Sequence[pd.DataFrame], old: Sequence[pd.DataFrame]) -> list[pd.DataFrame]:
    """Logs with channel `unexplained`: labels less what the judge's score lets expect by the labels of half of the old
    answers, drawn by their ids; this half is then not compared."""
    known = pd.concat([_labelled(log) for log in old])
    fitted = known[[crc32(str(answer).encode()) % 2 == 0 for answer in known["answer_id"]]]
    if len(fitted) < FEWEST:
        return [*logs]
    curve = IsotonicRegression(out_of_bounds="clip").fit(fitted["score"], fitted["label"])
    found = []
    for part in logs:
        rest = _labelled(part)
        rest = rest[~rest["answer_id"].isin(set(fitted["answer_id"]))]
        if len(rest):
            value = rest["label"] - curve.predict(rest["score"])
            rest = rest.assign(channel="unexplained", slice="all", value_of="all", value=value)
            part = pd.concat([part, rest[[*OBSERVED]]], ignore_index=True)
        found.append(part)
    return found


def _labelled(part: pd.DataFrame) -> pd.DataFrame:
    whole = part[(part["slice"] == "all") & part["channel"].isin(["score", "label"])]
    wide = whole.pivot(index=["answer_id", "case_id", "group"], columns="channel", values="value").reset_index()
    return wide.reindex(columns=["answer_id", "case_id", "group", "score", "label"]).dropna(subset=["score", "label"])


def _to_label(rows: Sequence[Moved], before: pd.DataFrame) -> int:
    """So many that the judge's mean error on new answers is known to half of how far scores moved, or to a quarter of
    their spread where they did not; at least FEWEST_LABELS."""
    if not any(row.is_found for row in rows):
        return 0
    scores = before[(before["channel"] == "score") & (before["slice"] == "all")]["value"]
    errors = before[(before["channel"] == "judge_bias") & (before["slice"] == "all")]["value"]
    spread = float((errors if len(errors) > FEWEST else scores).std())
    moved = [
        abs(row.change.difference)
        for row in rows
        if row.is_found and row.channel in SLICED and row.channel != "refused"
    ]
    near = max(moved, default=0.0) / 2 or float(scores.std()) / 4
    needed = ceil((1.96 * spread / near) ** 2) if near else FEWEST_LABELS
    return max(FEWEST_LABELS, min(needed, 10 * FEWEST_LABELS))

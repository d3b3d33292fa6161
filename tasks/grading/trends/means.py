"""Arms of judged answers, and their corrected means and differences by slice."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd

from rubricflow.tasks.core.stats.predicted_means import Cases, CorrectedMean, corrected_mean

CLASS_SIZE = 10
"""Answers to a case from which on cases are parts that stay the same, and answers what was sampled."""


def together(logs: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """The verdicts of several logs, with the log's name in `log`. An answer_id that stands for other words in another
    log becomes `<answer_id>:<log>`, with the log as its subject, so that labels say which they mean."""
    rows = pd.concat([frame.assign(log=name) for name, frame in logs.items()], ignore_index=True)
    texts = rows.dropna(subset=["answer"]).groupby("answer_id")["answer"].nunique()
    unlike = rows["answer_id"].isin(texts.index[texts > 1])
    rows.loc[unlike, "answer_id"] = rows.loc[unlike, "answer_id"] + ":" + rows.loc[unlike, "log"]
    rows.loc[unlike, "subject"] = rows.loc[unlike, "log"]
    return rows


def mean_rows(verdicts: pd.DataFrame, labels: pd.DataFrame) -> list[dict[str, Any]]:
    """Rows as of `means`: of each arm, and of its difference from the first, over all and by criterion and group.

    verdicts: of `together`; arms are the logs, or the subjects of a single log that has several. labels: answer_id,
    criterion, score, a row for each rater, perhaps `probability` with which an answer was drawn, and `split`: what was
    'chosen' stands for no other answer and is left out. A slice of an arm without labels has no row, nor has the
    difference of two that judge the same answers.
    """
    people = labels[labels["split"] != "chosen"] if "split" in labels else labels
    by = ["answer_id", "criterion"]
    chance = people.groupby("answer_id")["probability"].first() if "probability" in people else pd.Series(dtype=float)
    rows = verdicts[verdicts["score"].notna()].join(people.groupby(by)["score"].mean().rename("label"), on=by)
    several = rows["log"].nunique() > 1
    rows["arm"] = rows["log"] if several or rows["subject"].nunique() < 2 else rows["subject"].fillna("?")
    rows["all"] = "all"
    made = []
    for slice_ in ("all", "criterion", "group"):
        if slice_ != "all" and rows[slice_].nunique() < 2:
            continue
        for value_of, part in rows.groupby(slice_, sort=True):
            arms = {str(arm): of for arm, of in _arms(part, chance)}
            made += [_row(arm, "", slice_, value_of, corrected_mean([of])) for arm, of in arms.items()]
            first = next(iter(arms), "")
            answers = part.groupby("arm")["answer_id"].agg(set)
            for arm, of in list(arms.items())[1:]:
                if answers[arm] != answers[first]:  # the same answers have the same mean
                    made.append(_row(arm, first, slice_, value_of, corrected_mean([arms[first], of])))
    return made


def _arms(rows: pd.DataFrame, chance: pd.Series[float]) -> Iterator[tuple[str, Cases]]:
    """Each arm's answers; an answer's score and label are means over the criteria that are labelled, or all."""
    for arm, part in rows.groupby("arm", sort=False):
        kept = part[part["criterion"].isin(set(part.loc[part["label"].notna(), "criterion"]))]
        if kept.empty:
            continue
        answers = kept.groupby("answer_id", sort=False).agg(
            {"score": "mean", "label": "mean", "case_id": "first", "group": "first"}
        )
        is_class = answers.groupby("case_id").size().median() >= CLASS_SIZE
        clusters = answers.index if is_class else answers["case_id"]
        probability = (
            answers.index.to_series().map(chance).to_numpy(float) if len(chance) else np.full(len(answers), np.nan)
        )
        weights = np.where(np.isnan(probability), 1.0, 1 / np.where(np.isnan(probability), 1.0, probability))
        has = answers["label"].notna()
        strata = answers["case_id"] if is_class else answers["group"].fillna("")
        # Parts that labels were drawn in apart, or that are fixed, and that hold labels enough to stand for themselves.
        apart = has.groupby(strata).sum().min() >= 2 and (is_class or len(chance) > 0)
        yield (
            str(arm),
            Cases(
                answers["score"].to_numpy(float),
                answers["label"].to_numpy(float),
                clusters.to_numpy(str),
                weights,
                strata.to_numpy(str) if apart else None,
            ),
        )


def _row(arm: str, less: str, slice_: str, value_of: object, found: CorrectedMean) -> dict[str, Any]:
    both, labels, judge = found.corrected, found.labels, found.judge
    return {
        **{"arm": arm, "less": less, "slice": slice_, "value_of": str(value_of)},
        **{"value": both.value, "low": both.low, "high": both.high},
        **{"by_labels": labels.value, "labels_low": labels.low, "labels_high": labels.high},
        **{"by_judge": judge.value, "judge_low": judge.low, "judge_high": judge.high},
        **{"labels": both.n, "answers": judge.n, "clusters": both.clusters},
        **{"weight": found.weights[-1], "to_halve": found.to_halve},
    }

"""What mending a rubric does where a large model judges: before and after, beside asking plainly.

    python tests/studies/doctor.py

The model's scores lie in data/results/*_methods.csv without a word of the answers; people's scores are read from the
data beside the checkout. An arm is `plain` (one score by the guide), `was` and `now` (the checked score, by the rubric
before and after), and `was_points` and `now_points`, its checklist added up. Printed is QWK with people, the
mean over questions, with its 95 % interval over answers within questions, and paired with `plain` and with the rubric
before; then, all questions pooled, on unseen answers what the scores are worth mapped with 25 and 50 labels beside the
raw score and the text alone, means over draws.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np
import pandas as pd
from builders.label_losses import agreement_within, drawn
from never_worse import SCORES, rows
from recorded_sets import need
from recorded_tasks import RESOLVED

from rubricflow.tasks.core.contracts.bundle import Scale
from rubricflow.tasks.core.contracts.settings.study import Calibration
from rubricflow.tasks.core.stats.agreement import qwk
from rubricflow.tasks.grading.calibrate.choose import decide
from rubricflow.tasks.grading.calibrate.methods import apply_to_labels

ARMS = ("plain", "was_points", "was", "now_points", "now")
DRAWS = 500


def people(name: str) -> pd.DataFrame:
    """Columns response_id, item, text, human, second (another person, NaN where there is none), low, high, step."""
    if name == "asap_aes":
        told = pd.read_parquet(need("asap_aes", "essays.parquet"))
        found = told[["essay_id", "essay_set", "essay", "domain1_score"]].set_axis(
            ["response_id", "item", "text", "human"], axis=1
        )
        ends = found["item"].map(RESOLVED)
        found = found.assign(second=np.nan, low=ends.str[0], high=ends.str[1], step=1.0)
    elif name == "enem":
        told = pd.read_parquet(need("enem_essays", "essays_human_competences.parquet"))
        found = told[["essay_id", "essay", "human_total"]].set_axis(["response_id", "text", "human"], axis=1)
        found = found.assign(item="enem", second=np.nan, low=0.0, high=1000.0, step=40.0)
    elif name == "mohler":
        told = pd.read_parquet(need("mohler", "answers.parquet"))
        columns = ["answer_id", "question_id", "student_answer", "score_avg", "score_me", "score_other"]
        found = told[columns].set_axis(["response_id", "item", "text", "human", "first", "second"], axis=1)
        found = found.assign(low=0.0, high=5.0, step=0.25)
    else:
        told = pd.read_parquet(need("saf", "answers_feedback.parquet")).reset_index(names="response_id")
        columns = ["response_id", "question", "student_answer", "score"]
        found = told[columns].set_axis(["response_id", "item", "text", "human"], axis=1)
        found = found.assign(second=np.nan, low=0.0, high=1.0, step=0.125)
    return found.assign(response_id=found["response_id"].astype(str))


def by_question(frame: pd.DataFrame, column: str, whole: bool) -> float:
    """QWK with people, the mean over questions; over all answers where each question has few."""
    parts = [frame] if whole else [part for _, part in frame.groupby("item")]
    ends = [tuple(part[["low", "high", "step"]].iloc[0]) for part in parts]
    values = (
        qwk(part["human"].to_numpy(), part[column].to_numpy(), *end).value
        for part, end in zip(parts, ends, strict=True)
    )
    return float(np.mean([value or 0.0 for value in values]))


def redrawn(frame: pd.DataFrame, whole: bool) -> Iterator[dict[str, float]]:
    luck = np.random.default_rng(0)
    parts = [part for _, part in frame.groupby("item")]
    for _ in range(DRAWS):
        again = pd.concat([part.iloc[luck.integers(len(part), size=len(part))] for part in parts])
        yield {arm: by_question(again, arm, whole) for arm in ARMS if arm in frame}


def mapped(frame: pd.DataFrame, arm: str, draws: int) -> str:
    """Mapped, raw and the text alone on unseen answers, at 25 and 50 labels of all questions together."""
    items = sorted(frame["item"].unique())
    ends = frame.groupby("item")[["low", "high", "step"]].first().loc[items].to_numpy()
    scales = [Scale(min=low, max=high, step=step) for low, high, step in ends]
    part = frame.assign(own=frame[arm], cluster=frame["response_id"], item=frame["item"].map(items.index))
    if len(items) > 1:
        span = part["high"] - part["low"]
        part = part.assign(own=(part["own"] - part["low"]) / span, human=(part["human"] - part["low"]) / span)
    labels, said = rows(part.sort_values("item"), scales), []
    for count in (count for count in (25, 50) if count <= 0.65 * len(labels)):
        told = []
        for seed in range(draws):
            teach, unseen = drawn(labels, count, seed, len(labels))
            new, decision = labels.take(unseen), decide(labels.take(teach), Calibration())
            tried = {one.method: one.tried for one in decision.candidates}["text_only"]
            raw = agreement_within(new.raw, new)
            chosen, text = raw, np.nan
            if decision.tried is not None:
                chosen = agreement_within(
                    apply_to_labels(decision.tried.mapping, new, decision.tried.weight).aligned, new
                )
            if tried is not None:
                text = agreement_within(apply_to_labels(tried.mapping, new).aligned, new)
            told.append([chosen, raw, text])
        said.append(f"{count} labels " + " ".join(f"{mean:.3f}" for mean in np.nanmean(told, axis=0)))
    return "; ".join(said)


def compared(frame: pd.DataFrame, whole: bool) -> Iterator[str]:
    """A line an arm: QWK and mean score, less `plain`, and less the same by the rubric before."""
    arms, again = [arm for arm in ARMS if arm in frame], pd.DataFrame(redrawn(frame, whole))

    def interval(values: pd.Series) -> str:
        return f"[{values.quantile(0.025):.3f}, {values.quantile(0.975):.3f}]"

    value = {arm: by_question(frame, arm, whole) for arm in arms}
    for arm in arms:
        said = f"  {arm}: {value[arm]:.3f} {interval(again[arm])}, mean {frame[arm].mean():.2f}"
        for other in {"plain", arm.replace("now", "was")} & set(arms) - {arm}:
            said += f"; less {other} {value[arm] - value[other]:.3f} {interval(again[arm] - again[other])}"
        yield said


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=12)
    draws = parser.parse_args().draws
    warnings.filterwarnings("ignore", category=RuntimeWarning)
    for name in ("mohler", "saf", "enem", "asap_aes"):
        scores = pd.read_csv(SCORES / f"{name}_methods.csv", dtype={"response_id": str})
        wide = scores.pivot(index="response_id", columns="arm", values="score").dropna().reset_index()
        frame, whole = wide.merge(people(name), on="response_id"), name in ("mohler", "saf")
        mean = frame["human"].mean()
        print(f"\n{name}: {len(frame)} answers, {frame['item'].nunique()} questions, people's mean {mean:.2f}")
        if frame["second"].notna().all():
            value = by_question(frame.assign(human=frame["first"]), "second", whole)
            print(f"  one person with the other: {value:.3f}")
        for line in compared(frame, whole):
            print(line, flush=True)
        if whole:
            continue
        arms = [arm for arm in ARMS if arm in frame]
        for arm in arms:
            print(f"  {arm}, mapped, raw and text alone: {mapped(frame, arm, draws)}", flush=True)
        for item, part in frame.groupby("item"):
            print(f"  {item}: " + ", ".join(f"{arm} {by_question(part, arm, True):.2f}" for arm in arms))


if __name__ == "__main__":
    main()

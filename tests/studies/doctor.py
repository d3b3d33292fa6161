"""What a large model is best asked: plainly, by a checklist or by both, and by a rubric before it was mended and after.

    python tests/studies/doctor.py [SET ...]

The model's scores lie in data/results/*_methods.csv without a word of the answers; people's scores are read from the
data beside the checkout. An arm is `plain` (one score by the guide), `rulers` and `pointwise_4` and `pointwise_1`
(the checklist added up, asked in one call, four criteria and one a call), `was` and `now` (the checked score, by the
rubric before and after; `revised` as the model rewrote it), `was_points` and `now_points`, its checklist added up
(`_75` with three quarters for a middle level), `both`, the mean of `plain` and the checked score, and `_spread` and
`_nearest` the same asking with eight marked answers of the question, of 100, (`_20` of 20, `_all` of all) beside the
one to be judged. Printed is QWK with people, the mean over questions, with its 95 % interval over answers within
questions, and paired with `plain`, with the rubric before and with people; arms that saw some of the answers are
compared on these. Then, all questions pooled, on unseen answers what the scores are worth mapped with 25 and 50
labels beside the raw score and the text alone, means over draws; and, question by question, what mappings of the
checked score by 10 to 30 labels are worth, and the best there is in hindsight. Last, the checked score less the plain
one over all samples of a kind, weighted by their errors.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np
import pandas as pd
from builders.label_losses import agreement_within, drawn
from never_worse import SCORES, rows
from recorded_sets import need
from recorded_tasks import RESOLVED
from sklearn.linear_model import Ridge

from rubricflow.tasks.core.contracts.bundle import Scale
from rubricflow.tasks.core.contracts.settings.study import Calibration
from rubricflow.tasks.core.stats.agreement import qwk
from rubricflow.tasks.core.stats.arrays import Floats
from rubricflow.tasks.grading.calibrate.choose import decide
from rubricflow.tasks.grading.calibrate.methods import apply_to_labels

CHECKED = ("was_points", "was", "now_points", "now_points_75", "now", "revised_points", "revised")
ASKED = ("plain", "rulers", "pointwise_1", "pointwise_4", *CHECKED)
SHOWN = ("plain_spread", "plain_nearest", "plain_nearest_20", "plain_nearest_all", "was_spread", "was_nearest")
ARMS = (*ASKED, *SHOWN, "both", "second")
SETS = ("asap_sas_eight", "asap_sas_more", "mohler", "saf", "enem", "asap_aes")
MORE = {
    "both": ["now", "was"],
    "now_points_75": ["now_points"],
    "revised": ["now"],
    "revised_points": ["now_points"],
    "rulers": ["was"],
    "pointwise_4": ["was"],
    "plain_spread": ["was"],
    "plain_nearest": ["was", "plain_spread"],
    "plain_nearest_20": ["was", "plain_nearest"],
    "plain_nearest_all": ["was", "plain_nearest"],
    "was_spread": ["was", "plain_spread"],
    "was_nearest": ["was", "was_spread"],
}
BESIDE = (("plain_spread", "plain"), ("plain_nearest", "plain"), ("was_nearest", "was"), ("plain_nearest", "was"))
PEOPLE = ["response_id", "item", "text", "human", "low", "high", "step"]
DRAWS = 500
KINDS = {
    "short answers by guides": ["asap_sas_eight", "asap_sas_more", (0.009, -0.051, 0.055)],
    "essays": ["asap_aes", (0.011, -0.029, 0.049)],
    "Portuguese essays": ["enem", (0.012, -0.040, 0.075)],
    "short answers by a reference": ["mohler", "saf"],
}
"""Samples of a kind; those whose scores were not kept by the difference and interval printed when they were judged."""
BEFORE = {"asap_sas_eight": 0.016}
"""The same difference of the same answers by an earlier asking of `plain`, whose scores were not kept."""


def people(name: str) -> pd.DataFrame:
    """Columns response_id, item, text, human, second (another person, where there is one), low, high, step."""
    if name.startswith("asap_sas"):
        told = pd.read_parquet(need("asap_sas", "answers.parquet"))
        columns = ["answer_id", "question_id", "student_answer", "score_rater1", "score_rater2"]
        found = told[columns].set_axis(["response_id", "item", "text", "human", "second"], axis=1)
        found = found.assign(low=0.0, high=np.where(found["item"].isin([1, 2, 5, 6]), 3.0, 2.0), step=1.0)
    elif name == "asap_aes":
        told = pd.read_parquet(need("asap_aes", "essays.parquet"))
        found = told[["essay_id", "essay_set", "essay", "domain1_score"]].set_axis(
            ["response_id", "item", "text", "human"], axis=1
        )
        ends = found["item"].map(RESOLVED)
        found = found.assign(low=ends.str[0], high=ends.str[1], step=1.0)
    elif name == "enem":
        told = pd.read_parquet(need("enem_essays", "essays_human_competences.parquet"))
        found = told[["essay_id", "essay", "human_total"]].set_axis(["response_id", "text", "human"], axis=1)
        found = found.assign(item="enem", low=0.0, high=1000.0, step=40.0)
    elif name == "mohler":
        told = pd.read_parquet(need("mohler", "answers.parquet"))
        columns = ["answer_id", "question_id", "student_answer", "score_avg", "score_me", "score_other"]
        found = told[columns].set_axis(["response_id", "item", "text", "human", "first", "other"], axis=1)
        found = found.assign(low=0.0, high=5.0, step=0.25)
    else:
        told = pd.read_parquet(need("saf", "answers_feedback.parquet")).reset_index(names="response_id")
        columns = ["response_id", "question", "student_answer", "score"]
        found = told[columns].set_axis(["response_id", "item", "text", "human"], axis=1)
        found = found.assign(low=0.0, high=1.0, step=0.125)
    return found.assign(response_id=found["response_id"].astype(str))


def by_question(frame: pd.DataFrame, column: str, whole: bool) -> float:
    """QWK with people, the mean over questions; over all answers where each question has few."""
    parts = [frame] if whole else [part for _, part in frame.groupby("item")]
    values = (agreed(part, part[column].to_numpy(float)) for part in parts)
    return float(np.mean(list(values)))


def agreed(part: pd.DataFrame, scores: Floats) -> float:
    return qwk(part["human"].to_numpy(float), scores, *part[["low", "high", "step"]].iloc[0]).value or 0.0


def redrawn(frame: pd.DataFrame, whole: bool) -> Iterator[dict[str, float]]:
    luck = np.random.default_rng(0)
    parts = [part for _, part in frame.groupby("item")]
    for _ in range(DRAWS):
        again = pd.concat([part.iloc[luck.integers(len(part), size=len(part))] for part in parts])
        yield {arm: by_question(again, arm, whole) for arm in ARMS if arm in frame}


def mapped(frame: pd.DataFrame, arms: list[str], draws: int) -> Iterator[str]:
    """For each arm: mapped, raw and the text alone on unseen answers, at 25 and 50 labels of all questions together."""
    items = sorted(frame["item"].unique())
    ends = frame.groupby("item")[["low", "high", "step"]].first().loc[items].to_numpy()
    scales = [Scale(min=low, max=high, step=step) for low, high, step in ends]
    part = frame.assign(cluster=frame["response_id"], item=frame["item"].map(items.index)).sort_values("item")
    low, span = (part["low"], part["high"] - part["low"]) if len(items) > 1 else (0.0, 1.0)
    part = part.assign(human=(part["human"] - low) / span, own=(part["plain"] - low) / span)
    base = rows(part, scales)
    for arm in arms:
        own, said = ((part[arm] - low) / span).to_numpy(float), []
        labels = replace(base, raw=own, matrix=np.column_stack([own, base.matrix[:, 1:]]))
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
        yield f"  {arm}, mapped, raw and text alone: {'; '.join(said)}"


def one_by_one(frame: pd.DataFrame, arm: str, draws: int) -> Iterator[str]:
    """Each question mapped by labels of its own, QWK on its other answers, the mean over questions; then the best map
    that never falls, and the best of score and points together, both found on the very answers that they are held
    against."""
    parts = [part for _, part in frame.groupby("item")]
    for count in (10, 20, 30):
        found: dict[str, list[float]] = {
            "raw": [],
            "shifted": [],
            "means of a score": [],
            "margins equated": [],
            "with its points": [],
        }
        for part, seed in itertools.product(parts, range(draws)):
            order = np.random.default_rng([seed, part["item"].iloc[0]]).permutation(len(part))
            teach, new = part.iloc[order[:count]], part.iloc[order[count:]]
            score, human, fresh = (one.to_numpy(float) for one in (teach[arm], teach["human"], new[arm]))
            kept, gap = 5 / (count + 5), human - score  # five labels' weight for no change
            found["raw"].append(agreed(new, fresh))
            found["shifted"].append(agreed(new, fresh + (1 - kept) * gap.mean()))
            moved = {one: gap[score == one].sum() / ((score == one).sum() + 3) for one in np.unique(part[arm])}
            found["means of a score"].append(agreed(new, np.array([one + moved[one] for one in fresh])))
            rank = part[arm].rank(pct=True) - part.groupby(arm)[arm].transform("size") / (2 * len(part))
            place = rank.loc[new.index].to_numpy(float)
            equated = np.quantile(human, np.clip(place, 0, 1), method="nearest")
            found["margins equated"].append(agreed(new, fresh + (1 - kept) * (equated - fresh)))
            both = [one[[arm, f"{arm}_points"]].to_numpy(float) for one in (teach, new)]
            ridge = Ridge(alpha=20.0).fit(both[0] - both[0].mean(axis=0), gap)
            found["with its points"].append(agreed(new, fresh + ridge.predict(both[1] - both[0].mean(axis=0))))
        yield f"  {arm}, {count} labels a question: " + ", ".join(f"{way} {np.mean(x):.3f}" for way, x in found.items())
    best = list[list[float]]()
    for part in parts:
        score, low = part[arm].to_numpy(float), part["low"].iloc[0]
        levels = np.arange(low, part["high"].iloc[0] + 1)
        falls_never = itertools.combinations_with_replacement(levels, len(levels))
        best.append([max(agreed(part, np.array(one)[(score - low).astype(int)]) for one in falls_never)])
        free, cells = score.copy(), list(part.reset_index().groupby([arm, f"{arm}_points"]).groups.values())
        for cell, level in itertools.product([*cells, *cells, *cells], levels):
            other = free.copy()
            other[cell] = level
            free = other if agreed(part, other) > agreed(part, free) else free
        best[-1].append(agreed(part, free))
    rising, free = np.mean(best, axis=0)
    yield f"  {arm}, in hindsight: the best map {rising:.3f}, of score and points {free:.3f}"


def compared(frame: pd.DataFrame, whole: bool) -> Iterator[str]:
    """A line an arm: QWK, mean score, exact agreement, and less `plain`, the same by the rubric before, and people."""
    arms, again = [arm for arm in ARMS if arm in frame], pd.DataFrame(redrawn(frame, whole))

    def interval(values: pd.Series) -> str:
        return f"[{values.quantile(0.025):.3f}, {values.quantile(0.975):.3f}]"

    value = {arm: by_question(frame, arm, whole) for arm in arms}
    for arm in arms:
        exact = (frame[arm] - frame["human"]).abs().lt(frame["step"] / 2).mean()
        said = f"  {arm}: {value[arm]:.3f} {interval(again[arm])}, mean {frame[arm].mean():.2f}, exact {exact:.2f}"
        others = ["plain", arm.replace("now", "was"), *MORE.get(arm, []), "second"]
        for other in (other for other in others if other in arms and other != arm):
            said += f"; less {other} {value[arm] - value[other]:.3f} {interval(again[arm] - again[other])}"
        yield said


def read(name: str) -> pd.DataFrame:
    """People's columns and a column an arm, with gaps; the mean of both askings by the rubric that is in use."""
    scores = pd.read_csv(SCORES / f"{name}_methods.csv", dtype={"response_id": str})
    wide = scores.pivot(index="response_id", columns="arm", values="score").reset_index()
    if checked(name) in wide:
        wide["both"] = (wide["plain"] + wide[checked(name)]) / 2
    return wide.merge(people(name), on="response_id")


def checked(name: str) -> str:
    return "now" if name in ("mohler", "saf") else "was"


def over_all() -> Iterator[str]:
    """The checked score less the plain one: each kind's samples, and all of them, weighted by their errors."""
    every = list[tuple[float, float]]()
    for kind, samples in KINDS.items():
        parts = []
        for sample in samples:
            if isinstance(sample, tuple):
                parts.append((sample[0], (sample[2] - sample[1]) / 3.92))
                continue
            gap, error = less(sample, checked(sample), "plain")
            parts.append(((gap + BEFORE.get(sample, gap)) / 2, error))
        every += parts
        yield f"  {kind}: " + ", ".join(f"{gap:.3f}" for gap, _ in parts) + f"; {weighted(parts)}"
    yield f"  all: {weighted(every)}"


def less(sample: str, arm: str, other: str) -> tuple[float, float]:
    """How far an arm is above another of the same answers, and the standard error."""
    frame, whole = read(sample).dropna(subset=[arm, other]), sample in ("mohler", "saf")
    again = pd.DataFrame(redrawn(frame[[*PEOPLE, arm, other]], whole))
    return by_question(frame, arm, whole) - by_question(frame, other, whole), float((again[arm] - again[other]).std())


def weighted(parts: list[tuple[float, float]]) -> str:
    """By their errors alone, and with what samples differ by beyond them (DerSimonian and Laird 1986)."""
    (gaps, errors), said = np.array(parts).T, []
    weights = errors**-2.0
    beyond = float(weights @ (gaps - np.average(gaps, weights=weights)) ** 2) - len(gaps) + 1
    between = max(0.0, beyond / (weights.sum() - (weights**2).sum() / weights.sum()))
    for ours in (weights, 1 / (errors**2 + between)):
        mean, error = np.average(gaps, weights=ours), ours.sum() ** -0.5
        said.append(f"{mean:.3f} [{mean - 1.96 * error:.3f}, {mean + 1.96 * error:.3f}]")
    return f"together {said[0]}, as samples of many {said[1]}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", nargs="*", default=SETS)
    parser.add_argument("--draws", type=int, default=12)
    given = parser.parse_args()
    warnings.filterwarnings("ignore", category=RuntimeWarning)
    for name in given.sets:
        every, whole = read(name), name in ("mohler", "saf")
        counted = every.notna().sum()
        arms = [arm for arm in ARMS if arm in every and counted[arm] == len(every)]
        frame = every[[*PEOPLE, *arms, *{"first", "other"} & set(every)]]
        mean = frame["human"].mean()
        print(f"\n{name}: {len(frame)} answers, {frame['item'].nunique()} questions, people's mean {mean:.2f}")
        if "first" in frame:
            value = by_question(frame.assign(human=frame["first"]), "other", whole)
            print(f"  one person with the other: {value:.3f}")
        for line in compared(frame, whole):
            print(line, flush=True)
        for arm in (arm for arm in ARMS if arm in every and arm not in arms):
            part = every.dropna(subset=arm)[[*frame.columns, arm]]
            print(f" of {len(part)} answers")
            for line in compared(part, whole):
                print(line, flush=True)
        if whole:
            continue
        for item, part in frame.groupby("item"):
            print(f"  {item}: " + ", ".join(f"{arm} {by_question(part, arm, True):.2f}" for arm in arms))
        if frame["item"].value_counts().min() >= 40 and f"{checked(name)}_points" in arms and name != "enem":
            for line in one_by_one(frame, checked(name), given.draws):
                print(line, flush=True)
        for line in mapped(frame, [arm for arm in arms if arm != "second"], given.draws):
            print(line, flush=True)
    print("\nthe checked score less the plain one")
    for line in over_all():
        print(line, flush=True)
    print("\nwith marked answers beside, both samples of short answers by guides")
    for arm, other in BESIDE:
        parts = [less(sample, arm, other) for sample in ("asap_sas_eight", "asap_sas_more")]
        gaps = ", ".join(f"{gap:.3f}" for gap, _ in parts)
        print(f"  {arm} less {other}: {gaps}; {weighted(parts)}", flush=True)


if __name__ == "__main__":
    main()

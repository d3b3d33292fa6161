"""What `next` gains over marking responses in random order, by replaying labels; and that the promise holds with it.

    python tests/studies/next_labels.py [--repeats N] [--studies N]

Replay: of each set a third is held out; 20 responses are labelled at random, then 20 at a time up to 200, by each
order. Features are the recorded judge's score (where none is recorded, the words shared with the reference answer), the
length and 30 components of the words; a ridge maps them, its strength chosen by leave-one-out; QWK is that of its
scores with the mean and spread of the labels, and what is released goes by the ridge's own. Orders: `random`; `next`;
`chosen`, which draws nothing by chance; `level`, which balances the predicted scores; `unsure`, which takes the scores
nearest to a boundary between two levels. The promise counts drawn labels; those of `level` and `unsure` are all
counted, as somebody would who did not know better.

Simulation: studies of 300 responses in which those far from the others are marked with less noise than the rest, or
with more; of 100 labels 20 are there at first. `chosen, counted` chooses all the others and counts them. Broken is a
promise whose share of wrong scores, in 4,000 new responses of the same kind, is above the target.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import pandas as pd
from recorded_calibration import tasks
from recorded_sets import asap_aes, need, sas_sampled
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer

from rubricflow.tasks.core.contracts.bundle import Scale
from rubricflow.tasks.core.stats.agreement import qwk, to_levels
from rubricflow.tasks.core.stats.promise import promise
from rubricflow.tasks.grading.calibrate.planner import RidgeDesign, _Variance, design, proposals
from rubricflow.tasks.grading.calibrate.spread import risks
from rubricflow.tasks.grading.evaluate.released import binomial

START, BATCH, LABELS = 20, 20, 200
SHOWN = (20, 40, 60, 80, 100, 140, 200)
STRENGTHS = (1.0, 3.0, 10.0, 30.0, 100.0, 300.0)
TARGET, CONFIDENCE = 0.2, 0.9
FOLDS = 10
CELLS = ((2.0, 0.85), (2.0, 1.0), (0.0, 0.9), (-1.0, 0.7))
"""How much less noise there is far out, and its standard deviation near the middle."""
MOST = 700
"""Responses of a set that are held out, and as many to choose from."""
JUDGES = {"1": "gpt-3.5-turbo-0301 B", "2": "gpt-3.5-turbo-0301 C"} | dict.fromkeys("3467", "gpt-3.5-turbo-0301 B")
"""Essay set → the judge that graded enough of it."""


class Pool(NamedTuple):
    """A labelled set; tolerance: steps within which a score is right."""

    name: str
    features: np.ndarray
    human: np.ndarray
    item: np.ndarray
    scale: Scale
    tolerance: float


class Ridge(NamedTuple):
    """weights; center: mean of the terms and of the target; strength; loo: leave-one-out predictions."""

    weights: np.ndarray
    center: tuple[np.ndarray, float]
    strength: float
    loo: np.ndarray

    def predict(self, terms: np.ndarray) -> np.ndarray:
        return self.center[1] + (terms - self.center[0]) @ self.weights


def words(texts: list[str]) -> np.ndarray:
    """Thirty components of what texts say."""
    matrix = TfidfVectorizer(min_df=2, sublinear_tf=True).fit_transform(texts)
    return TruncatedSVD(30, random_state=0).fit_transform(matrix)


def pool(name: str, raw: np.ndarray, texts: pd.Series, human: np.ndarray, item: np.ndarray, scale: Scale, off: float):
    length = np.log1p(texts.str.len().to_numpy(float))
    return Pool(name, np.column_stack([raw, length, words(texts.tolist())]), human, item, scale, off)


def recorded(name: str, made: Callable) -> Iterator[Pool]:
    """One pool per prompt, with one recorded judge."""
    for task in tasks(name, made()):
        if name == "asap_aes" and JUDGES[task.item] != task.judge:
            continue
        labels, scale = task.labels, task.labels.scales[0]
        off = 0.0 if scale.levels < 5 else 1.0 if scale.levels < 20 else 3.0
        yield pool(f"{name} {task.item}", labels.raw, task.people["text"], labels.human, labels.item, scale, off)


def by_reference(name: str, frame: pd.DataFrame, score: str, scale: Scale) -> Pool:
    """All questions of a set together; the judge is what an answer shares with its reference."""
    model = TfidfVectorizer(sublinear_tf=True).fit([*frame["student_answer"], *frame["reference_answer"]])
    pair = [model.transform(frame[column]) for column in ("student_answer", "reference_answer")]
    shared = np.asarray(pair[0].multiply(pair[1]).sum(axis=1)).ravel()
    item = pd.factorize(frame["question_id"])[0]
    return pool(name, shared, frame["student_answer"], frame[score].to_numpy(float), item, scale, 2.0)


def pools() -> Iterator[Pool]:
    yield from recorded("asap_sas", sas_sampled)
    yield from recorded("asap_aes", asap_aes)
    yield by_reference(
        "mohler", pd.read_parquet(need("mohler", "answers.parquet")), "score_avg", Scale(min=0, max=5, step=0.5)
    )
    saf = pd.read_parquet(need("saf", "answers_feedback.parquet"))
    english = saf[saf["language"] == "english"].reset_index(drop=True)
    yield by_reference("saf", english, "score", Scale(min=0, max=1, step=0.125))


def ridge(terms: np.ndarray, human: np.ndarray) -> Ridge:
    """The ridge with the least leave-one-out error of those tried."""
    center = terms.mean(axis=0), float(human.mean())
    left, size, right = np.linalg.svd(terms - center[0], full_matrices=False)
    inside, best = left.T @ (human - center[1]), None
    for strength in STRENGTHS:
        shrunk = size**2 / (size**2 + strength)
        leverage = np.minimum((left**2 * shrunk).sum(axis=1) + 1 / len(human), 0.99)
        loo = human - (human - center[1] - left @ (shrunk * inside)) / (1 - leverage)
        error = np.mean((human - loo) ** 2)
        if best is None or error < best[0]:
            best = error, Ridge(right.T @ (size / (size**2 + strength) * inside), center, strength, loo)
    return best[1]


def released(model: Ridge, labels, counted, terms, human, scale: Scale, tolerance: float) -> tuple[float, float]:
    """(Share of new scores released by the promise, share of those that is wrong); labels: human scores fitted on."""
    top = scale.levels - 1
    steps = [np.clip((one - scale.min) / scale.step, 0, top) for one in (model.loo, model.predict(terms))]
    known, new = (np.clip((one - scale.min) / scale.step, 0, top) for one in (labels, human))
    level = [to_levels(one, 0.0, top, 1.0) for one in steps]
    epsilon, fold = (known - steps[0])[counted], np.arange(counted.sum()) % FOLDS
    risk = np.empty(len(epsilon))
    for out in (fold == k for k in range(FOLDS)):  # a row's own residual has no part in its risk
        risk[out] = told(steps[0][counted][out], level[0][counted][out], np.sort(epsilon[~out]), top, tolerance)
    wrong = [np.abs(h - at) > tolerance + 1e-9 for h, at in zip((known, new), level, strict=True)]
    made = promise(risk, wrong[0][counted], TARGET, CONFIDENCE)
    if made.threshold is None:
        return 0.0, np.nan
    given = model.predict(terms)
    out = told(steps[1], level[1], np.sort(epsilon), top, tolerance) <= made.threshold
    out &= np.isin(level[1], to_levels(known, 0.0, top, 1.0))
    out &= (given >= model.loo.min()) & (given <= model.loo.max())
    return float(out.mean()), float(wrong[1][out].mean()) if out.any() else np.nan


def told(steps: np.ndarray, level: np.ndarray, epsilon: np.ndarray, top: int, tolerance: float) -> np.ndarray:
    """The risk of scores by the residuals of others."""
    return risks(steps, np.ones(len(steps)), level, top, epsilon, tolerance, 0.0)


def figures(one: Pool, terms, held, labelled, counted) -> dict[str, float]:
    """QWK, RMSE as a share of the scale, and what the promise releases of the held-out responses."""
    human, scale = one.human[labelled], one.scale
    model = ridge(terms[labelled], human)
    given, span = model.predict(terms[held]), scale.max - scale.min
    spread = np.clip(human.std() / max(model.loo.std(), 1e-9), 0.5, 3)
    linked = human.mean() + (given - model.loo.mean()) * spread
    error = np.clip(given, scale.min, scale.max) - one.human[held]
    out, wrong = released(model, human, counted, terms[held], one.human[held], scale, one.tolerance)
    return {
        "QWK": qwk(one.human[held], linked, *scale.bounds).value or 0.0,
        "RMSE": float(np.sqrt(np.mean(error**2))) / span,
        "released": out,
        "wrong": wrong,
    }


def by_next(
    plan: RidgeDesign, labelled: np.ndarray, asked: np.ndarray, order: np.ndarray, **_
) -> list[tuple[int, bool]]:
    taught = np.isin(np.arange(len(plan.terms)), labelled)
    found = proposals(plan, taught, asked, asked, order, BATCH)
    return [(proposal.row, proposal.sampled == "drawn") for proposal in found]


def by_choice(plan: RidgeDesign, labelled: np.ndarray, asked: np.ndarray, **_) -> list[tuple[int, bool]]:
    """The best responses one after the other: what `next` chooses if it never draws."""
    variance, left, found = _Variance(plan, np.isin(np.arange(len(asked)), labelled), asked), asked.copy(), []
    for _ in range(BATCH):
        row = int(np.argmax(np.where(left, variance.gains(), -np.inf)))
        variance.add(row)
        left[row] = False
        found.append((row, False))
    return found


def at_random(asked: np.ndarray, order: np.ndarray, **_) -> list[tuple[int, bool]]:
    return [(row, True) for row in order[asked[order]][:BATCH].tolist()]


def by_level(asked: np.ndarray, order: np.ndarray, predicted: np.ndarray, labelled, one: Pool, **_):
    level = to_levels(predicted, *one.scale.bounds)
    seen = pd.Series(level[labelled]).value_counts().to_dict()
    queue = {at: [row for row in order[asked[order]] if level[row] == at] for at in set(level[asked])}
    found = []
    for _ in range(BATCH):
        at = min((at for at in queue if queue[at]), key=lambda at: (seen.get(at, 0), at))
        found.append((queue[at].pop(0), True))
        seen[at] = seen.get(at, 0) + 1
    return found


def by_doubt(asked: np.ndarray, predicted: np.ndarray, one: Pool, **_) -> list[tuple[int, bool]]:
    steps = (predicted - one.scale.min) / one.scale.step
    nearest = np.argsort(np.where(asked, np.abs(steps - np.floor(steps) - 0.5), np.inf), kind="stable")
    return [(row, True) for row in nearest[:BATCH].tolist()]


ORDERS = {"random": at_random, "next": by_next, "chosen": by_choice, "level": by_level, "unsure": by_doubt}


def replay(one: Pool, repeat: int) -> Iterator[dict[str, object]]:
    """The figures of every order at every number of labels; held-out responses and first labels are the same."""
    shuffled = np.random.default_rng(repeat).permutation(len(one.human))
    cut = min(len(shuffled) // 3, MOST)
    held, mine = shuffled[:cut], shuffled[cut : cut + MOST]
    part = one._replace(features=one.features[mine], human=one.human[mine], item=one.item[mine])
    both = np.concatenate([mine, held])
    plan = design(one.features[both], one.item[both])
    ridge_terms = plan.terms[:, 1:] * np.sqrt(plan.penalty[1] / plan.penalty[1:])
    size, whole = len(mine), one._replace(human=one.human[both])
    for name, order in ORDERS.items():
        labelled, counted = list(range(START)), [True] * START
        while True:
            if len(labelled) in SHOWN:
                found = figures(whole, ridge_terms, slice(size, None), np.array(labelled), np.array(counted))
                yield {"set": one.name, "repeat": repeat, "order": name, "labels": len(labelled)} | found
            asked = np.ones(size, dtype=bool)
            asked[labelled] = False
            if len(labelled) >= LABELS or asked.sum() < BATCH:
                break
            model = ridge(ridge_terms[labelled], part.human[labelled])
            ahead = RidgeDesign(plan.terms[:size], plan.penalty)
            batch = order(
                plan=ahead, labelled=np.array(labelled), asked=asked, order=np.arange(size), one=part,
                predicted=model.predict(ridge_terms[:size]),
            )  # fmt: skip
            labelled += [row for row, _ in batch]
            counted += [drawn for _, drawn in batch]


def mean_and_interval(values: pd.DataFrame) -> str:
    """Mean over sets and repeats, and the 95% interval of redrawn repeats; values: a row for each repeat."""
    rng, rows = np.random.default_rng(0), values.to_numpy(float)
    drawn = [np.nanmean(rows[rng.integers(len(rows), size=len(rows))]) for _ in range(1000)]
    low, high = np.quantile(drawn, (0.025, 0.975))
    return f"{np.nanmean(rows):+.3f} [{low:+.3f}, {high:+.3f}]"


def learning_curves(repeats: int) -> None:
    rows = pd.DataFrame([row for one in pools() for repeat in range(repeats) for row in replay(one, repeat)])
    print(f"\n{rows['set'].nunique()} sets, {repeats} repeats; promise: {TARGET:.0%} wrong at {CONFIDENCE:.0%}\n")
    print(
        rows.groupby(["order", "labels"], sort=False)[["QWK", "RMSE", "released", "wrong"]].mean().round(3).unstack(0)
    )
    keys = ["set", "repeat", "labels"]
    base = rows[rows["order"] == "random"].set_index(keys)
    for figure in ("QWK", "RMSE", "released"):
        print(f"\n{figure}: gain over random order, mean over sets and its 95% interval over repeats")
        for name in list(ORDERS)[1:]:
            gain = (rows[rows["order"] == name].set_index(keys)[figure] - base[figure]).rename("gain").reset_index()
            told = {
                n: mean_and_interval(part.pivot(index="repeat", columns="set", values="gain"))
                for n, part in gain.groupby("labels")
                if n > START
            }
            print(f"  {name:8}" + "  ".join(f"{n}: {text}" for n, text in told.items()))
    gain = rows[rows["order"] == "next"].set_index(keys)[["QWK", "released"]] - base[["QWK", "released"]]
    print("\n`next` less random by set, mean over repeats")
    print(gain.groupby(["set", "labels"]).mean().round(3).unstack())
    made = rows[rows["wrong"].notna()]
    print("\nshare of replays whose released held-out scores are wrong more often than the target")
    print(made.assign(over=made["wrong"] > TARGET).groupby("order", sort=False)["over"].agg(["mean", "size"]).round(3))


def drawn_study(rng: np.random.Generator, n: int, easy: float, sd: float) -> tuple[np.ndarray, np.ndarray]:
    """Features and human scores on 0 .. 6; sd: of the noise; easy: how much less there is far out, more if < 0."""
    features = rng.normal(size=(n, 8)) * np.where(rng.random((n, 1)) < 0.15, 2.5, 0.8)
    far = np.clip(np.linalg.norm(features, axis=1) / 3, 0, 2)
    noise = rng.normal(size=n) * sd * np.exp(-easy * (far - 0.8))
    return features, np.clip(np.round(3 + features[:, 0] + 0.5 * features[:, 1] + noise), 0, 6)


SIMULATED = {"random": at_random, "next": by_next, "chosen, counted": by_choice}


def simulated_study(seed: int, easy: float, sd: float, name: str) -> tuple[float, float]:
    """(Share released, share of it wrong) in new responses, after 100 labels in some order."""
    rng, order = np.random.default_rng([seed, 10]), np.arange(300)
    (features, human), new = drawn_study(rng, 300, easy, sd), drawn_study(rng, 4000, easy, sd)
    plan = design(np.vstack([features, new[0]]), np.zeros(4300, dtype=np.int64))
    terms, ahead = plan.terms[:, 1:], RidgeDesign(plan.terms[:300], plan.penalty)
    labelled, counted = list(range(START)), [True] * START
    while len(labelled) < 100:
        asked = ~np.isin(order, labelled)
        batch = SIMULATED[name](plan=ahead, labelled=np.array(labelled), asked=asked, order=order)
        labelled += [row for row, _ in batch]
        counted += [is_drawn or name == "chosen, counted" for _, is_drawn in batch]
    model = ridge(terms[labelled], human[labelled])
    return released(model, human[labelled], np.array(counted), terms[300:], new[1], Scale(min=0, max=6), 1.0)


def simulated(studies: int) -> None:
    print(f"\nsimulated studies: of promises {1 - CONFIDENCE:.0%} may be broken\n")
    rows = []
    for easy, sd in CELLS:
        for name in SIMULATED:
            out, wrong = np.array([simulated_study(seed, easy, sd, name) for seed in range(studies)]).T
            broken = binomial(int(np.sum(wrong > TARGET)), studies)
            rows.append(
                {
                    "noise": sd,
                    "far out": "less" if easy > 0 else "more" if easy < 0 else "the same",
                    "order": name,
                    "broken": f"{np.mean(wrong > TARGET):.3f} [{broken.low:.3f}, {broken.high:.3f}]",
                    "released": out.mean().round(3),
                    "wrong": np.nanmean(wrong).round(3),
                }
            )
    print(pd.DataFrame(rows).to_string(index=False))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--studies", type=int, default=250)
    given = parser.parse_args()
    pd.set_option("display.width", 250, "display.max_columns", 50)
    simulated(given.studies)
    learning_curves(given.repeats)


if __name__ == "__main__":
    main()

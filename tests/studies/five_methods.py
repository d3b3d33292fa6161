"""Are Rulers' locked checklists better than its baselines where a large model judges?

The scores that the model gave 90 answers to ASAP-SAS questions 4, 7 and 9 under each method lie in
data/results/asap_sas_methods.csv, without a word of the answers; people's scores are read from the data beside the
checkout. Printed is QWK with rater 1, the mean over questions, in four ways: raw; as in the paper's main table, Rulers
by its phase III and the baselines raw; all alike, by phase III of score, length and tie; and, on the half that the runs
held out, by this project's own mapping. Phase III is fitted to all but a tenth of the 90 answers and applied to that
tenth, in 20 draws of the tenths. Intervals redraw answers within questions and fit
nothing anew, so that they are a little narrow. `python tests/studies/five_methods.py`
"""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
from recorded_sets import need

from rubricflow.tasks.core.stats.agreement import qwk
from rubricflow.tasks.core.stats.arrays import Floats
from rubricflow.tasks.grading.calibrate import alignment
from rubricflow.tasks.grading.calibrate.alignment import Alignment

SCALE = (0.0, 2.0, 1.0)
RESULTS = Path(__file__).resolve().parents[2] / "data" / "results"
SEALED = RESULTS / "asap_sas_methods.csv"
ARMS = ("dhs", "mts", "autoscore", "checkeval", "rulers", "no_evidence", "unlocked")
RULERS = ("rulers", "no_evidence", "unlocked")  # the whole, and its ablations
DRAWS, SPLITS, FOLDS = 2_000, 20, 10


def mapped(
    matrix: Floats, human: Floats, changed: Callable[[Alignment], Alignment] = lambda same: same
) -> list[Floats]:
    """Scores of answers by mappings that were fitted to others, for each draw of the tenths. changed: of a mapping."""
    drawn = []
    for seed in range(SPLITS):
        scores = np.empty(len(human))
        for part in np.array_split(np.random.default_rng(seed).permutation(len(human)), FOLDS):
            known = np.setdiff1d(np.arange(len(human)), part)
            fitted = changed(alignment.fit(matrix[known], human[known], *SCALE[:2]))
            scores[part] = alignment.apply(fitted, matrix[part], SCALE).score
        drawn.append(scores)
    return drawn


def agreement(human: Floats, scores: Floats, question: np.ndarray) -> float:
    """QWK, the mean over questions."""
    places = [question == one for one in np.unique(question)]
    return float(np.mean([qwk(human[at], scores[at], *SCALE).value or 0.0 for at in places]))


def scores_of(table: pd.DataFrame) -> tuple[pd.DataFrame, dict[str, dict[str, list[Floats]]]]:
    """The answers with people's scores, and way → method → its scores of them, several where drawn."""
    answers = pd.read_parquet(need("asap_sas", "answers.parquet")).set_index("answer_id")
    answers.index = answers.index.astype(str)
    wide = table.pivot(index="response_id", columns="arm")
    people = answers.loc[wide.index, ["question_id", "score_rater1", "score_rater2"]]
    human = people["score_rater1"].to_numpy(float)
    ways: dict[str, dict[str, list[Floats]]] = {"raw": {}, "paper": {}, "alike": {}, "ours, half": {}}
    length = wide["length", "dhs"].to_numpy(float)
    ways["alike"]["length alone"] = mapped(length[:, None], human)
    for arm in (name for name in ARMS if name in set(table["arm"])):
        raw, tie = (wide[name, arm].fillna(0).to_numpy(float) for name in ("score", "tie"))
        full = np.column_stack([raw, length, tie])
        ways["raw"][arm] = [alignment.snap(raw, SCALE)]
        ways["paper"][arm] = mapped(full, human) if arm in RULERS else ways["raw"][arm]
        ways["alike"][arm] = mapped(full, human)
        ways["ours, half"][arm] = [wide["calibrated", arm].to_numpy(float)]
        if arm == "rulers":
            ways["alike"]["rulers, ridge alone"] = mapped(full, human, alignment.without_map)
            ways["alike"]["rulers without length"] = mapped(raw[:, None], human)
    ways["raw"]["people"] = [people["score_rater2"].to_numpy(float)]
    return people, ways


def measured() -> pd.DataFrame:
    """A row for each way and method: QWK and what it is above `dhs` by the same way, each with its interval, and n."""
    people, ways = scores_of(pd.read_csv(SEALED, dtype={"response_id": str}))
    question, human = people["question_id"].to_numpy(), people["score_rater1"].to_numpy(float)
    rng, rows = np.random.default_rng(0), []
    places = [np.flatnonzero(question == q) for q in np.unique(question)]
    drawn = [np.concatenate([rng.choice(at, len(at)) for at in places]) for _ in range(DRAWS)]
    raw: dict[str, Floats] = {}
    for way, methods in ways.items():
        known = np.flatnonzero(np.all([np.isfinite(scores[0]) for scores in methods.values()], axis=0))
        redrawn = [at[np.isin(at, known)] for at in drawn]
        found = {
            arm: np.array(
                [np.mean([agreement(human[at], one[at], question[at]) for one in scores[:: 1 if at is known else 7]])
                 for at in (known, *redrawn)]
            )
            for arm, scores in methods.items()
        }  # fmt: skip
        raw = raw or found
        for arm, values in found.items():
            less = values - found["dhs"]
            rows.append((way, arm, len(known), values[0], *interval(values[1:]), less[0], *interval(less[1:])))
            if way == "alike" and arm in raw:
                gained = values - raw[arm]
                rows.append(("alike, less raw", arm, len(known), gained[0], *interval(gained[1:]), *[math.nan] * 3))
        if way in ("raw", "alike"):
            for arm in RULERS[1:]:
                gained = found["rulers"] - found[arm]
                rows.append((way, f"rulers less {arm}", len(known), gained[0], *interval(gained[1:]), *[math.nan] * 3))
    columns = ["way", "method", "n", "QWK", "low", "high", "- dhs", "low ", "high "]
    return pd.DataFrame(rows, columns=columns)


def inductions() -> pd.DataFrame:
    """Rulers' Table 9: QWK over 60 of the answers by each of five checklists that were induced of the same guides, raw
    and by phase III, and of `dhs` on these 60; intervals redraw answers within questions. The rows `mean` and `sd` are
    over the five, with the intervals of these figures."""
    table = pd.read_csv(RESULTS / "asap_sas_inductions.csv", dtype={"response_id": str})
    plain = pd.read_csv(SEALED, dtype={"response_id": str}).query("arm == 'dhs'").rename(columns={"arm": "induction"})
    both = pd.concat([table, plain]).astype({"induction": str})
    wide = both.pivot(index="response_id", columns="induction", values=["score", "tie"]).dropna()
    length = plain.set_index("response_id").loc[wide.index, "length"].to_numpy(float)
    people = pd.read_parquet(need("asap_sas", "answers.parquet")).astype({"answer_id": str}).set_index("answer_id")
    human = people.loc[wide.index, "score_rater1"].to_numpy(float)
    question = people.loc[wide.index, "question_id"].to_numpy()
    rng = np.random.default_rng(0)
    places = [np.flatnonzero(question == q) for q in np.unique(question)]
    drawn = [np.concatenate([rng.choice(at, len(at)) for at in places]) for _ in range(DRAWS)]
    rows = []
    for way in ("raw", "alike"):
        found = {}
        for name in wide["score"]:
            raw, tie = (wide[column, name].to_numpy(float) for column in ("score", "tie"))
            full = np.column_stack([raw, length, tie])
            scores = [alignment.snap(raw, SCALE)] if way == "raw" else mapped(full, human)
            found[name] = np.array(
                [np.mean([agreement(human[at], one[at], question[at]) for one in scores[:: 1 if step == 0 else 7]])
                 for step, at in enumerate((np.arange(len(human)), *drawn))]
            )  # fmt: skip
        five = np.array([values for name, values in found.items() if name != "dhs"])
        found |= {"mean": five.mean(axis=0), "sd": five.std(axis=0, ddof=1)}
        found["mean less dhs"] = found["mean"] - found["dhs"]
        rows += [(way, name, len(human), values[0], *interval(values[1:])) for name, values in found.items()]
    return pd.DataFrame(rows, columns=["way", "induction", "n", "QWK", "low", "high"])


def interval(values: Floats) -> tuple[float, float]:
    low, high = np.quantile(values, [0.025, 0.975])
    return float(low), float(high)


if __name__ == "__main__":
    print(measured().round(3).to_string(index=False))
    print(inductions().round(3).to_string(index=False))

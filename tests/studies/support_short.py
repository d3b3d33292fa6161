"""Does a second look find false credit in short answers? `tests/studies/support_short.py [DATA]`

`data/results/support_marks.csv` names credits that judges gave to answers of the demo and of ASAP-SAS, with the places
of the passages that they quote. Two sessions of a large language model read each by itself, in other orders and among
decoys, whether the passages show what was looked for, a third where they differ; another one gave percents, ten
credits in a call, as `judge.support_by` asks. Prints how similarity, what is fitted on the other marks, and the
percents tell right from wrong, and what limits of the percent find and lose. DATA holds `asap_sas/answers.parquet`;
without it the demo's credits alone. Needs `embedded`. Intervals resample answers (2,000 draws).
"""

import sys
from pathlib import Path

import numpy as np
import pandas as pd

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from support import auc, bundle_of, interval

from rubricflow.tasks.core.contracts.protocols import SupportRule
from rubricflow.tasks.core.llm.encoder import minilm
from rubricflow.tasks.core.text.units import units
from rubricflow.tasks.grading.judge import support
from rubricflow.tasks.grading.judge.rows import Case

HOME = Path(__file__).resolve().parents[2]
LIMITS = (20, 25, 30, 35, 40, 50)


def credits_of(data):
    """The marked credits whose answers are at hand, each with its look."""
    answers = pd.concat([pd.read_csv(HOME / "data/demo" / name) for name in ("responses.csv", "responses_b.csv")])
    texts = dict(zip(answers["response_id"], answers["text"], strict=True))
    if data:
        others = pd.read_parquet(Path(data) / "asap_sas" / "answers.parquet")
        texts |= dict(zip(others["answer_id"].astype(str), others["student_answer"], strict=True))
    marked = pd.read_csv(HOME / "data/results/support_marks.csv", dtype={"response_id": str, "item_id": str})
    marked = marked[marked["response_id"].isin(texts)].reset_index(drop=True)
    marked["right"] = marked["third"].fillna(marked["first"]) == "yes"
    every = []
    for (_, _, response), some in marked.groupby(["set", "item_id", "response_id"], sort=False):
        item = marked[(marked["set"] == some["set"].iloc[0]) & (marked["item_id"] == some["item_id"].iloc[0])]
        asked = list(dict.fromkeys(item["looked_for"]))
        known = pd.DataFrame({"insight_id": range(len(asked)), "insight": asked})
        text = texts[response]
        rows = []
        for one in some.itertuples():
            places = [tuple(map(int, span.split("-"))) for span in one.passages.split()]
            quotes = [
                {"unit_id": None, "quote": text[a:b], "start": a, "end": b, "status": "verified"} for a, b in places
            ]
            rows.append(
                {
                    "response_id": response,
                    "criterion_id": f"i{asked.index(one.looked_for)}",
                    "rater_id": one.set,
                    "sample": one.Index,
                    "decision": one.level,
                    "verified": True,
                    "evidence": quotes,
                    "level_probabilities": None,
                }
            )
        case = Case(response, "", text, tuple(units(text)), "", None, bundle_of(list(known.itertuples())), "b")
        every.append((case, rows))
    needed = sorted(set().union(*(support.texts(case, rows) for case, rows in every)))
    vectors = dict(zip(needed, minilm()(needed), strict=True))
    found = {look.sample: look for case, rows in every for look in support.looks(case, rows, [], vectors)}
    marked["look"] = pd.Series(found)
    return marked


def stated(name, some):
    """Prints what is found among some credits."""
    looks = [look._replace(response_id=str(n)) for n, look in enumerate(some["look"])]
    marks = {(look.response_id, look.criterion_id): right for look, right in zip(looks, some["right"], strict=True)}
    whose = {look.response_id: of for look, of in zip(looks, some["response_id"], strict=True)}
    percent, right = some["percent"].to_numpy(float), some["right"].to_numpy()
    alone = support.fitted(looks, marks, whose)
    ways = {"similarity": np.array([look.features[0] for look in looks])}
    if alone is not None:
        away = np.abs(alone - support.limit_of(looks, alone, marks, SupportRule()))
        half = np.where(away <= np.median(away), percent, np.nan)
        ways |= {"fitted": alone, "fitted, asked about half": support.fitted(looks, marks, whose, half)}
        ways["fitted, asked about all"] = support.fitted(looks, marks, whose, percent)
    ways["percent, asked about all"] = percent
    print(f"{name}: {len(some)} credits, {(~right).sum()} wrong, {some['response_id'].nunique()} answers")
    for way, value in ways.items():
        print(f"  {way}: AUC {interval(auc, some['response_id'].to_numpy(), value, right)}")
    for limit in LIMITS:
        under = percent < limit
        of = some["response_id"].to_numpy()
        found, lost = (interval(lambda low, own: low[own].mean(), of, under, own) for own in (~right, right))
        print(f"  percent below {limit}: of the wrong {found}, of the right {lost}")


def main(data=None):
    marked = credits_of(data)
    agree = marked["third"].isna()
    print(f"{len(marked)} credits; the two readings agree on {agree.sum()}")
    for name, some in marked.groupby("set"):
        stated(name, some)
    for name in ("demo", "ASAP-SAS"):
        if len(some := marked[marked["set"].str.startswith(name)]):
            stated(f"{name}, all", some)


if __name__ == "__main__":
    main(*sys.argv[1:])

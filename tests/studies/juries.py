"""Is a jury chosen by few labels better than the juror chosen by them? Recorded judges of seven public sets, in random
splits into labels and the rest, by the functions that `grade` uses: `python tests/studies/juries.py [SPLITS]`.

A juror asked several times counts by its mean. From ten labels on every score is put onto people's mean and spread, as
those labels have them, and rounded to the scale; below, it is rounded as it is. The figure is QWK over the rest; of
RewardBench 2, whose labels are prompts with four responses each, the share of prompts whose chosen response has the one
highest score.
"""

from __future__ import annotations

import re
import sys
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
import recorded_sets
from recorded_sets import need

from rubricflow.tasks.core.stats.agreement import qwk
from rubricflow.tasks.core.stats.arrays import Floats
from rubricflow.tasks.grading.jury.choose import chosen, of_labels, trials

LABELS = (0, 10, 25, 50, 100, 200)
RULES = ("mean", "standardised_mean", "median", "majority", "weighted", "best")
SHOWN = ("hindsight", "best", "mean", "standardised_mean", "median", "majority", "weighted", "choose")


class JurySet(NamedTuple):
    """shares: (n, J) of the scale, NaN where a juror gave none; human: (n,); top: steps of the scale; families: of the
    jurors; prompts: whether four neighbours are the responses to one prompt, the first of them the chosen one."""

    name: str
    shares: Floats
    human: Floats
    cluster: Sequence[str]
    top: int
    families: Sequence[str]
    prompts: bool = False


def family(name: str) -> str:
    word = re.search(r"[a-z]+", name.lower().replace("prompted_", "").replace("9fs_", ""))
    return word[0] if word else name


def made(
    name: str, table: pd.DataFrame, human: pd.Series, low: float, high: float, top: int, cluster: pd.Series
) -> JurySet:
    table = table.loc[:, table.notna().mean() > 0.7]
    kept = human.notna() & table.notna().any(axis=1)
    shares = ((table - low) / (high - low)).clip(0, 1)[kept].to_numpy(float)
    people = ((human - low) / (high - low))[kept].to_numpy(float)
    return JurySet(name, shares, people, cluster[kept].astype(str).tolist(), top, [family(c) for c in table.columns])


def sets() -> Iterator[JurySet]:
    verdicts = pd.read_parquet(need("summhay", "judge_verdicts.parquet"))
    keys = ["summary_id", "insight_id"]
    table = verdicts.pivot(index=keys, columns="judge", values="level").astype(float)
    human = pd.read_parquet(need("summhay", "criteria_human.parquet")).set_index(keys)["human_level"].astype(float)
    yield made("SummHay", table, human.loc[table.index], 0, 2, 2, table.index.to_frame()["summary_id"])
    essays = pd.read_parquet(need("enem_essays", "essays_human_competences.parquet")).set_index("essay_id")
    scores = pd.read_parquet(need("enem_essays", "judge_competence_scores.parquet"))
    scores["juror"] = scores["model"] + " " + scores["strategy"]
    for n in range(1, 6):
        table = scores.pivot(index="essay_id", columns="juror", values=f"llm_c{n}").astype(float)
        human = essays[f"human_c{n}"].astype(float).loc[table.index]
        yield made(f"ENEM {n}", table, human, 0, 200, 5, table.index.to_series())
    of_scale = {"summeval": (1.0, 5.0, 4), "topical": (1.0, 3.0, 6)}
    for name, read in (("summeval", recorded_sets.summeval), ("topical", recorded_sets.topical_chat)):
        for item, part in read().frame.groupby("item"):
            low, high, top = (0.0, 1.0, 3) if item == "groundedness" else of_scale[name]
            table = part.pivot_table(index="response_id", columns="judge", values="ours")
            people = part.groupby("response_id")[["mean", "cluster"]].first().loc[table.index]
            yield made(f"{name} {item}", table, people["mean"], low, high, top, people["cluster"])
    frame = recorded_sets.asap_aes().frame
    for item, (low, high) in recorded_sets.AES_SETS.items():
        part = frame[frame["item"].astype(str) == str(item)]
        table = part.pivot_table(index="response_id", columns="judge", values="ours")
        human = part.groupby("response_id")[["human", "human2"]].first().mean(axis=1).loc[table.index]
        yield made(f"ASAP-AES {item}", table, human, low, high, round(2 * (high - low)), table.index.to_series())
    frame = recorded_sets.sas_sampled().frame
    for item, part in frame.groupby("item"):
        top = recorded_sets._sas_top(str(item))[1]
        part = part.assign(juror="gpt sample " + part["sample"].astype(str))
        table = part.pivot_table(index="response_id", columns="juror", values="ours")
        human = part.groupby("response_id")["human"].first().loc[table.index]
        yield made(f"ASAP-SAS {item}", table, human, 0, top, int(top), table.index.to_series())
    yield rewardbench()


def rewardbench() -> JurySet:
    arms = pd.read_parquet(need("rewardbench2_scores", "scores.parquet"))
    arms = arms[arms["collection"].isin(["criteria_both_k8", "criteria_claude_both_k8"])]
    arms = arms.assign(juror=np.where(arms["collection"].str.contains("claude"), "claude ", "gpt ") + arms["judge"])
    keys = ["subset", "prompt_id", "response_index"]
    table = arms.groupby([*keys, "juror"])["score"].mean().unstack("juror").dropna()
    whole = table.groupby(keys[:2])["gpt full"].transform("size") == 4
    table = table[whole].sort_index()
    index = table.index.to_frame()
    prompt = index["subset"] + ":" + index["prompt_id"].astype(str)
    made_of = made("RewardBench 2", table, 1 + 9.0 * (index["response_index"] == 0), 1, 10, 36, prompt)
    return made_of._replace(prompts=True)


def worth(one: JurySet, scores: Floats, told: np.ndarray, rest: np.ndarray) -> float:
    """The figure of scores over the rest; told: rows with labels."""
    if one.prompts:
        of_prompt = scores[rest].reshape(-1, 4)
        return float((of_prompt[:, 0] > of_prompt[:, 1:].max(axis=1) + 1e-12).mean())
    told, rest = (rows[np.isfinite(scores[rows])] for rows in (told, rest))  # what is unscored is left out
    if len(told) >= 10 and scores[told].std() > 0:
        scale = one.human[told].std() / scores[told].std()
        scores = one.human[told].mean() + scale * (scores - scores[told].mean())
    levels = np.clip(np.floor(scores * one.top + 0.5), 0, one.top)
    found = qwk(np.floor(one.human * one.top + 0.5)[rest], levels[rest], 0, one.top).value
    return np.nan if found is None else found


def split(one: JurySet, labels: int, luck: np.random.Generator) -> dict[str, float]:
    """Figures by rule, and of every juror alone, in one random split."""
    size = 4 if one.prompts else 1
    order = luck.permutation(len(one.human) // size)
    told, rest = (
        np.sort((rows[:, None] * size + np.arange(size)).ravel()) for rows in (order[:labels], order[labels:])
    )
    human = np.full(len(one.human), np.nan)
    human[told] = one.human[told]
    items = one.cluster if one.prompts else ["item"] * len(human)
    marked = of_labels(one.shares, human, items, one.cluster)
    sizes = Counter(one.families)
    voices = np.array([1 / sizes[name] / len(sizes) for name in one.families])
    common = np.nanmean(one.shares, axis=0), np.nanstd(one.shares, axis=0)
    tried = trials(marked, voices, common)
    alone = [worth(one, np.where(np.isnan(column), np.nanmean(column), column), told, rest) for column in one.shares.T]
    found = {f"juror {n}": figure for n, figure in enumerate(alone)}
    for name in (*RULES, "choose"):
        rule, _ = chosen("mean" if name in ("weighted", "best") and not tried else name, tried, voices, common)
        found[name] = worth(one, rule.scores(one.shares), told, rest)
        if name == "choose":
            found["taken alone"] = float(rule.name == "best")
    if not tried:
        found["best"] = float(np.mean(alone))  # nobody knows which: a juror by chance
    return found


def main() -> None:
    splits = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    rows = []
    for one in sets():
        for labels in LABELS:
            luck = np.random.default_rng(zlib.crc32(f"{one.name} {labels}".encode()))
            table = pd.DataFrame([split(one, labels, luck) for _ in range(splits)])
            table["hindsight"] = table[table.filter(like="juror ").mean().idxmax()]
            gain = table["choose"] - table["hindsight"]
            low, high = np.percentile(table["choose"], [2.5, 97.5])
            row = {"set": one.name, "jurors": len(one.families), "n": len(one.human), "labels": labels}
            row |= table[[*SHOWN, "taken alone"]].mean().to_dict()
            rows.append(row | {"low": low, "high": high, "gain": gain.mean(), "over best": row["choose"] - row["best"]})
    found = pd.DataFrame(rows)
    with pd.option_context("display.width", 250, "display.max_rows", None, "display.float_format", "{:.3f}".format):
        print(found.to_string(index=False))
        figures = {name: [name] for name in SHOWN}
        print(found.groupby("labels")[list(figures)].mean().to_string())
        for column in ("gain", "over best"):
            print(column, found.groupby("labels")[column].agg(["mean", "min"]).to_string(), sep="\n")


if __name__ == "__main__":
    main()

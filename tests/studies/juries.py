"""Is a jury chosen by few labels, or by none, better than the juror chosen by them? `python tests/studies/juries.py
[recorded|none|simulate] [SPLITS]`, by the functions that `grade` uses.

recorded: judges of seven public sets, in random splits into labels and the rest. A juror asked several times counts by
its mean. From ten labels on every score is put onto people's mean and spread, as those labels have them, and rounded to
the scale; below, it is rounded as it is. The figure is QWK over the rest; of RewardBench 2, whose labels are prompts
with four responses each, the share of prompts whose chosen response has the one highest score. `before` is the
standard as it was: equal voices where labels are too few, a ridge regression of choices, too, and scores as a mean has
them.
none: the same sets without any label: what weights by agreement and the spread each do, to exact agreement, too.
simulate: juries whose truth is known: correlation with it, without a label and by 25, beside that of equal voices.
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
from rubricflow.tasks.grading.jury.choose import Unlabelled, chosen, of_labels, ridge, trials, unlabelled
from rubricflow.tasks.grading.jury.combine import Rule, plain

LABELS = (0, 10, 25, 50, 100, 200)
FIXED = ("mean", "standardised_mean", "median", "majority")
SHOWN = ("hindsight", "best", *FIXED, "before", "weighted", "choose")
HELD_OUT = ("SummHay", "summeval", "topical", "RewardBench")
"""Sets by which the form of the weights by agreement was not chosen."""


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


def known_of(one: JurySet) -> Unlabelled:
    sizes = Counter(one.families)
    voices = np.array([1 / sizes[name] / len(sizes) for name in one.families])
    return unlabelled(one.shares, one.cluster if one.prompts else ["item"] * len(one.human), one.families, voices)


def split(
    one: JurySet, known: Unlabelled, fixed: dict[str, Floats], labels: int, luck: np.random.Generator
) -> dict[str, float]:
    """Figures by rule, and of every juror alone, in one random split. fixed: rule → scores, of rules that learn
    nothing."""
    size = 4 if one.prompts else 1
    order = luck.permutation(len(one.human) // size)
    told, rest = (
        np.sort((rows[:, None] * size + np.arange(size)).ravel()) for rows in (order[:labels], order[labels:])
    )
    human = np.full(len(one.human), np.nan)
    human[told] = one.human[told]
    items = one.cluster if one.prompts else ["item"] * len(human)
    marked = of_labels(one.shares, human, items, one.cluster)
    tried = trials(marked, known)
    alone = [worth(one, np.where(np.isnan(column), np.nanmean(column), column), told, rest) for column in one.shares.T]
    found = {f"juror {n}": figure for n, figure in enumerate(alone)}
    rules = {name: chosen(name, tried, known)[0] for name in ("weighted", "choose", "best")}  # type: ignore[arg-type]
    rules["before"] = plain("mean", ridge(marked, known.voices) if tried else known.voices)
    scores = fixed | {name: rule.scores(one.shares) for name, rule in rules.items()}
    found |= {name: worth(one, own, told, rest) for name, own in scores.items()}
    if not tried:
        found["best"] = float(np.mean(alone))  # nobody knows which: a juror by chance
    return found | {"taken alone": float(rules["choose"].name == "best")}


def recorded(splits: int) -> None:
    """Rules by labels."""
    rows = []
    for one in sets():
        known = known_of(one)
        fixed = {name: chosen(name, {}, known)[0].scores(one.shares) for name in FIXED}  # type: ignore[arg-type]
        for labels in LABELS:
            luck = np.random.default_rng(zlib.crc32(f"{one.name} {labels}".encode()))
            table = pd.DataFrame([split(one, known, fixed, labels, luck) for _ in range(splits)])
            table["hindsight"] = table[table.filter(like="juror ").mean().idxmax()]
            gain = table["choose"] - table["hindsight"]
            low, high = np.percentile(table["choose"], [2.5, 97.5])
            row = {"set": one.name, "jurors": len(one.families), "n": len(one.human), "labels": labels}
            row |= table[[*SHOWN, "taken alone"]].mean().to_dict()
            rows.append(row | {"low": low, "high": high, "gain": gain.mean(), "over best": row["choose"] - row["best"]})
    found = pd.DataFrame(rows)
    print(found.to_string(index=False))
    print(found.groupby("labels")[list(SHOWN)].mean().to_string())
    by_group = found.assign(group=found["set"].str.split().str[0])
    by_group = by_group.assign(**{"before less": found["before"] - found["hindsight"]})
    print(by_group.pivot_table(index="labels", columns="group", values=["gain", "before less"]).T.to_string())
    for column in ("gain", "over best"):
        print(column, found.groupby("labels")[column].agg(["mean", "min"]).to_string(), sep="\n")


def none() -> None:
    """Without labels: equal voices or agreement, with and without the spread of a juror."""
    rows = []
    for one in sets():
        known, everything = known_of(one), np.arange(len(one.human))
        alone = [np.where(np.isnan(column), np.nanmean(column), column) for column in one.shares.T]
        scores = {"equal": plain("mean", known.voices), "agreed": plain("mean", known.agreed)}
        scores |= {"equal, spread": known.stretched(known.voices), "agreed, spread": known.stretched(known.agreed)}
        made: dict[str, Floats] = {name: rule.scores(one.shares) for name, rule in scores.items()}
        figures = [worth(one, own, everything[:0], everything) for own in alone]
        row = {"set": one.name.split()[0], "best juror": max(figures), "juror by chance": float(np.mean(figures))}
        row |= {name: worth(one, own, everything[:0], everything) - max(figures) for name, own in made.items()}
        if not one.prompts:
            human = np.floor(one.human * one.top + 0.5)
            of = {"juror by chance": alone} | {name: [own] for name, own in made.items()}
            for name, several in of.items():
                off = [np.abs(np.floor(own * one.top + 0.5) - human)[np.isfinite(own)] for own in several]
                row[f"exact: {name}"] = float(np.mean([(own == 0).mean() for own in off]))
                row[f"off by: {name}"] = float(np.mean([own.mean() / one.top for own in off]))
        rows.append(row)
    found = pd.DataFrame(rows)
    by_set = found.groupby("set").mean()
    by_set.loc["all parts"] = found.drop(columns="set").mean()
    by_set.loc["held out"] = by_set.loc[by_set.index.str.startswith(HELD_OUT)].mean()
    print(by_set.T.to_string())


def simulated(kind: str, n: int, luck: np.random.Generator) -> tuple[Floats, Floats, list[str]]:
    """Shares of a simulated jury, (n, J), people's scores, and the jurors' families: whose errors hang together."""
    families = [["a", "a", "b", "b", "c", "c"], ["a", "b", "c"], ["a", "a", "a", "b", "b"], ["a"] * 4, [*"abcde"]]
    names = list(families[int(luck.integers(len(families)))])
    size, code = len(names), np.unique(names, return_inverse=True)[1]
    noise = np.ones(size) if kind == "alike" else np.exp(luck.uniform(np.log(0.4), np.log(2.0), size))
    of_family, of_all = luck.uniform(0, 0.6), luck.uniform(0, 0.3)
    quality, shared = luck.normal(size=(n, 1)), luck.normal(size=(n, code.max() + 1))[:, code]
    error = np.sqrt(of_family) * shared + np.sqrt(of_all) * luck.normal(size=(n, 1))
    said = quality + noise * (error + np.sqrt(1 - of_family - of_all) * luck.normal(size=(n, size)))
    one = int(luck.integers(size))
    if kind == "a liar":
        said[:, one] = -quality[:, 0] + 0.7 * luck.normal(size=n)
    if kind == "one by chance":
        said[:, one] = 1.3 * luck.normal(size=n)
    if "copies" in kind:
        said = np.hstack([said, said[:, [one]] + 0.15 * luck.normal(size=(n, 2))])
        names += ["x", "y"] if kind == "copies under other names" else [names[one]] * 2
    scale = np.exp(luck.normal(0, 0.3, said.shape[1]))
    human = quality[:, 0] + 0.3 * luck.normal(size=n)
    return np.clip(np.round(5 + 1.5 * scale * said) / 10, 0, 1), np.clip(np.round(5 + 1.5 * human) / 10, 0, 1), names


def simulate(studies: int) -> None:
    """Correlation with people over new answers."""
    rows = []
    for kind in ("alike", "of all strengths", "a liar", "one by chance", "copies", "copies under other names"):
        for n in (20, 100, 500):
            for at in range(studies):
                luck = np.random.default_rng([zlib.crc32(kind.encode()), n, at])
                shares, human, names = simulated(kind, n + 1000, luck)
                sizes = Counter(names)
                voices = np.array([1 / sizes[name] / len(sizes) for name in names])
                known = unlabelled(shares[:n], ["item"] * n, names, voices)
                told = np.where(np.arange(n) < 25, human[:n], np.nan)
                marked = of_labels(shares[:n], told, ["item"] * n, [str(row) for row in range(n)])
                own: dict[str, Rule] = {"equal": plain("mean", voices), "agreed": plain("mean", known.agreed)}
                own["labels, equal"] = plain("mean", ridge(marked, voices))
                own["labels, agreed"] = plain("mean", ridge(marked, known.agreed))
                row = {name: np.corrcoef(rule.scores(shares[n:]), human[n:])[0, 1] for name, rule in own.items()}
                row["best juror"] = max(np.corrcoef(column, human[n:])[0, 1] for column in shares[n:].T)
                rows.append({"jury": kind, "answers": n} | row)
    found = pd.DataFrame(rows)
    print(found.groupby(["jury", "answers"]).mean().to_string())
    print(found.groupby("answers").mean(numeric_only=True).to_string())


def main() -> None:
    part = sys.argv[1] if len(sys.argv) > 1 else "recorded"
    times = int(sys.argv[2]) if len(sys.argv) > 2 else 100
    with pd.option_context("display.width", 250, "display.max_rows", None, "display.float_format", "{:.3f}".format):
        {"recorded": lambda: recorded(times), "none": none, "simulate": lambda: simulate(times)}[part]()


if __name__ == "__main__":
    main()

"""Do corrected means hold the truth, and is drift found and not imagined?

    python tests/studies/trends.py coverage      # intervals of simulated studies whose truth is known
    python tests/studies/trends.py peers         # on cje_arena, beside truescore and CJE where they are installed
    python tests/studies/trends.py alarms        # a year of daily looks at streams that do not change
    python tests/studies/trends.py found         # drift in cje_arena and RewardBench 2, by labelled probes

Real data sets are looked for in `../shared`.
"""

from __future__ import annotations

import sys
from math import log
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.stats import beta, norm

from rubricflow.tasks.core.stats.drift import Values, evidence
from rubricflow.tasks.grading.trends.means import Cases, corrected_mean

DATA = Path(__file__).resolve().parents[3] / "shared" / "data"
KINDS = ("even", "skewed", "passes .5", "passes .9", "passes .97")


def share(hits: int, n: int) -> str:
    """A share with its exact 95% interval."""
    low = beta.ppf(0.025, hits, n - hits + 1) if hits else 0.0
    high = beta.ppf(0.975, hits + 1, n - hits) if hits < n else 1.0
    return f"{hits / n:.3f} [{low:.3f}, {high:.3f}]"


def study(rng: np.random.Generator, kind: str, labels: int, strength: float, size: int) -> tuple[Cases, float]:
    """1,000 cases in clusters of `size`, of which whole ones are labelled; the judge's latent score correlates with
    people's by `strength`."""
    groups, cases = 1000 // size, 1000
    clusters = np.repeat(np.arange(groups), size)
    own = 0.3 if size > 1 else 0.0

    def latent() -> np.ndarray:
        return np.sqrt(own) * rng.normal(size=groups)[clusters] + np.sqrt(1 - own) * rng.normal(size=cases)

    truth = latent()
    people, judge = norm.cdf(truth), norm.cdf(strength * truth + np.sqrt(1 - strength**2) * latent())
    if kind == "even":
        people, judge, mean = people, 0.8 * judge + 0.2, 0.5
    elif kind == "skewed":
        people, judge, mean = 1 - people**4, 1 - judge**3, 0.8
    else:
        mean = float(kind.split()[1])
        people, judge = (people < mean).astype(float), (judge < 0.9 * mean).astype(float)
    drawn = np.isin(clusters, rng.choice(groups, labels // size, replace=False))
    return Cases(judge, np.where(drawn, people, np.nan), clusters, np.ones(cases)), mean


def coverage(runs: int = 400) -> None:
    """Of corrected means, and their width beside that by labels alone."""
    print("scores | labels in clusters of | labels | judge | corrected holds | labels alone holds | width of labels'")
    for kind in KINDS:
        for size, labels in ((1, 20), (1, 50), (1, 200), (1, 500), (5, 100), (5, 500)):
            for strength in (0.0, 0.5, 0.9):
                rng = np.random.default_rng(0)
                held = np.zeros(2, dtype=int)
                width = np.zeros(2)
                for _ in range(runs):
                    arm, mean = study(rng, kind, labels, strength, size)
                    found = corrected_mean([arm])
                    ends = [(of.low, of.high) for of in (found.corrected, found.labels)]
                    held += [low <= mean <= high for low, high in ends]
                    width += [high - low for low, high in ends]
                cells = (kind, size, labels, strength, share(held[0], runs), share(held[1], runs))
                print(*cells, f"{width[0] / width[1]:.2f}", sep=" | ", flush=True)


def peers(runs: int = 200) -> None:
    """The base policy of cje_arena, of whose labels some are shown: whose interval holds the mean of all labels, and
    how wide is it? Only labelled answers are used, so that this mean is known."""
    draws = pd.read_parquet(DATA / "cje_arena" / "draws.parquet")
    base = draws[(draws["policy"] == "base") & draws["oracle_label"].notna()]
    judge, people = base["judge_score"].to_numpy(float), base["oracle_label"].to_numpy(float)
    names = {"corrected": _ours, "labels alone": _labels, "truescore": _truescore, "CJE": _cje}
    print("labels | who | holds the mean of all | mean width | n")
    for labels in (20, 50, 100):
        held, width = dict.fromkeys(names, 0), dict.fromkeys(names, 0.0)
        done = dict.fromkeys(names, 0)
        for seed in range(runs):
            rng = np.random.default_rng(seed)
            # A world like these answers: as many again, drawn from them, so that cases are a sample of it.
            drawn = rng.integers(0, len(judge), len(judge))
            shown = np.where(np.arange(len(judge)) < labels, people[drawn], np.nan)
            for name, interval in names.items():
                if name == "CJE" and (seed >= 20 or labels != 50):
                    continue
                try:
                    low, high = interval(judge[drawn], shown)
                except ImportError:
                    continue
                done[name] += 1
                held[name] += low <= people.mean() <= high
                width[name] += high - low
        for name, n in done.items():
            if n:
                print(labels, name, share(held[name], n), f"{width[name] / n:.3f}", n, sep=" | ", flush=True)


def _ours(judge: np.ndarray, labels: np.ndarray) -> tuple[float, float]:
    found = corrected_mean([Cases(judge, labels, np.arange(len(judge)), np.ones(len(judge)))]).corrected
    return found.low, found.high


def _labels(judge: np.ndarray, labels: np.ndarray) -> tuple[float, float]:
    found = corrected_mean([Cases(judge, labels, np.arange(len(judge)), np.ones(len(judge)))]).labels
    return found.low, found.high


def _truescore(judge: np.ndarray, labels: np.ndarray) -> tuple[float, float]:
    from truescore import ppi_estimate

    has = ~np.isnan(labels)
    found = ppi_estimate(judge, labels[has], np.flatnonzero(has))
    return found.low, found.high


def _cje(judge: np.ndarray, labels: np.ndarray) -> tuple[float, float]:
    from cje import calibrated_mean_ci

    has = ~np.isnan(labels)
    found = calibrated_mean_ci(judge, labels, has)
    return found.ci


def streams(kind: str, rng: np.random.Generator, days: int = 365, day: int = 40) -> tuple[list[Values], list[Values]]:
    """Old logs of 1,000 cases, and a year of daily ones that are alike."""

    def one(values: np.ndarray, strata: list[int] | None = None) -> Values:
        return Values(np.asarray(values, float), strata or [0] * len(values))

    if kind == "independent":
        return [one(rng.normal(size=1000))], [one(rng.normal(size=day)) for _ in range(days)]
    if kind == "passes .9":
        return [one(rng.random(1000) < 0.9)], [one(rng.random(day) < 0.9) for _ in range(days)]
    if kind == "autocorrelated .5":
        values = rng.normal(size=1000 + days * day)
        for i in range(1, len(values)):
            values[i] += 0.5 * values[i - 1]
        return [one(values[:1000])], [one(values[i : i + day]) for i in range(1000, len(values), day)]
    if kind == "days that differ":
        logs = [one(rng.normal(size=day) + 0.3 * rng.normal()) for _ in range(days + 60)]
        return logs[:60], logs[60:]
    if kind == "classes whose mix changes":
        level = rng.normal(size=6)

        def mixed(n: int) -> Values:
            kinds = rng.choice(6, n, p=rng.dirichlet(np.ones(6)))
            return one(level[kinds] + 0.5 * rng.normal(size=n), kinds.tolist())

        return [mixed(1000)], [mixed(day) for _ in range(days)]
    level = rng.normal(size=day)
    logs = [one(np.round(level + 0.3 * rng.normal(size=day)), list(range(day))) for _ in range(days + 1)]
    return logs[:1], logs[1:]


STREAMS = (
    "independent",
    "passes .9",
    "autocorrelated .5",
    "days that differ",
    "classes whose mix changes",
    "the same cases daily",
)


SHIFTED = ("independent", "autocorrelated .5", "days that differ")


def alarms(years: int = 200, kinds: tuple[str, ...] = STREAMS) -> None:
    """One channel, 365 looks; and a shift of a standard deviation's part from day 100 on."""
    print("stream | ever above 20 (at most .05) | above 100 (.01) | above 2,000, ten channels' bar (.0005) | years")
    for kind in kinds:
        peaks = [
            evidence(*streams(kind, np.random.default_rng(seed)), bar=log(2000), seed=seed).log_peak
            for seed in range(years)
        ]
        above = [share(sum(peak >= log(bar) for peak in peaks), years) for bar in (20, 100, 2000)]
        print(kind, *above, years, sep=" | ", flush=True)
    print("stream | shift, standard deviations | found at ten channels' bar | cases until then, median | runs")
    for kind in (kind for kind in kinds if kind in SHIFTED):
        for shift in (0.1, 0.25, 0.5, 1.0):
            after = []
            for seed in range(40):
                old, new = streams(kind, np.random.default_rng(seed), days=200)
                spread = float(np.concatenate([part.values for part in old]).std())
                moved = [Values(of.values + shift * spread * (at >= 100), of.strata) for at, of in enumerate(new)]
                found = evidence(old, moved, bar=log(2000))
                after += [found.after - 4000] if found.after and found.after > 4000 else []
            median = f"{np.median(after):.0f}" if after else "–"
            print(kind, shift, share(len(after), 40), median, 40, sep=" | ", flush=True)


def found() -> None:
    """Labelled probes until drift is found; and how often it is where nothing changed."""
    draws = pd.read_parquet(DATA / "cje_arena" / "draws.parquet")
    draws["answer_id"] = draws["prompt_id"] + ":" + draws["policy"]
    base = draws[(draws["policy"] == "base") & draws["oracle_label"].notna()]
    print("old → new | channel | found after labelled probes, median | found within 50 | draws")
    policies = ["unhelpful", "clone", "parallel_universe_prompt"]
    for policy in policies:
        probes = draws[(draws["policy"] == policy) & (draws["slice"] == "probe")]
        _tell(
            f"base → {policy}",
            [(_rows(base), _rows(probes.sample(frac=1, random_state=seed))) for seed in range(20)],
            draws,
        )
    halves = [base.sample(frac=1, random_state=seed) for seed in range(20)]
    _tell("base → base", [(_rows(half[:272]), _rows(half[272:])) for half in halves], draws)
    scores = pd.read_parquet(DATA / "rewardbench2_scores" / "scores.parquet")
    for new, judge in (
        ("base_both_k8", "mini"),
        ("base_nano_k8", "nano"),
        ("base_claude_both_k8", "full"),
        ("base_full_k8_t0.7", "full"),
    ):
        for same in (False, True):
            pairs = []
            for seed in range(20):
                ids = np.random.default_rng(seed).permutation(np.sort(scores["prompt_id"].unique()))
                old = _scores(scores, "base_both_k8", "full", ids[50 * (not same) : 650])
                pairs.append((old, _scores(scores, new, judge, ids[:50])))
            _tell(f"full → {judge} ({new}), {'the same' if same else 'other'} prompts", pairs, None)


def _tell(name: str, pairs: list, labels: pd.DataFrame | None) -> None:
    from rubricflow.tasks.grading.trends.moved import drifted, observed

    after: dict[str, list[int]] = {}
    for old, new in pairs:
        people = None if labels is None else labels.dropna(subset=["oracle_label"])
        given = [frame.assign(label=frame["chosen"]) if people is None else frame for frame in (old, new)]
        known = (
            people.rename(columns={"oracle_label": "score"})[["answer_id", "score"]].assign(criterion="")
            if people is not None
            else pd.concat(given)
            .drop_duplicates("answer_id")
            .assign(score=lambda rows: rows["chosen"])[["answer_id", "criterion", "score"]]
        )
        for row in drifted([observed(old, known)], [observed(new, known)]).rows:
            after.setdefault(row.channel if row.slice == "all" else f"{row.channel} by {row.slice}", [])
            if row.is_found:
                after[row.channel if row.slice == "all" else f"{row.channel} by {row.slice}"].append(row.evidence.after)
    for channel, counts in after.items():
        if counts:
            print(
                name,
                channel,
                f"{np.median(counts):.0f}",
                share(sum(n <= 50 for n in counts), len(pairs)),
                len(pairs),
                sep=" | ",
                flush=True,
            )
    quiet = [channel for channel, counts in after.items() if not counts]
    print(name, f"nothing in {', '.join(quiet)}", "–", share(0, len(pairs)), len(pairs), sep=" | ", flush=True)


def _rows(draws: pd.DataFrame) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "answer_id": draws["answer_id"],
            "case_id": draws["answer_id"],
            "subject": None,
            "group": None,
            "criterion": "",
            "sample": 0,
            "score": draws["judge_score"].astype(float),
            "status": "scored",
            "explanation": None,
            "answer": draws["response"],
            "output_tokens": np.nan,
        }
    ).reset_index(drop=True)


def _scores(scores: pd.DataFrame, collection: str, judge: str, prompts: np.ndarray) -> pd.DataFrame:
    part = scores[(scores["collection"] == collection) & (scores["judge"] == judge) & scores["prompt_id"].isin(prompts)]
    answer = part["prompt_id"].astype(str) + ":" + part["response_index"].astype(str)
    made = pd.DataFrame(
        {
            "answer_id": answer,
            "case_id": part["prompt_id"].astype(str),
            "subject": None,
            "group": part["subset"],
            "criterion": "",
            "sample": part["sample"],
            "score": part["score"].astype(float),
            "status": np.where(part["score"].notna(), "scored", "refused"),
            "explanation": None,
            "answer": None,
            "output_tokens": np.nan,
            "chosen": 10.0 * (part["response_index"] == 0),
        }
    )
    order = {prompt: place for place, prompt in enumerate(map(str, prompts))}
    return made.sort_values("case_id", key=lambda ids: ids.map(order), kind="stable").reset_index(drop=True)


if __name__ == "__main__":
    if len(sys.argv) != 2 or sys.argv[1] not in ("coverage", "peers", "alarms", "found"):
        sys.exit(__doc__)
    {"coverage": coverage, "peers": peers, "alarms": alarms, "found": found}[sys.argv[1]]()

"""Recorded judges asked again: how often the same answer, what a mean of several buys; how right probabilities are."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import combinations

import numpy as np
import pandas as pd
from recorded_sets import Recorded, need
from sklearn.metrics import roc_auc_score

from rubricflow.tasks.core.stats.agreement import level_count, qwk, to_levels
from rubricflow.tasks.core.stats.bootstrap import cluster_codes, draw_totals, pair_sums, statistics_of_totals
from rubricflow.tasks.core.stats.probability import brier, ece, ece_by_chance, log_loss, ranked, reliability, top
from rubricflow.tasks.grading.evaluate.decisions import ece_interval

Table = Callable[[str, list[dict[str, object]]], None]
SIZES = (1, 3, 5, 10)
SUBSETS = 20
DRAWS = 500
FEWEST = 15


def samples(sets: Iterable[tuple[str, Recorded]], table: Table) -> None:
    """Self-consistency over repeated samples, and the QWK with people of one sample and of the mean of k."""
    same, worth, warns = [], [], []
    for name, one in sets:
        if name not in ("sas_sampled", "topical_chat", "physics", "prometheus"):
            continue
        for judge, item, scores, human, cluster in _grids(name, one):
            bounds = _bounds(name, one, item)
            k = scores.shape[1]
            levels = to_levels(scores, *bounds)
            pairs = list(combinations(range(k), 2))
            named = {"set": name, "judge": judge, "item": item, "n": len(scores), "samples": k}
            kappas = [qwk(scores[:, a], scores[:, b], *bounds).value for a, b in pairs]
            same.append(
                named
                | {
                    "unanimous": float((levels == levels[:, :1]).all(axis=1).mean()),
                    "pairwise exact": float(np.mean([(levels[:, a] == levels[:, b]).mean() for a, b in pairs])),
                    "pairwise QWK": float(np.mean([kappa for kappa in kappas if kappa is not None] or [np.nan])),
                    "SD within": float(scores.std(axis=1, ddof=1).mean()),
                    "SD between": float(scores.mean(axis=1).std(ddof=1)),
                }
            )
            if human is None:
                continue
            worth.append(named | _worth(scores, human, cluster, bounds))
            # Half a point, since the mean of three persons lies between the judge's levels.
            wrong = np.abs(np.floor(scores.mean(axis=1) + 0.5) - human) > 0.5
            spread = scores.std(axis=1)
            warns.append(
                named
                | {
                    "wrong": float(wrong.mean()),
                    "AUC spread → wrong": _auc(wrong, spread),
                    "wrong where unanimous": float(wrong[spread == 0].mean()) if (spread == 0).any() else None,
                    "wrong where not": float(wrong[spread > 0].mean()) if (spread > 0).any() else None,
                }
            )
    table("The same response asked again: agreement of a judge with itself", same)
    table("QWK with people of one sample and of the mean of k (se: bootstrap; gain: mean of all less one)", worth)
    table("Whether disagreement of samples foretells that their rounded mean is more than half a point off", warns)


def _grids(name: str, one: Recorded) -> Iterator[tuple[str, str, np.ndarray, np.ndarray | None, np.ndarray]]:
    """(judge, item, scores (n, k), human (n,) or None, clusters) of what was asked k times and read each time."""
    frame = one.frame
    if name == "physics":
        frame = frame[frame["sample"] > 0]
        frame = frame.assign(judge=frame["judge"], item="total")
    if name == "topical_chat":
        frame = frame.assign(human=frame["mean"])
    for (judge, item), part in frame.groupby(["judge", "item"]):
        wide = part.pivot_table("ours", "response_id", "sample", aggfunc="first").dropna()
        if len(wide) < FEWEST or wide.shape[1] < 2:
            continue
        facts = part.drop_duplicates("response_id").set_index("response_id").loc[wide.index]
        cluster = facts["cluster"] if "cluster" in facts else pd.Series(wide.index, wide.index)
        low, high, _ = _bounds(name, one, str(item))
        inside = ((wide >= low) & (wide <= high)).all(axis=1)
        human = facts["human"][inside].to_numpy(float)
        known = None if np.isnan(human).any() else human
        yield str(judge), str(item), wide[inside].to_numpy(float), known, cluster[inside].astype(str).to_numpy()


def _bounds(name: str, one: Recorded, item: str) -> tuple[float, float, float]:
    low, high, _ = one.scale(item)
    return low, high, 1 / 3 if name == "topical_chat" else 1.0


def _worth(
    scores: np.ndarray, human: np.ndarray, cluster: np.ndarray, bounds: tuple[float, float, float]
) -> dict[str, object]:
    """QWK of means of k samples, over random subsets of them, with bootstrap SE; and the gain of all over one."""
    codes, size = cluster_codes(cluster)
    rng, found, drawn = np.random.default_rng(0), {}, {}
    for k in (k for k in SIZES if k <= scores.shape[1]):
        subsets = {tuple(sorted(rng.permutation(scores.shape[1])[:k])) for _ in range(SUBSETS)}
        means = [scores[:, list(one)].mean(axis=1) for one in sorted(subsets)]
        found[f"k={k}"] = float(np.mean([qwk(human, mean, *bounds).value or 0.0 for mean in means]))
        totals = draw_totals([pair_sums(human, mean, codes, size, bounds) for mean in means], DRAWS, 0)
        drawn[k] = np.nanmean([statistics_of_totals(total)["qwk"] for total in totals], axis=0)
        found[f"se {k}"] = float(np.nanstd(drawn[k]))
    last = max(drawn)
    gain = found[f"k={last}"] - found["k=1"]
    return found | {"gain": gain, "gain se": float(np.nanstd(drawn[last] - drawn[1]))}


def _auc(event: np.ndarray, score: np.ndarray) -> float | None:
    return float(roc_auc_score(event, score)) if 0 < event.sum() < len(event) else None


def probabilities(sets: Iterable[tuple[str, Recorded]], table: Table) -> None:
    """Calibration error of real probabilities: those of gpt-3.5's answer token, and frequencies of ten samples."""
    rows, bins = [], []
    for name, p, y, cluster in [*_tokens(), *_frequencies(sets)]:
        of = top(p, y)
        codes, _ = cluster_codes(cluster)
        ends = ece_interval(of, codes, 1000, 0)
        rows.append(
            {
                "probabilities": name,
                "n": len(y),
                "levels": p.shape[1],
                "right": float(of.correct.mean()),
                "sure": float(of.confidence.mean()),
                "ECE": ece(of).value,
                "low": ends.low,
                "high": ends.high,
                "by chance": ece_by_chance(of).value,
                "Brier": float(brier(p, y).mean()),
                "of shares": _of_shares(p, y, brier),
                "RPS": float(ranked(p, y).mean()),
                "of shares ": _of_shares(p, y, ranked),
                "log loss": float(log_loss(p, y).mean()),
            }
        )
        bins += [{"probabilities": name, **one._asdict()} for one in reliability(of, 5)]
    table("Probabilities against people; 'of shares': what the people's shares alone would score", rows)
    table("Reliability: bins of about equally many, exact 95% intervals of accuracy", bins)


def _of_shares(p: np.ndarray, y: np.ndarray, score: Callable[[np.ndarray, np.ndarray], np.ndarray]) -> float:
    shares = np.bincount(y, minlength=p.shape[1]) / len(y)
    return float(score(np.tile(shares, (len(y), 1)), y).mean())


def _tokens() -> Iterator[tuple[str, np.ndarray, np.ndarray, np.ndarray]]:
    """LLM-Rubric: probabilities of answers 1-4 to nine questions, against single annotators; their zeros are left out,
    since what 0 stands for is not stated."""
    for kind in ("real", "synth"):
        people = pd.read_parquet(need("llm_rubric", f"{kind}_human_scores.parquet"))
        judged = pd.read_parquet(need("llm_rubric", f"{kind}_llm_distributions.parquet"))
        questions = [f"Q{n}" for n in range(9)]
        long = people[["text_id", *questions]].melt("text_id", questions, "criterion", "level")
        both = judged.merge(long, on=["text_id", "criterion"])
        both = both[both["level"].between(1, 4)]
        p = both[[f"answer{n}_prob" for n in range(1, 5)]].to_numpy(float)
        yield f"llm_rubric {kind}, tokens", _sharp(p), both["level"].to_numpy(np.int64) - 1, both["text_id"].to_numpy()


def _sharp(p: np.ndarray) -> np.ndarray:
    return p / p.sum(axis=1, keepdims=True)


def _frequencies(sets: Iterable[tuple[str, Recorded]]) -> Iterator[tuple[str, np.ndarray, np.ndarray, np.ndarray]]:
    """Shares of the levels among ten samples, one pseudo-sample spread over all levels."""
    for name, one in sets:
        if name == "sas_sampled":
            for judge, item, scores, human, cluster in _grids(name, one):
                bounds = _bounds(name, one, item)
                count, levels = level_count(*bounds), to_levels(scores, *bounds)
                p = np.stack([(levels == level).sum(axis=1) for level in range(count)], axis=1) + 1 / count
                y = to_levels(human, *bounds)
                yield f"{judge} {item}, frequencies", _sharp(p.astype(float)), y, cluster

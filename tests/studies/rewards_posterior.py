"""Ways to learn retention factors beside `tasks.rewards.reward.learn`, and what exact inference changes, on the
human scores of rewards_human.py: one part of rewards.py.

Every prediction is of a response whose cluster the fit has not seen, five folds, twice over, on our graphs with the
paper's factors. The beta prior has the paper's factor as its mean; its strength is averaged over by the evidence.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
from rewards_human import DIALOGUE, FOLDS, PAPER, Human, asap, chat, compiled_graph, dialogues, enem
from scipy.stats import spearmanr

from rubricflow.tasks.core.stats.bootstrap import folds_of, paired_bootstrap
from rubricflow.tasks.rewards.reward.aggregate import aggregate
from rubricflow.tasks.rewards.reward.compiled import CompiledGraph, batch
from rubricflow.tasks.rewards.reward.exact import exact_marginals, reward_variances
from rubricflow.tasks.rewards.reward.learn import _fit, learn, line, rewards_and_slopes

REPEATS, DRAWS = 2, 1000
WEAKEST_PULL = 1e-7
STRENGTHS = (2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0)
PAIR = ("share", "variance")
WAYS = ("flat", "exact", "no pull", "pull by folds", "beta prior")
Rows = list[dict[str, object]]


def without_pull(compiled: CompiledGraph, local: np.ndarray, standard: np.ndarray) -> np.ndarray:
    """Factors at the least error, hardly pulled anywhere. local: (k, n); standard: (n,) standardised scores."""
    return _fit(compiled, local, standard, WEAKEST_PULL)


def posterior(compiled: CompiledGraph, local: np.ndarray, standard: np.ndarray, seed: int = 0) -> np.ndarray:
    """Posterior means of the factors, by draws from the prior weighted with their likelihood; line and noise are
    fitted to each draw."""
    rng = np.random.default_rng(seed)
    centre = np.clip(compiled.retention, 0.05, 0.95)
    means, evidence = [compiled.retention], [_likelihoods(compiled, local, standard, compiled.retention[None])[0]]
    for strength in STRENGTHS:
        factors = rng.beta(centre * strength, (1 - centre) * strength, (DRAWS, len(centre)))
        logs = _likelihoods(compiled, local, standard, factors)
        chance = np.exp(logs - logs.max())
        means.append(chance @ factors / chance.sum())
        evidence.append(logs.max() + np.log(chance.mean()))
    weights = np.exp(np.array(evidence) - max(evidence))
    return weights @ np.array(means) / weights.sum()


def _likelihoods(compiled: CompiledGraph, local: np.ndarray, standard: np.ndarray, factors: np.ndarray) -> np.ndarray:
    """(draws,) log-likelihoods of factors (draws, e)."""
    shares = [np.broadcast_to(own, (len(factors), len(own))) for own in local]
    for edge, (parent, child) in enumerate(zip(compiled.parent, compiled.child, strict=True)):
        kept = factors[:, edge, None]
        shares[child] = shares[child] * (kept + shares[parent] * (1 - kept))
    reward = sum(weight * share for weight, share in zip(compiled.weights, shares, strict=True)) / compiled.mass
    apart = reward - reward.mean(axis=1, keepdims=True)
    together, spread = np.maximum(apart @ standard, 0), (apart**2).sum(axis=1)
    missed = (standard - standard.mean()) @ standard - together**2 / np.maximum(spread, 1e-300)
    return -0.5 * (len(standard) - 2) * np.log(missed)


def left_out(human: Human, compiled: CompiledGraph) -> dict[str, np.ndarray]:
    """Each way's predictions of every response, (REPEATS, n)."""
    predicted = {way: np.empty((REPEATS, len(human.scores))) for way in ("paper", *WAYS)}
    for repeat in range(REPEATS):
        fold = folds_of(human.clusters, FOLDS, repeat)
        for out in range(FOLDS):
            seen, unseen = fold != out, fold == out
            for way, (train, test) in rewards_of(human, compiled, seen, repeat).items():
                intercept, slope = line(train, human.scores[seen])
                predicted[way][repeat, unseen] = intercept + slope * test
    return predicted


def rewards_of(
    human: Human, compiled: CompiledGraph, seen: np.ndarray, repeat: int
) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Each way's rewards of the responses that were seen and of the others."""
    train, test, scores = human.local[seen].T.copy(), human.local[~seen].T.copy(), human.scores[seen]
    standard = (scores - scores.mean()) / scores.std()
    responses = batch([compiled], np.zeros(len(scores), np.int32), human.local[seen].ravel())
    (fit,) = learn(responses, scores, human.clusters[seen], FOLDS, repeat)
    factors = {
        "paper": compiled.retention,
        "flat": np.ones(len(compiled.retention)),
        "no pull": without_pull(compiled, train, standard),
        "pull by folds": np.array([fit.factors[edge] for edge in compiled.edges]),
        "beta prior": posterior(compiled, train, standard, repeat),
    }
    both = {
        way: tuple(rewards_and_slopes(compiled, part, kept)[0] for part in (train, test))
        for way, kept in factors.items()
    }
    exact = [exact_marginals(compiled, part.T) @ compiled.weights / compiled.mass for part in (train, test)]
    return both | {"exact": tuple(exact)}


def doubts_and_errors(data: Path, draws: int = 2000) -> Rows:
    """Rank correlation of how unsure a reward is with how far the person's satisfaction lies from the line through the
    rewards: answers of a language model to eight questions, with their probabilities."""
    rows: Rows = []
    for kind in ("real", "synth"):
        people = pd.read_parquet(data / "llm_rubric" / f"{kind}_human_scores.parquet").query("Q0 > 0")
        asked = pd.read_parquet(data / "llm_rubric" / f"{kind}_llm_distributions.parquet")
        chance = asked[[f"answer{level}_prob" for level in range(1, 5)]].to_numpy()
        chance = chance / chance.sum(axis=1, keepdims=True)
        share = chance @ np.arange(4) / 3
        asked = asked.assign(share=share, variance=chance @ (np.arange(4) / 3) ** 2 - share**2)
        questions = [f"Q{number}" for number in range(1, 9)]
        local, doubts = (asked.pivot(index="text_id", columns="criterion", values=name)[questions] for name in PAIR)
        people = people[people["text_id"].isin(local.index)]
        texts, scores = people["text_id"].to_numpy(), people["Q0"].to_numpy(float)
        own, unsure = (frame.loc[texts].to_numpy().ravel() for frame in (local, doubts))
        compiled = compiled_graph(questions, DIALOGUE, PAPER)
        responses = batch([compiled], np.zeros(len(scores), np.int32), own, variance=unsure)
        for aggregation in ("flat", "gear"):
            reward = aggregate(responses, aggregation).reward
            intercept, slope = line(reward, scores)
            missed = np.abs(scores - intercept - slope * reward)
            spread = np.sqrt(reward_variances(responses, aggregation))
            told = _rank_correlation(missed, spread, texts, draws)
            rows.append({"set": kind, "aggregation": aggregation, "correlation": told, "n": len(scores)})
    return rows


def _rank_correlation(missed: np.ndarray, spread: np.ndarray, clusters: np.ndarray, draws: int) -> str:
    """Spearman's, with an interval over texts."""
    rng, places = np.random.default_rng(0), [np.flatnonzero(clusters == name) for name in np.unique(clusters)]
    drawn = []
    for _ in range(draws):
        rows = np.concatenate([places[at] for at in rng.integers(0, len(places), len(places))])
        drawn.append(spearmanr(missed[rows], spread[rows])[0])
    low, high = np.quantile(drawn, (0.025, 0.975))
    return f"{spearmanr(missed, spread)[0]:.3f} [{low:.3f}, {high:.3f}]"


def report(data: Path, draws: int = 2000) -> Iterator[tuple[str, Rows]]:
    """Two tables: whether doubts tell errors; and each way's error less that of the paper's factors, in standard
    deviations of the human score."""
    yield "Do doubts tell errors", doubts_and_errors(data)
    rows: Rows = []
    for human in (*asap(data), *enem(data), *dialogues(data), *chat(data)):
        compiled, spread = compiled_graph(human.traits, human.edges, PAPER), human.scores.std()
        predicted = left_out(human, compiled)
        scores, clusters = np.tile(human.scores, REPEATS), np.tile(human.clusters, REPEATS)
        error = np.sqrt(np.mean((predicted["paper"] - human.scores) ** 2)) / spread
        row: dict[str, object] = {"set": human.name, "n": len(human.scores), "paper": error}
        for way in WAYS:
            pair = predicted["paper"].ravel(), predicted[way].ravel()
            gap = paired_bootstrap(scores, *pair, clusters, human.scale, draws, 0)["rmse"]
            own = np.sqrt(np.mean((predicted[way] - human.scores) ** 2)) / spread
            row[way] = f"{own - error:+.4f} [{gap.low / spread:+.4f}, {gap.high / spread:+.4f}]"
        rows.append(row)
    yield "Held-out error (SD of the human score); differences from the paper's factors, negative: better", rows

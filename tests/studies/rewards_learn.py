"""What edge-specific retention factors gain on human scores: one part of rewards.py.

Every prediction is of a response whose essay, theme or dialogue the fit has not seen: five folds, five times over, each
with the strength of the pull chosen inside the fold's own training data. Three graphs for each set. ours: dependencies
that we think the traits have, with the paper's factors. pairs: every earlier trait may license every later one, from a
factor of 1, which is none, so that the fit decides. pairs+w: the same, after the weights were refitted, so that "flat"
is the refitted weights and what is learned is what dependencies add to them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.optimize import nnls

from rubricflow.tasks.core.contracts.bundle import Bundle, Criterion, Protocol, Scale, Trait
from rubricflow.tasks.core.contracts.graph import Edge, Graph, Node, Relation
from rubricflow.tasks.core.contracts.settings.reward import Retention
from rubricflow.tasks.rewards.reward.compiled import CompiledGraph, batch, compile_graph
from rubricflow.tasks.rewards.reward.factors import METHODS, GainFigure, Method, gains, predict
from rubricflow.tasks.rewards.reward.learn import Learned, folds_of, learn

PAPER = Retention(weak_prerequisite=0.6, strong_prerequisite=0.2, activation=0.0)
NOTHING = Retention(weak_prerequisite=1.0, strong_prerequisite=1.0, activation=1.0)
FOLDS, REPEATS = 5, 5
Edges = Sequence[tuple[str, str, Relation]]

ESSAY: Edges = [
    ("content", "organization", "weak_prerequisite"),
    ("content", "word_choice", "weak_prerequisite"),
    ("content", "sentence_fluency", "weak_prerequisite"),
    ("organization", "sentence_fluency", "weak_prerequisite"),
    ("content", "conventions", "weak_prerequisite"),
]
SOURCED: Edges = [
    ("prompt_adherence", "content", "strong_prerequisite"),
    ("content", "language", "weak_prerequisite"),
    ("content", "narrativity", "weak_prerequisite"),
]
NARRATIVE: Edges = [
    ("ideas", "organization", "weak_prerequisite"),
    ("ideas", "style", "weak_prerequisite"),
    ("ideas", "conventions", "weak_prerequisite"),
]
ENEM: Edges = [
    ("c2", "c3", "strong_prerequisite"),
    ("c2", "c5", "strong_prerequisite"),
    ("c3", "c5", "weak_prerequisite"),
    ("c2", "c4", "weak_prerequisite"),
    ("c2", "c1", "weak_prerequisite"),
]
DIALOGUE: Edges = [
    ("Q2", "Q3", "weak_prerequisite"),
    ("Q3", "Q4", "strong_prerequisite"),
    ("Q4", "Q5", "weak_prerequisite"),
    ("Q2", "Q7", "weak_prerequisite"),
    ("Q2", "Q8", "weak_prerequisite"),
    ("Q6", "Q7", "weak_prerequisite"),
]
CHAT: Edges = [
    ("understandability", "coherence", "strong_prerequisite"),
    ("understandability", "naturalness", "weak_prerequisite"),
    ("coherence", "engagingness", "weak_prerequisite"),
    ("coherence", "groundedness", "weak_prerequisite"),
]


@dataclass(frozen=True)
class Human:
    """A set of responses with a local score for every trait and a holistic score of another origin."""

    name: str
    traits: Sequence[str]
    local: np.ndarray
    """(n, k) in [0, 1]."""
    scores: np.ndarray
    """(n,) what is predicted."""
    scale: tuple[float, float, float]
    clusters: np.ndarray
    edges: Edges
    """Ours, from the meaning of the traits; by the sets' authors there are none."""


def asap(data: Path) -> Iterator[Human]:
    """Attribute scores of ASAP++ against the resolved score, and in set 7 one rater's traits against the other's total.

    A rater's total is the sum of the same rater's traits by construction; the other rater's is not.
    """
    essays = pd.read_parquet(data / "asap_aes" / "essays.parquet")
    scored = {1: (1, 6, 2, 12), 2: (1, 6, 1, 6), 3: (0, 3, 0, 3), 4: (0, 3, 0, 3), 6: (0, 4, 0, 4)}
    for number, (low, high, least, most) in scored.items():
        part = essays[essays["essay_set"] == number]
        edges = ESSAY if number <= 2 else SOURCED
        traits = list(dict.fromkeys(name for parent, child, _ in edges for name in (parent, child)))
        local = (part[[f"app_{name}" for name in traits]].to_numpy(float) - low) / (high - low)
        ids = part["essay_id"].to_numpy()
        yield Human(
            f"asap {number}", traits, local, part["domain1_score"].to_numpy(float), (least, most, 1), ids, edges
        )
    part = essays[essays["essay_set"] == 7]
    for rater, other in ((1, 2), (2, 1)):
        local = part[[f"rater{rater}_trait{at}" for at in range(1, 5)]].to_numpy(float) / 3
        total = part[f"rater{other}_domain1"].to_numpy(float)
        name = f"asap 7, traits of rater {rater}, total of {other}"
        traits = ["ideas", "organization", "style", "conventions"]
        yield Human(name, traits, local, total, (0, 12, 1), part["essay_id"].to_numpy(), NARRATIVE)


def enem(data: Path) -> Iterator[Human]:
    """Competence scores of four language models, without examples, against the person's total; by theme."""
    people = pd.read_parquet(data / "enem_essays" / "essays_human_competences.parquet")
    judges = pd.read_parquet(data / "enem_essays" / "judge_competence_scores.parquet")
    columns = [f"llm_c{at}" for at in range(1, 6)]
    shot = judges[judges["strategy"] == "zero_shot"].dropna(subset=columns)
    mean = shot.groupby("essay_id", as_index=False)[columns].mean().assign(model="mean of four")
    for model, part in pd.concat([shot, mean]).groupby("model"):
        rows = part.merge(people, on="essay_id")
        local, traits = rows[columns].to_numpy(float) / 200, [f"c{at}" for at in range(1, 6)]
        total, theme = rows["human_total"].to_numpy(float), rows["theme_id"].to_numpy()
        yield Human(f"enem, {model}", traits, local, total, (0, 1000, 40), theme, ENEM)


def dialogues(data: Path) -> Iterator[Human]:
    """Expected answers of a language model to eight questions, and persons' own, against a person's satisfaction.

    An answer of 0 stands for none: it is left out.
    """
    questions = [f"Q{at}" for at in range(1, 9)]
    for kind in ("real", "synth"):
        people = pd.read_parquet(data / "llm_rubric" / f"{kind}_human_scores.parquet")
        people = people[people["Q0"] > 0]
        asked = pd.read_parquet(data / "llm_rubric" / f"{kind}_llm_distributions.parquet")
        chance = asked[[f"answer{at}_prob" for at in range(1, 5)]].to_numpy()
        asked["share"] = chance @ np.arange(4) / 3 / chance.sum(axis=1)
        wide = asked.pivot(index="text_id", columns="criterion", values="share")[questions]
        rows = people[["text_id", "Q0"]].merge(wide, on="text_id")
        yield _dialogue(f"llm_rubric {kind}, model's answers", rows, rows[questions].to_numpy())
        whole = people[(people[questions] > 0).all(axis=1)]
        yield _dialogue(f"llm_rubric {kind}, person's answers", whole, (whole[questions].to_numpy(float) - 1) / 3)


def _dialogue(name: str, rows: pd.DataFrame, local: np.ndarray) -> Human:
    questions = [f"Q{at}" for at in range(1, 9)]
    satisfied, text = rows["Q0"].to_numpy(float), rows["text_id"].to_numpy()
    return Human(name, questions, local, satisfied, (1, 4, 1), text, DIALOGUE)


def chat(data: Path) -> Iterator[Human]:
    """Persons' mean trait scores, and the mean of a language model's ten, against persons' mean overall score; by
    dialogue. The persons' traits and their overall score are of the same three persons."""
    lowest = {"understandability": 0, "naturalness": 1, "coherence": 1, "engagingness": 1, "groundedness": 0}
    top = {"understandability": 1, "naturalness": 3, "coherence": 3, "engagingness": 3, "groundedness": 1}
    people = pd.read_parquet(data / "topical_chat" / "responses_human_scores.parquet")
    asked = pd.read_parquet(data / "topical_chat" / "judge_gpt35_sampled10.parquet").query("prompt_variant == 'geval'")
    asked["score"] = asked["raw_output"].str.extract(r"(\d+(?:\.\d+)?)\D*$", expand=False).astype(float)
    wide = asked.pivot_table(index="item_id", columns="dimension", values="score")
    by_model = people[["item_id", "dialogue_id", "human_overall"]].merge(wide, on="item_id").dropna()
    traits = list(lowest)
    for rater, rows, columns in (
        ("persons'", people, {trait: f"human_{trait}" for trait in traits}),
        ("model's", by_model, {trait: trait for trait in traits if trait != "understandability"}),
    ):
        local = np.column_stack(
            [(rows[column] - lowest[trait]) / (top[trait] - lowest[trait]) for trait, column in columns.items()]
        ).clip(0, 1)
        edges = [edge for edge in CHAT if edge[0] in columns and edge[1] in columns]
        overall, dialogue = rows["human_overall"].to_numpy(), rows["dialogue_id"].to_numpy()
        yield Human(f"topical_chat, {rater} traits", list(columns), local, overall, (1, 5, 1), dialogue, edges)


def compiled_graph(traits: Sequence[str], edges: Edges, retention: Retention) -> CompiledGraph:
    """Traits of weight 1 with these edges."""
    criteria = tuple(Criterion(id=name, trait="whole", text=name) for name in traits)
    protocol = Protocol(name="pointwise", final_score="weighted_points", signals=())
    whole = Trait(id="whole", name="whole", min=0, max=1)
    bundle = Bundle(text="", scale=Scale(min=0, max=1), traits=(whole,), criteria=criteria, protocol=protocol)
    nodes = tuple(Node(criterion_id=name, role="core") for name in traits)
    graph = Graph(nodes=nodes, edges=tuple(Edge(parent=a, child=b, relation=how) for a, b, how in edges))
    return compile_graph("traits", bundle, graph, retention)


def refitted(compiled: CompiledGraph, local: np.ndarray, scores: np.ndarray) -> CompiledGraph:
    """The rubric with the weights that predict the scores best; its dependencies can only add to those."""
    weights, _ = nnls(local - local.mean(axis=0), scores - scores.mean())
    return replace(compiled, weights=weights) if weights.any() else compiled


def left_out(
    one: Human, compiled: CompiledGraph, refit: bool
) -> tuple[dict[Method, np.ndarray], np.ndarray, list[Learned]]:
    """Each method's predictions of every response, all repeats one after the other, the place of the response in the
    set, and what each fold's fit had learned."""
    parts, places, fits = [], [], []
    for repeat in range(REPEATS):
        fold = folds_of(one.clusters, FOLDS, repeat)
        for out in range(FOLDS):
            seen, unseen = np.flatnonzero(fold != out), np.flatnonzero(fold == out)
            mine = refitted(compiled, one.local[seen], one.scores[seen]) if refit else compiled
            train, test = (
                batch([mine], np.zeros(len(rows), dtype=np.int32), one.local[rows].ravel()) for rows in (seen, unseen)
            )
            found = learn(train, one.scores[seen], one.clusters[seen], FOLDS, repeat)
            parts.append(predict(train, one.scores[seen], found, test))
            places.append(unseen)
            fits += found
    predicted = {method: np.concatenate([part[method] for part in parts]) for method in METHODS}
    return predicted, np.concatenate(places), fits


def report(data: Path, draws: int = 2000) -> Iterator[tuple[str, list[dict[str, object]]]]:
    """Titled tables: every method's figures, the differences with their intervals, and what was learned."""
    figures, differences, factors = [], [], []
    for one in (*asap(data), *enem(data), *dialogues(data), *chat(data)):
        pairs: Edges = [(a, b, "weak_prerequisite") for a, b in combinations(one.traits, 2)]
        graphs = (
            ("ours", one.edges, PAPER, False),
            ("pairs", pairs, NOTHING, False),
            ("pairs+w", pairs, NOTHING, True),
        )
        for graph, edges, retention, refit in graphs:
            predicted, places, fits = left_out(one, compiled_graph(one.traits, edges, retention), refit)
            found = gains(one.scores[places], predicted, one.clusters[places], one.scale, draws)
            of = {"set": one.name, "graph": graph}
            size = {"n": len(one.scores), "clusters": len(np.unique(one.clusters)), "edges": len(edges)}
            figures.append(of | size | shown(found))
            differences.append(of | compared(found))
            factors.append(of | taught(fits))
    yield "Held-out error (score units), correlation r and QWK of the predicted human score", figures
    yield (
        "Held-out error less that of another method, 95% interval over clusters; negative: the first is better",
        differences,
    )
    yield "Fits that stayed at the relations' factors, and mean factors of all fits on our graphs", factors


def shown(found: Sequence[GainFigure]) -> dict[str, object]:
    """Error, correlation and kappa of each method."""
    short = {"rmse": "", "pearson": " r", "qwk": " qwk"}
    return {
        one.method + short[one.statistic]: one.value for one in found if one.over is None and one.statistic in short
    }


def compared(found: Sequence[GainFigure]) -> dict[str, object]:
    """Differences of error with their intervals."""
    return {
        f"{one.method}-{one.over}": f"{one.value:+.4f} [{one.low:+.4f}, {one.high:+.4f}]"
        for one in found
        if one.over is not None and one.statistic == "rmse"
    }


def taught(fits: Sequence[Learned]) -> dict[str, object]:
    """How many fits chose an infinite pull, and where few edges are, their mean factors."""
    stayed = f"{sum(np.isinf(fit.strength) for fit in fits)}/{len(fits)}"
    mean = {edge: np.mean([fit.factors[edge] for fit in fits]) for edge in fits[0].factors}
    said = ", ".join(f"{parent}→{child} {value:.2f}" for (parent, child), value in mean.items())
    return {"stayed": stayed, "factors": said if len(mean) <= 6 else f"{len(mean)}, from {min(mean.values()):.2f}"}

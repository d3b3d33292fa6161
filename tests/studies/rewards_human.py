"""Sets of human scores of traits and of the whole, with the dependencies that we think the traits have: what the other
parts of rewards.py predict."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from rubricflow.tasks.core.contracts.bundle import Bundle, Criterion, Protocol, Scale, Trait
from rubricflow.tasks.core.contracts.graph import Edge, Graph, Node, Relation
from rubricflow.tasks.core.contracts.settings.reward import Retention
from rubricflow.tasks.rewards.reward.compiled import CompiledGraph, compile_graph

PAPER = Retention(weak_prerequisite=0.6, strong_prerequisite=0.2, activation=0.0)
FOLDS = 5
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

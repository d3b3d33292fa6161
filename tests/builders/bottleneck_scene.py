"""A made-up run of three graders: tables that conform to their contracts, for the tests of the report."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from scipy.special import softmax

from rubricflow.tasks.core.contracts.schema import conform
from rubricflow.tasks.core.contracts.settings.methods import Bottleneck
from rubricflow.tasks.core.contracts.tables.bottleneck import ConceptLinks, Interventions, Models, Traces, Trials
from rubricflow.tasks.methods.report.graders import BottleneckView

Records = list[dict[str, Any]]
NAMES = {"FC": "Factual correctness", "CC": "Concept coverage", "FR": "Fluency"}
TEXT = "A linked list is a sequence of nodes, and each has a pointer to the next one."
SEEDS = (0, 1, 2)
METHODS = {"rec_cbm": (0.60, 0.62, 0.64), "vanilla_cbm": (0.50, 0.60, 0.66), "plm": (0.40, 0.41, 0.42)}
"""Method → QWK of each seed."""
SCORES = (0.0, 1.0, 2.0)
WEIGHTS = np.array([[-2.0, -1.0, 0.5], [0.2, 0.1, 0.0], [1.8, 1.2, -0.4]])
CORRECTION = np.array([[0.6, 0.1, 0.0], [0.1, 0.5, 0.0], [0.0, 0.0, 0.9]])
OFFSET = np.array([1.0, 0.2, -1.2])
TEMPERATURE = 1.5
HUMAN = {"r1": 2.0, "r2": 0.0, "r3": 2.0, "r4": 1.0}
"""Response → people's score."""


def trial(method: str, metric: str, value: float | None, criterion: str = "", **more: Any) -> dict[str, Any]:
    row = {"method": method, "seed": 0, "setting": "", "split": "test", "metric": metric, "criterion_id": criterion}
    return row | {"value": value, "n": 40, "note": None} | more


def trial_rows() -> Records:
    rows = []
    for method, agreements in METHODS.items():
        for seed, qwk in zip(SEEDS, agreements, strict=True):
            rows += [trial(method, f"task_{name}", qwk + 0.1, seed=seed) for name in ("accuracy", "macro_f1")]
            rows += [trial(method, "task_qwk", qwk, seed=seed), trial(method, "task_ece", 0.7 - qwk, seed=seed)]
            if method != "plm":
                for name in ("accuracy", "macro_f1", "qwk"):
                    for criterion in ("all", *NAMES):
                        rows.append(trial(method, f"concept_{name}", qwk + 0.05, criterion, seed=seed))
                rows.append(trial(method, "leakage_task", 0.012 + 0.01 * seed, seed=seed))
                rows.append(trial(method, "leakage_concepts", 0.02, "all", seed=seed))
    rows += [trial("human", "task_qwk", 0.72), trial("human", "concept_accuracy", 0.85, "FC")]
    rows += [trial("recorded-gpt", "task_qwk", 0.55), trial("recorded-gpt", "task_ece", None, note="one response")]
    for order, area in (("confidence", 0.6), ("expected_change", 0.7), ("random", 0.65)):
        rows.append(trial("rec_cbm", f"saving_area_{order}", area))
    for value, score in ((0.0, 0.55), (0.2, 0.63), (0.8, 0.61)):
        for seed in SEEDS:
            for metric in ("task_macro_f1", "task_qwk"):
                rows.append(trial("rec_cbm", metric, score + seed / 100, seed=seed, setting=f"ranking_weight={value}"))
    return rows


def intervention_rows() -> Records:
    step = {"oracle": 0.06, "random": -0.03, "wrong": -0.12}
    rows = []
    for method, by in (("rec_cbm", 1.0), ("vanilla_cbm", 0.6)):
        for seed in SEEDS:
            for kind, order, slope in (
                *((kind, "confidence", step[kind]) for kind in step),
                ("oracle", "uncertainty", 0.08),
                ("oracle", "expected_change", 0.09),
                ("oracle", "random", 0.05),
            ):
                for asked in range(len(NAMES) + 1):
                    change = slope * by * (asked if order == "confidence" else 3 * (asked / 3) ** 0.5)
                    row = {"method": method, "seed": seed, "kind": kind, "order": order, "asked": asked, "n": 40}
                    row |= {"metric": "task_accuracy", "value": 0.6 + change, "change": change}
                    rows.append(row | {"low": change - 0.03 * asked, "high": change + 0.03 * asked})
    return rows


def model_rows() -> Records:
    head = {"criteria": list(NAMES), "tops": [2] * len(NAMES), "correction": CORRECTION.tolist()}
    head |= {"weights": WEIGHTS.tolist(), "bias": OFFSET.tolist(), "scores": list(SCORES), "temperature": TEMPERATURE}
    return [
        {"method": method, "seed": seed, "setting": "", "backbone": "minilm-123", "encoder": "frozen", "seconds": 2.5}
        | {"parameters": 12000, "epochs_1": 9, "epochs_2": 14 if method == "rec_cbm" else 0, "validation": 0.6}
        | {"grade_temperature": TEMPERATURE}
        | ({"head": json.dumps(head), "digest": "d" * 64} if (method, seed) == ("rec_cbm", 0) else {})
        for method in METHODS
        for seed in SEEDS
    ]


def link_rows() -> Records:
    pairs = (("FC", "CC", 0.76, 0.28), ("FC", "FR", 0.2, -0.05), ("CC", "FR", None, -0.63))
    return [
        {"method": "rec_cbm", "seed": seed, "a": a, "b": b, "n": 90}
        | {"label_correlation": label, "partial_correlation": r}
        for seed in SEEDS
        for a, b, label, r in pairs
    ]


def tokens(text: str, *words: str) -> Records:
    """The words as attended tokens, the first the heaviest."""
    return [
        {"start": text.index(word), "end": text.index(word) + len(word), "weight": 0.3 / (at + 1)}
        for at, word in enumerate(words)
    ]


def trace_rows(
    response: str, shares: tuple[float, float, float], attention: tuple[Records, ...]
) -> Iterator[dict[str, Any]]:
    """What the head above makes of a response's shares."""
    logits = WEIGHTS @ CORRECTION @ shares + OFFSET
    likely = softmax(logits / TEMPERATURE)
    first, second = np.argsort(-likely)[:2]
    of = {"response_id": response, "score": SCORES[first], "probability": likely[first], "logit": logits[first]}
    of |= {"runner_up": SCORES[second], "human": HUMAN[response]}
    posterior = CORRECTION @ shares
    for at, name in enumerate(NAMES):
        share = shares[at]
        levels = [(1 - share) ** 2, 2 * share * (1 - share), share**2]
        yield of | {
            "criterion_id": name,
            "level_probabilities": levels,
            "expected": 2 * share,
            "share": share,
            "corrected": posterior[at],
            "contribution": WEIGHTS[first, at] * posterior[at],
            "attention": attention[at],
        }
    yield of | {"criterion_id": "bias", "contribution": OFFSET[first], "attention": []}


def traced(text: str = TEXT) -> Records:
    look = (tokens(text, text[:8]), tokens(text, text[12:16]), tokens(text, text[-5:]))
    if text == TEXT:
        look = (tokens(text, "sequence", "of", "nodes"), tokens(text, "pointer", "next", "nodes"), tokens(text, "list"))
    shares = {"r1": (0.95, 0.9, 0.9), "r2": (0.1, 0.2, 0.9), "r3": (0.45, 0.4, 0.5), "r4": (0.9, 0.9, 0.4)}
    return [row for response, of in shares.items() for row in trace_rows(response, of, look)]


def made(text: str = "", **more: Any) -> BottleneckView:
    """The run; `text` in place of every name and text, to be looked for."""
    view = BottleneckView(
        study=text or "osmosis",
        run_id="run1",
        settings=Bottleneck(seeds=SEEDS, methods=("rec_cbm", "vanilla_cbm", "plm")),
        names={key: text or name for key, name in NAMES.items()},
        trials=conform(Trials, trial_rows()),
        models=conform(Models, model_rows()),
        interventions=conform(Interventions, intervention_rows()),
        links=conform(ConceptLinks, link_rows()),
        traces=conform(Traces, traced(text or TEXT)),
        texts=dict.fromkeys(("r1", "r2", "r3", "r4"), text or TEXT),
    )
    return replace(view, **more)

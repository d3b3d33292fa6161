"""A made-up run of grading: tables that conform to their contracts, for the tests of the report."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from builders.rows import connected

from rubricflow.tasks.core.contracts.bundle import Bundle, Criterion, Protocol, Scale, Trait
from rubricflow.tasks.core.contracts.schema import Row, conform, schema
from rubricflow.tasks.core.contracts.tables.calibration import Calibrations, Candidates, Predictions, ReleaseRules
from rubricflow.tasks.core.contracts.tables.catalogue import TABLES
from rubricflow.tasks.core.contracts.tables.data import InputWarnings, Items, Responses
from rubricflow.tasks.core.contracts.tables.evaluation import Checks, Metrics, Quarantine, RaterEffects, Verdicts
from rubricflow.tasks.core.contracts.tables.judging import Attempts, Gradings, Judgments
from rubricflow.tasks.core.stats import agreement as stats
from rubricflow.tasks.grading.report.answers import FIRST_ANSWERS
from rubricflow.tasks.grading.report.figures import counts
from rubricflow.tasks.grading.report.view import Tables, needs_texts

Records = list[dict[str, Any]]


SCALE = Scale(min=0, max=4)


BUNDLE = Bundle(
    text="",
    scale=SCALE,
    traits=(Trait(id="t", name="Content", min=0, max=4),),
    criteria=(
        Criterion(id="G1", trait="t", text="Energy separates the particles"),
        Criterion(id="G2", trait="t", text="The temperature stays the same until all of it is melted"),
        Criterion(id="G3", trait="t", text="Names latent heat"),
    ),
    protocol=Protocol(name="rulers", final_score="weighted_points", signals=("length",)),
)


STUDY: dict[str, Any] = {
    "name": "autumn",
    "judge": {"protocol": "rulers", "backend": "replay", "model": "example-8b"},
    "split": {"by": "author", "per": "set", "calibration": 100},
    "release": {"tolerance": 1.0, "risk": 0.05, "confidence": 0.9, "by": "item", "coverage": 0.9},
    "evaluation": {"target": "mean", "draws": 2000},
    "marks": "calibrate",
}


MANIFEST: dict[str, Any] = {
    "run_id": "autumn-0123456789",
    "written": "2026-11-20T10:00:00+00:00",
    "grade_digest": "7f3a" * 16,
    "versions": {"python": "3.11.9", "pyarrow": "26.0.1"},
    "git": {"commit": "c0ffee1" * 5, "dirty": False},
}


ANSWER = "The heat is used to pull the particles apart from each other. So it cant go up untill theres no ice left."


NAMES = ("melting", "day-night", "rust", "vacuum", "circuit", "food-web", "feather", "salt-water")


def made_run(
    items: int = 8,
    each: int = 150,
    raters: tuple[str, ...] = ("anna", "ben"),
    text: str = ANSWER,
    item_name: Callable[[int], str] = lambda at: NAMES[at] if at < len(NAMES) else f"item-{at}",
    group: tuple[str, ...] = ("english", "other"),
    author: bool = True,
    scored: bool = True,
    releases: bool = True,
    scales: tuple[Scale, ...] = (SCALE,),
) -> Tables:
    """An invented run: one noisy machine and noisy raters of a known true score."""
    rng = np.random.default_rng(7)
    bundles = {f"r{at}": BUNDLE.model_copy(update={"scale": scale}) for at, scale in enumerate(scales)}
    tables: dict[type[Row], Records] = {row: [] for row in TABLES}
    frame = []
    for at in range(items):
        rubric = f"r{at % len(scales)}"
        scale, item = bundles[rubric].scale, item_name(at)
        width = scale.max - scale.min
        tables[Items].append(
            {
                "item_id": item,
                "question": "Why does melting ice stay at 0 °C?",
                "key_elements": [],
                "type": "short" if at % 2 else "long",
                "rubric_id": rubric,
            }
        )
        for nr in range(each):
            response = f"{item[:20]}-{nr:04}"
            truth = scale.min + width * rng.beta(1.6, 1.4)

            def level(value: float, scale: Scale = scale) -> float:
                steps = round((value - scale.min) / scale.step)
                return float(np.clip(scale.min + steps * scale.step, scale.min, scale.max))

            split = ("calibration", "test", "test")[nr % 3]
            groups = {"language": group[int(rng.random() > 0.7)]} if group else {}
            human = {name: level(truth + 0.11 * width * rng.normal()) for name in raters}
            own = scored and rng.random() > 0.02
            raw = truth - 0.1 * width + (0.12 + 0.02 * at) * width * rng.normal() if own else None
            final = level(raw + 0.1 * width) if raw is not None else None
            risk = float(np.clip(0.04 + 0.1 * rng.random() + 0.02 * at, 0, 1)) if own and raters else None
            released = releases and risk is not None and risk < 0.2
            reason = None if released else "unscored" if not own else "risk" if raters else "uncalibrated"
            why = None if own else "no_reply"
            frame.append(
                {
                    "response_id": response,
                    "item_id": item,
                    "author_id": f"p{nr}" if author else None,
                    "type": "long",
                    "split": split,
                }
                | {f"human:{name}": score for name, score in human.items()}
                | {f"group:{name}": value for name, value in groups.items()}
                | {"target": float(np.mean(list(human.values()))) if human else math.nan}
                | {"raw": raw, "calibrated": final, "risk": risk, "route": "release" if released else "review"}
                | {"route_reason": reason, "unscored_reason": why, "low": None, "high": None}
                | {"points_judge": 0.8, "points_text": -0.25, "points_item": 0.0}
            )
            tables[Responses].append(
                {
                    "response_id": response,
                    "item_id": item,
                    "author_id": frame[-1]["author_id"],
                    "text": text,
                    "split": split,
                    "groups": list(groups.items()),
                }
            )
            grading = {"response_id": response, "item_id": item, "sample": 0, "trait_scores": [], "signals": []}
            for name, score in human.items():
                tables[Gradings].append(
                    grading | {"rater_id": name, "rater_kind": "human", "score": score, "status": "scored"}
                )
            tables[Gradings].append(
                grading
                | {
                    "rater_id": "judge",
                    "rater_kind": "llm",
                    "score": raw,
                    "status": "scored" if own else "unscored",
                    "unscored_reason": why,
                }
            )
            tables[Predictions].append(
                {
                    "response_id": response,
                    "item_id": item,
                    "rater_id": "judge",
                    "split": split,
                    "raw": raw,
                    "score": final,
                    "clipped": nr % 40 == 0,
                }
                | {"route": frame[-1]["route"], "route_reason": reason, "unscored_reason": why, "risk": risk}
            )
            tables[Attempts].append(
                {
                    "response_id": response,
                    "rater_id": "judge",
                    "sample": 0,
                    "part": "all",
                    "attempt": 0,
                    "role": "grade",
                    "request_digest": "d",
                }
                | {
                    "model": "example-8b",
                    "seed": 1,
                    "reply": "{}",
                    "violations": [],
                    "prompt_tokens": 900,
                    "completion_tokens": 120,
                    "mends": [],
                    "memory": [],
                    "characters": {},
                    "stored": False,
                    "latency_s": 0.2,
                }
            )
            tables[Judgments] += judged(response, text, own)
    columns = [
        "response_id",
        "item_id",
        "type",
        "split",
        "target",
        "raw",
        "calibrated",
        "risk",
        "route",
        "route_reason",
    ]
    scores = pd.DataFrame(frame, columns=None if frame else columns)
    scores = scores[scores["split"] == "test"].reset_index(drop=True)
    bounds = {row["item_id"]: bundles[row["rubric_id"]].scale.bounds for row in tables[Items]}
    if raters:
        tables[Metrics] = metrics(scores, list(raters), bounds)
        tables[Verdicts] = gates()
        tables[Candidates], tables[Calibrations], tables[ReleaseRules] = fitted([*bounds], releases)
    tables[Checks] = checks()
    tables[InputWarnings] = [{"kind": "markup", "responses": 7, "examples": ["<b>r1</b>"]}]
    tables[Quarantine] = [
        {
            "stage": "ingest",
            "table_name": "responses",
            "row_key": "x",
            "rule": "unique",
            "column": "response_id",
            "reason": "",
            "content": '{"mapping": null, "text_only": null}',
        }
    ]
    arrow = {row: conform(row, rows) if rows else schema(row).empty_table() for row, rows in tables.items()}
    connection = connected({row: arrow.get(row, schema(row).empty_table()) for row in TABLES})
    shown = needs_texts(scores, bounds)
    judgments = arrow[Judgments].filter(pa.compute.is_in(arrow[Judgments]["response_id"], pa.array(shown, pa.string())))
    return Tables(
        scores,
        arrow[Items],
        bundles,
        arrow[Metrics],
        arrow[Verdicts],
        arrow[RaterEffects],
        arrow[ReleaseRules],
        arrow[Candidates],
        arrow[Calibrations],
        arrow[Checks],
        judgments,
        dict.fromkeys(shown, text),
        counts(connection, "mean"),
        connection.sql(FIRST_ANSWERS).to_arrow_table(),
    )


def judged(response: str, text: str, own: bool) -> Records:
    """Three decisions of the machine and a person: one quote stands, one is invented, one is from elsewhere."""
    common = {"response_id": response, "sample": 0, "action": "none", "evidence": []}
    machine = common | {"rater_id": "judge", "rater_kind": "llm"}
    why = None if own else "no_reply"
    end = min(40, len(text))
    quotes = (
        {"unit_id": "s1", "quote": text[:end], "start": 0, "end": end, "status": "verified"},
        {
            "unit_id": "s1",
            "quote": "stays at zero until it has melted",
            "start": None,
            "end": None,
            "status": "fabricated",
        },
        {"unit_id": "s2", "quote": text[5:30], "start": 5, "end": min(30, len(text)), "status": "misattributed"},
    )
    found = []
    for criterion, quote in zip(BUNDLE.criteria, quotes, strict=True):
        stands = quote["status"] == "verified"
        found.append(
            machine
            | {
                "criterion_id": criterion.id,
                "decision": int(stands) if own else None,
                "stated": 1 if own else None,
                "unscored_reason": why,
            }
            | {
                "evidence": [quote] if own else [],
                "verified": stands,
                "action": "none" if stands or not own else "demoted",
            }
        )
        found.append(common | {"rater_id": "anna", "rater_kind": "human", "criterion_id": criterion.id, "decision": 1})
    return found


def metrics(scores: pd.DataFrame, raters: list[str], bounds: Mapping[str, tuple[float, float, float]]) -> Records:
    """Rows of `metrics` with figures computed by tasks/core/stats and invented intervals."""
    rows: Records = []

    def add(
        metric: str,
        value: float | None,
        n: int,
        stage: str,
        a: str,
        b: str,
        part: str = "all",
        of: str = "all",
        width: float = 0.05,
    ) -> None:
        ends = {"low": value - width, "high": value + width} if value is not None else {}
        note = None if value is not None else "undefined"
        rows.append(
            {
                "metric": metric,
                "rater_a": a,
                "rater_b": b,
                "stage": stage,
                "slice": part,
                "value_of": of,
                "value": value,
                "n": n,
                "unscored": 0,
            }
            | {"resampled": "author", "clusters": 40, "undefined_draws": 0, "note": note}
            | ends
        )

    couples = [(f"human:{a}", f"human:{b}", "human", a, b) for i, a in enumerate(raters) for b in raters[i + 1 :]]
    couples += [
        ("target", column, stage, "target", "judge")
        for column, stage in (("raw", "raw"), ("calibrated", "calibrated"), ("calibrated", "released"))
    ]
    parts = [("all", "all", scores), *(("item", str(v), r) for v, r in scores.groupby("item_id"))]
    parts += [("type", str(v), r) for v, r in scores.groupby("type")]
    for left, right, stage, a, b in couples:
        for part, of, rows_of in parts:
            used = rows_of[rows_of["route"] == "release"] if stage == "released" else rows_of
            both = used[used[left].notna() & used[right].notna()]
            if stage == "human":  # as `evaluate` compares people: on the answers that the machine scored
                both = both[both["calibrated"].notna()]
            found = {bounds[item] for item in both["item_id"].unique()}
            if len(found) != 1:
                add("qwk", None, len(both), stage, a, b, part, of)
                continue
            (scale,) = found
            h, m = both[left].to_numpy(float), both[right].to_numpy(float)
            add("qwk", stats.qwk(h, m, *scale).value, len(both), stage, a, b, part, of)
            if part == "all":
                add("exact", stats.exact_agreement(h, m, *scale).value, len(both), stage, a, b)
                add("within_1", stats.adjacent_agreement(h, m, *scale, within=1).value, len(both), stage, a, b)
                for name in ("mae", "rmse", "bias", "smd", "pearson"):
                    add(name, getattr(stats, name)(h, m).value, len(both), stage, a, b)
        means = [
            r["value"]
            for r in rows
            if r["metric"] == "qwk"
            and r["slice"] == "item"
            and r["stage"] == stage
            and r["rater_a"] == a
            and r["value"] is not None
        ]
        add("qwk_item_mean", float(np.mean(means)) if means else None, len(scores), stage, a, b)
    off = scores[scores["target"].notna() & (scores["route"] == "release")]
    steps = off["item_id"].map({item: scale[2] for item, scale in bounds.items()}).astype(float)
    wrong = (off["calibrated"] - off["target"]).abs() > steps
    add(
        "beyond_tolerance",
        float(wrong.mean()) if len(off) else None,
        len(off),
        "released",
        "target",
        "judge",
        width=0.009,
    )
    add("interval_coverage", 0.912, 800, "calibrated", "target", "judge", width=0.02)
    if len(raters) > 1:
        figures = {"reliability": 0.81, "ceiling_qwk": 0.895, "alpha_ordinal": 0.83}
        for name, value in figures.items():
            add(name, value, 800, "human", "people", "people")
        for name, value in {
            "prmse": 0.79,
            "r_true": 0.93,
            "loss_association": 0.135,
            "loss_spread": 0.06,
            "loss_bias": 0.015,
        }.items():
            add(name, value, 800, "calibrated", "people", "judge")
        for name in raters:
            add("severity", {"anna": -0.11}.get(name, 0.07), 800, "human", "people", name, "rater", name)
            add("sd_ratio", 0.97, 800, "human", "people", name, "rater", name)
    for column in (column for column in scores if str(column).startswith("group:")):
        for value, members in scores.groupby(column):
            if len(members) < 30:
                continue
            add(
                "dsm",
                -0.04 - 0.12 * (value == "other"),
                len(members),
                "calibrated",
                "target",
                "judge",
                str(column)[6:],
                str(value),
            )
            add(
                "csd_difference",
                -0.09 * (value == "other"),
                len(members),
                "calibrated",
                "target",
                "judge",
                str(column)[6:],
                str(value),
            )
            add(
                "csd_of_noise",
                -0.02 * (value == "other"),
                len(members),
                "calibrated",
                "target",
                "judge",
                str(column)[6:],
                str(value),
            )
        add("csd", 0.011, len(scores), "calibrated", "target", "judge", str(column)[6:])
    for criterion, (plain, partial) in {"G1": (0.52, 0.41), "G2": (0.31, 0.28), "length": (0.44, 0.0)}.items():
        add("criterion_r", plain, 800, "calibrated", "target", "judge", "criterion", criterion)
        add("criterion_partial_r", partial, 800, "calibrated", "target", "judge", "criterion", criterion)
    return rows


def gates() -> Records:
    """Every outcome once, and one of an item."""
    common = {
        "slice": "all",
        "value_of": "all",
        "labels_needed": None,
        "source": "W",
        "if_missed": "Calibrate; else let people score.",
    }
    rows = [
        ("released_errors", "beyond_tolerance", 0.03, 0.021, 0.039, None, 0.05, "pass", None),
        ("human_qwk", "qwk", 0.86, 0.82, 0.9, 0.7, None, "pass", None),
        ("machine_qwk", "qwk", 0.72, 0.66, 0.78, 0.7, None, "undecided", 240),
        ("degradation_qwk", "degradation_qwk", -0.14, -0.18, -0.11, -0.1, None, "fail", None),
        ("mean_shift", "smd", 0.03, -0.02, 0.08, -0.15, 0.15, "pass", None),
        ("degradation_exact", "degradation_exact", -0.049, -0.08, -0.02, -0.05, None, "undecided", 1300),
        ("same_answer_again", "", None, None, None, 0.95, None, "unknown", None),
    ]
    keys = ("gate", "metric", "estimate", "low", "high", "least", "most", "outcome", "labels_needed")
    made = [common | dict(zip(keys, row, strict=True)) | {"n": 800, "clusters": 40} for row in rows]
    return [*made, made[3] | {"slice": "item", "value_of": "salt-water", "n": 100}]


def fitted(items: list[str], releases: bool) -> tuple[Records, Records, Records]:
    """Methods tried, the mapping in use, and a rule of release per item."""
    tried = [
        {
            "scope": "pooled",
            "method": method,
            "n": 400,
            "folds": 10,
            "qwk": 0.7 + at / 100,
            "qwk_within": 0.6 + at / 100,
            "rmse": 0.8 - at / 50,
            "behind": 0.03 - at / 100,
        }
        | {"behind_se": 0.01, "sd_ratio": 0.8 + at / 20, "distinct": 5, "chosen": method == "linking", "note": None}
        for at, method in enumerate(("identity", "linear", "isotonic", "linking"))
    ]
    tried.append(
        {
            "scope": "pooled",
            "method": "rulers",
            "n": 400,
            "folds": 0,
            "distinct": 0,
            "chosen": False,
            "note": "fewer labels than features",
        }
    )
    mapping = {
        "calibration_id": "c" * 64,
        "scope": "pooled",
        "method": "linking",
        "reason": "best in QWK inside folds",
        "features": ["score"],
    }
    mapping |= {"weight": 1.0}
    mapping |= {"left_out": [], "n": 400, "target": "mean", "content": '{"mapping": null, "text_only": null}'}
    rules = [
        {
            "scope": item,
            "tolerance": 1.0,
            "target": 0.05,
            "confidence": 0.9,
            "n": 50,
            "threshold": 0.2 if releases else None,
        }
        | {
            "released": 41 if releases else 0,
            "wrong": 0,
            "worth": 30.4 if releases else 0.0,
            "upper": 0.048 if releases else None,
            "levels": [0.0, 1.0, 2.0],
            "refused": None if releases else "no_promise",
            "note": None if releases else "too few labels",
            "constant": 0.3,
            "constant_released": 0.2 if releases else None,
            "exact": 0.5,
            "exact_released": 0.6 if releases else None,
            "asking_tolerance": None,
        }
        for item in items
    ]
    return tried, [mapping], rules


def checks() -> Records:
    """One warning among many that passed."""
    row = {
        "stage": "ingest",
        "table_name": "responses",
        "column": "text",
        "severity": "critical",
        "outcome": "passed",
        "rows": 1200,
        "unexpected": 0,
        "first": [],
    }
    return [
        *(row | {"rule": f"rule {at}"} for at in range(40)),
        row | {"rule": "mostly known", "severity": "warning", "outcome": "failed", "unexpected": 3},
    ]

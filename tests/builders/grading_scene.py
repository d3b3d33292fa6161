"""A made-up run of grading: tables that conform to their contracts, for the tests of the report."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from builders.rows import attempt, connected, grading, item, judgment, metric, response

from rubricflow.tasks.core.contracts.bundle import Bundle, Criterion, Protocol, Scale, Trait
from rubricflow.tasks.core.contracts.schema import Row, conform, schema
from rubricflow.tasks.core.contracts.tables import TABLES
from rubricflow.tasks.core.contracts.tables.calibration import Calibrations, Candidates, Predictions, ReleaseRules
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
        scale, name = bundles[rubric].scale, item_name(at)
        width = scale.max - scale.min
        kind, question = "short" if at % 2 else "long", "Why does melting ice stay at 0 °C?"
        tables[Items].append(item(name, question=question, type=kind, rubric_id=rubric))
        for nr in range(each):
            key = f"{name[:20]}-{nr:04}"
            truth = scale.min + width * rng.beta(1.6, 1.4)

            def level(value: float, scale: Scale = scale) -> float:
                steps = round((value - scale.min) / scale.step)
                return float(np.clip(scale.min + steps * scale.step, scale.min, scale.max))

            split = ("calibration", "test", "test")[nr % 3]
            groups = {"language": group[int(rng.random() > 0.7)]} if group else {}
            human = {rater: level(truth + 0.11 * width * rng.normal()) for rater in raters}
            own = scored and rng.random() > 0.02
            raw = truth - 0.1 * width + (0.12 + 0.02 * at) * width * rng.normal() if own else None
            final = level(raw + 0.1 * width) if raw is not None else None
            risk = float(np.clip(0.04 + 0.1 * rng.random() + 0.02 * at, 0, 1)) if own and raters else None
            released = releases and risk is not None and risk < 0.2
            reason = None if released else "unscored" if not own else "risk" if raters else "uncalibrated"
            who = {"response_id": key, "item_id": name}
            said = {"raw": raw, "risk": risk, "route": "release" if released else "review", "route_reason": reason}
            said |= {"unscored_reason": None if own else "no_reply"}
            frame.append(
                who
                | {"author_id": f"p{nr}" if author else None, "type": "long", "split": split}
                | {f"human:{rater}": score for rater, score in human.items()}
                | {f"group:{of}": value for of, value in groups.items()}
                | {"target": float(np.mean(list(human.values()))) if human else math.nan, "calibrated": final}
                | {"low": None, "high": None, "points_judge": 0.8, "points_text": -0.25, "points_item": 0.0}
                | said
            )
            by = frame[-1]["author_id"]
            tables[Responses].append(response(key, name, author_id=by, text=text, split=split, groups=groups))
            for rater, score in human.items():
                tables[Gradings].append(grading(key, rater, score, item_id=name, rater_kind="human"))
            tables[Gradings].append(grading(key, "judge", raw, item_id=name))
            tables[Predictions].append(
                who | said | {"rater_id": "judge", "split": split, "score": final, "clipped": nr % 40 == 0}
            )
            told = {"model": "example-8b", "prompt_tokens": 900, "completion_tokens": 120, "latency_s": 0.2}
            tables[Attempts].append(attempt(key, rater_id="judge", request_digest="d", seed=1, **told))
            tables[Judgments] += judged(key, text, own)
    columns = ["response_id", "item_id", "type", "split", "target", "raw", "calibrated", "risk"]
    columns += ["route", "route_reason"]
    scores = pd.DataFrame(frame, columns=None if frame else columns)
    scores = scores[scores["split"] == "test"].reset_index(drop=True)
    bounds = {row["item_id"]: bundles[row["rubric_id"]].scale.bounds for row in tables[Items]}
    if raters:
        tables[Metrics] = metrics(scores, list(raters), bounds)
        tables[Verdicts] = gates()
        tables[Candidates], tables[Calibrations], tables[ReleaseRules] = fitted([*bounds], releases)
    tables[Checks] = checks()
    tables[InputWarnings] = [{"kind": "markup", "responses": 7, "examples": ["<b>r1</b>"]}]
    refused = {"stage": "ingest", "table_name": "responses", "row_key": "x", "rule": "unique", "column": "response_id"}
    tables[Quarantine] = [refused | {"reason": "", "content": '{"mapping": null, "text_only": null}'}]
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
    end = min(40, len(text))
    quotes = (
        (text[:end], 0, end, "verified"),
        ("stays at zero until it has melted", None, None, "fabricated"),
        (text[5:30], 5, min(30, len(text)), "misattributed"),
    )
    found = []
    for criterion, unit, (quote, start, stop, status) in zip(BUNDLE.criteria, ("s1", "s1", "s2"), quotes, strict=True):
        stands = status == "verified"
        cited = {"unit_id": unit, "quote": quote, "start": start, "end": stop, "status": status}
        more = {"evidence": [cited] if own else [], "verified": stands}
        more |= {"stated": 1 if own else None, "action": "none" if stands or not own else "demoted"}
        found.append(judgment(response, criterion.id, int(stands) if own else None, "judge", **more))
        found.append(judgment(response, criterion.id, 1, "anna", rater_kind="human", stated=None))
    return found


def metrics(scores: pd.DataFrame, raters: list[str], bounds: Mapping[str, tuple[float, float, float]]) -> Records:
    """Rows of `metrics` with figures computed by tasks/core/stats and invented intervals."""
    rows: Records = []

    def add(
        name: str,
        value: float | None,
        n: int,
        stage: str,
        a: str,
        b: str,
        part: str = "all",
        of: str = "all",
        width: float = 0.05,
    ) -> None:
        more: dict[str, Any] = {"note": "undefined"}
        if value is not None:
            more = {"low": value - width, "high": value + width, "note": None}
        about = {"stage": stage, "rater_a": a, "rater_b": b, "slice": part, "value_of": of}
        rows.append(metric(name, value, n=n, clusters=40, **about, **more))

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
    calibrated, people = ("calibrated", "target", "judge"), ("human", "people")
    off = scores[scores["target"].notna() & (scores["route"] == "release")]
    steps = off["item_id"].map({item: scale[2] for item, scale in bounds.items()}).astype(float)
    wrong = (off["calibrated"] - off["target"]).abs() > steps
    share = float(wrong.mean()) if len(off) else None
    add("beyond_tolerance", share, len(off), "released", "target", "judge", width=0.009)
    add("interval_coverage", 0.912, 800, *calibrated, width=0.02)
    if len(raters) > 1:
        figures = {"reliability": 0.81, "ceiling_qwk": 0.895, "alpha_ordinal": 0.83}
        for name, value in figures.items():
            add(name, value, 800, *people, "people")
        losses = {"loss_association": 0.135, "loss_spread": 0.06, "loss_bias": 0.015}
        for name, value in ({"prmse": 0.79, "r_true": 0.93} | losses).items():
            add(name, value, 800, "calibrated", "people", "judge")
        for name in raters:
            add("severity", {"anna": -0.11}.get(name, 0.07), 800, *people, name, "rater", name)
            add("sd_ratio", 0.97, 800, *people, name, "rater", name)
    for column in (column for column in scores if str(column).startswith("group:")):
        for value, members in scores.groupby(column):
            if len(members) < 30:
                continue
            is_other, about = value == "other", (len(members), *calibrated, str(column)[6:], str(value))
            add("dsm", -0.04 - 0.12 * is_other, *about)
            add("csd_difference", -0.09 * is_other, *about)
            add("csd_of_noise", -0.02 * is_other, *about)
        add("csd", 0.011, len(scores), *calibrated, str(column)[6:])
    for criterion, (plain, partial) in {"G1": (0.52, 0.41), "G2": (0.31, 0.28), "length": (0.44, 0.0)}.items():
        add("criterion_r", plain, 800, *calibrated, "criterion", criterion)
        add("criterion_partial_r", partial, 800, *calibrated, "criterion", criterion)
    return rows


def gates() -> Records:
    """Every outcome once, and one of an item."""
    common = {"slice": "all", "value_of": "all", "labels_needed": None, "source": "W"}
    common |= {"if_missed": "Calibrate; else let people score."}
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
    pooled: dict[str, Any] = {"scope": "pooled", "n": 400}
    tried = [
        pooled
        | {"method": method, "folds": 10, "qwk": 0.7 + at / 100, "qwk_within": 0.6 + at / 100, "rmse": 0.8 - at / 50}
        | {"behind": 0.03 - at / 100, "behind_se": 0.01, "sd_ratio": 0.8 + at / 20, "distinct": 5}
        | {"chosen": method == "linking", "note": None}
        for at, method in enumerate(("identity", "linear", "isotonic", "linking"))
    ]
    failed = {"folds": 0, "distinct": 0, "chosen": False, "note": "fewer labels than features"}
    tried.append(pooled | {"method": "rulers"} | failed)
    mapping = pooled | {"calibration_id": "c" * 64, "method": "linking", "reason": "best in QWK inside folds"}
    mapping |= {"features": ["score"], "weight": 1.0, "left_out": [], "target": "mean"}
    mapping |= {"content": '{"mapping": null, "text_only": null}'}
    rule = {"tolerance": 1.0, "target": 0.05, "confidence": 0.9, "n": 50, "levels": [0.0, 1.0, 2.0], "wrong": 0}
    rule |= {"constant": 0.3, "exact": 0.5, "asking_tolerance": None}
    if releases:
        rule |= {"threshold": 0.2, "released": 41, "worth": 30.4, "upper": 0.048, "refused": None, "note": None}
        rule |= {"constant_released": 0.2, "exact_released": 0.6}
    else:
        rule |= {"threshold": None, "released": 0, "worth": 0.0, "upper": None, "refused": "no_promise"}
        rule |= {"note": "too few labels", "constant_released": None, "exact_released": None}
    return tried, [mapping], [rule | {"scope": name} for name in items]


def checks() -> Records:
    """One warning among many that passed."""
    row = {"stage": "ingest", "table_name": "responses", "column": "text", "severity": "critical"}
    row |= {"outcome": "passed", "rows": 1200, "unexpected": 0, "first": []}
    return [
        *(row | {"rule": f"rule {at}"} for at in range(40)),
        row | {"rule": "mostly known", "severity": "warning", "outcome": "failed", "unexpected": 3},
    ]

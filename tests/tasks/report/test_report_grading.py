"""The HTML report: what it says equals the tables, and what people wrote stays text."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from html.parser import HTMLParser
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from tasks.contracts.bundle import Bundle, Criterion, Protocol, Scale, Trait
from tasks.contracts.schema import Row, conform, schema
from tasks.contracts.tables.calibration import Calibrations, Candidates, Predictions, ReleaseRules
from tasks.contracts.tables.checks import Checks, Quarantine
from tasks.contracts.tables.data import Items, Responses
from tasks.contracts.tables.evaluation import Metrics, Verdicts
from tasks.contracts.tables.every import TABLES
from tasks.contracts.tables.judging import Attempts, Gradings, Judgments
from tasks.report.grading.counts import counts
from tasks.report.grading.page import page
from tasks.report.grading.verdict import headline, outcome
from tasks.report.grading.view import Tables, View, needs_texts, view
from tasks.stats import agreement as stats
from tasks.stats.estimate import Estimate

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
    tables[Quarantine] = [
        {
            "stage": "ingest",
            "table_name": "responses",
            "row_key": "x",
            "rule": "unique",
            "column": "response_id",
            "reason": "",
            "content": "{}",
        }
    ]
    arrow = {row: conform(row, rows) if rows else schema(row).empty_table() for row, rows in tables.items()}
    connection = duckdb.connect()
    for row, table in arrow.items():
        connection.register(row.table, table)
    shown = needs_texts(scores, bounds)
    judgments = arrow[Judgments].filter(pa.compute.is_in(arrow[Judgments]["response_id"], pa.array(shown, pa.string())))
    return Tables(
        scores,
        arrow[Items],
        bundles,
        arrow[Metrics],
        arrow[Verdicts],
        arrow[ReleaseRules],
        arrow[Candidates],
        arrow[Calibrations],
        arrow[Checks],
        judgments,
        dict.fromkeys(shown, text),
        counts(connection, "mean"),
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
    """Rows of `metrics` with figures computed by tasks/stats and invented intervals."""
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
        ("human_qwk", "qwk", 0.86, 0.82, 0.9, 0.7, None, "pass", None),
        ("machine_qwk", "qwk", 0.72, 0.66, 0.78, 0.7, None, "undecided", 240),
        ("degradation_qwk", "degradation_qwk", -0.14, -0.18, -0.11, -0.1, None, "fail", None),
        ("mean_shift", "smd", 0.03, -0.02, 0.08, -0.15, 0.15, "pass", None),
        ("degradation_exact", "degradation_exact", -0.049, -0.08, -0.02, -0.05, None, "undecided", 1300),
        ("same_answer_again", "", None, None, None, 0.95, None, "unknown", None),
    ]
    keys = ("gate", "metric", "estimate", "low", "high", "least", "most", "outcome", "labels_needed")
    made = [common | dict(zip(keys, row, strict=True)) | {"n": 800, "clusters": 40} for row in rows]
    return [*made, made[2] | {"slice": "item", "value_of": "salt-water", "n": 100}]


def fitted(items: list[str], releases: bool) -> tuple[Records, Records, Records]:
    """Methods tried, the mapping in use, and a rule of release per item."""
    tried = [
        {
            "scope": "pooled",
            "method": method,
            "n": 400,
            "folds": 10,
            "qwk": 0.7 + at / 100,
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
    mapping |= {"left_out": [], "n": 400, "target": "mean", "content": "{}"}
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
            "upper": 0.048 if releases else None,
            "levels": [0.0, 1.0, 2.0],
            "note": None if releases else "too few labels",
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


ANYWHERE = (
    "\u202e<script>alert(1)</script><img src=x onerror=alert(2)>\"'>&amp;{{ 7*7 }}{% raw %}</style>\x00\x1b[\ud800"
)


class Seen(HTMLParser):
    """What a browser would make of a page: its elements with their attributes, and its text."""

    def __init__(self, content: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.feed(content)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    @property
    def text(self) -> str:
        return re.sub(r"\s+", " ", "".join(self.texts))


def rendered(tables: Tables, **release: Any) -> str:
    return page(view(tables, STUDY | {"release": STUDY["release"] | release}, MANIFEST))


@pytest.fixture(scope="module")
def run() -> Tables:
    return made_run()


@pytest.fixture(scope="module")
def shown(run: Tables) -> View:
    return view(run, STUDY, MANIFEST)


@pytest.fixture(scope="module")
def seen(shown: View) -> Seen:
    return Seen(page(shown))


def test_the_page_runs_and_fetches_nothing(seen: Seen) -> None:
    tags = {tag for tag, _ in seen.elements}
    assert not tags & {"script", "link", "img", "iframe", "object", "embed", "form", "base", "audio", "video"}
    policy = [attrs["content"] for tag, attrs in seen.elements if attrs.get("http-equiv") == "Content-Security-Policy"]
    assert policy == ["default-src 'none'; style-src 'unsafe-inline'"]
    links = [attrs["href"] for tag, attrs in seen.elements if tag == "a"]
    assert all(link is not None and (link[0] == "#" or link == "data_docs/index.html") for link in links)
    assert not [name for _, attrs in seen.elements for name in attrs if name.startswith("on") or name == "src"]


def test_every_link_inside_the_page_has_its_target(seen: Seen) -> None:
    ids = [attrs["id"] for _, attrs in seen.elements if "id" in attrs]
    assert len(ids) == len(set(ids))
    assert {attrs["href"] for tag, attrs in seen.elements if tag == "a" and str(attrs["href"])[0] == "#"} <= {
        f"#{one}" for one in ids
    }


def test_sections_come_in_the_order_of_an_evaluation_report(seen: Seen) -> None:
    ids = [attrs["id"] for tag, attrs in seen.elements if tag == "section"]
    first = "verdict data people agreement distribution true-score errors groups"
    assert ids == f"{first} raters calibration routing evidence stability cost checks limits".split()


def test_the_headline_says_what_the_tables_say(run: Tables, shown: View, seen: Seen) -> None:
    rows = run.counts["responses"].to_pandas()
    released = int(rows.loc[rows["route"] == "release", "n"].sum())
    (wrong,) = [row for row in run.metrics.to_pylist() if row["metric"] == "beyond_tolerance"]
    assert shown.head.title.startswith(f"{released:,} of {int(rows['n'].sum()):,} scores may be released")
    assert f"{100 * wrong['value']:.1f}% of such scores" in shown.head.title
    assert shown.head.title in seen.text
    assert (shown.outcome.released, shown.outcome.review + shown.outcome.unscored) == (
        released,
        int(rows["n"].sum()) - released,
    )


@pytest.mark.parametrize(
    ("value", "high", "said"),
    [
        (0.02, 0.04, "within the 5% promised."),
        (0.04, 0.08, "too few to be sure"),
        (0.07, 0.09, "above the 5% promised."),
    ],
)
def test_the_headline_says_whether_the_promise_is_kept(value: float, high: float, said: str) -> None:
    found = outcome([{"scored": True, "route": "release", "n": 10}], "")
    assert said in headline(found, Estimate(value, 0.01, high, n=100), "are off", 0.05, 100)


def test_key_figures_are_those_of_the_released_scores(run: Tables, shown: View) -> None:
    rows = {(row["metric"], row["stage"]): row["value"] for row in run.metrics.to_pylist() if row["slice"] == "all"}
    found = {key.name: (key.machine.value, key.people.value) for key in shown.head.keys}
    assert found["Agreement (QWK)"] == (rows["qwk", "released"], rows["qwk", "human"])
    assert found["Mean absolute error, points"] == (rows["mae", "released"], rows["mae", "human"])


def test_every_response_of_the_funnel_is_accounted_for(run: Tables, shown: View) -> None:
    read, scored, released = (step.count for step in shown.data.every)
    assert read - scored == sum(reason.count for reason in shown.outcome.unscored_reasons)
    assert scored - released == sum(reason.count for reason in shown.outcome.review_reasons)
    labelled, held_out, compared, _ = (step.count for step in shown.data.labelled)
    both = run.scores[run.scores["target"].notna() & run.scores["calibrated"].notna()]
    assert (held_out, compared) == (int(run.scores["target"].notna().sum()), len(both))
    assert labelled == read


def test_gates_stand_with_outcome_in_words_and_labels_to_decide(run: Tables, seen: Seen) -> None:
    for said in ("missed", "undecided", "not known", "met", "at least 0.70", "at least −5%", "+1,300"):
        assert said in seen.text
    shapes = [attrs for tag, attrs in seen.elements if tag == "svg" and attrs.get("class") == "shape"]
    assert len(shapes) == run.verdicts.num_rows


def test_items_are_ordered_by_their_gap_to_people(run: Tables, shown: View) -> None:
    rows = {
        (row["value_of"], row["stage"]): row["value"]
        for row in run.metrics.to_pylist()
        if (row["metric"], row["slice"]) == ("qwk", "item")
    }
    gaps = sorted((rows[item, "human"] - rows[item, "calibrated"] for item in NAMES), reverse=True)
    found = [(row.people.value or 0) - (row.machine.value or 0) for row in shown.agreement.items.rows]
    assert found == pytest.approx(gaps)
    assert shown.agreement.items.first[0].name in shown.agreement.title


def test_bars_are_the_shares_of_each_persons_marks(run: Tables, shown: View) -> None:
    both = run.scores[run.scores["calibrated"].notna()]
    marks = pd.concat([both["human:anna"], both["human:ben"]])
    (panel,) = shown.distribution.panels
    assert panel.people == pytest.approx([float((marks == level).mean()) for level in range(5)])
    assert panel.machine == pytest.approx([float((both["calibrated"] == level).mean()) for level in range(5)])


def test_the_confusion_map_counts_every_compared_response(run: Tables, shown: View) -> None:
    both = run.scores[run.scores["target"].notna() & run.scores["calibrated"].notna()]
    rounded = np.floor(both["target"] + 0.5).clip(0, 4)
    want = pd.crosstab(rounded, both["calibrated"]).reindex(index=range(5), columns=range(5), fill_value=0)
    (found,) = shown.errors.confusions
    assert np.array_equal(found.counts, want.to_numpy())


def test_the_curve_meets_all_responses_at_their_share_of_wrong_scores(run: Tables, shown: View) -> None:
    both = run.scores[run.scores["target"].notna() & run.scores["calibrated"].notna()]
    off = (both["calibrated"] - both["target"]).abs() > 1
    risk = shown.routing.curve
    assert risk is not None
    assert risk.machine[-1] == pytest.approx((len(both) / len(run.scores), off.mean()))
    out = both["route"] == "release"
    assert risk.chosen == pytest.approx((out.sum() / len(run.scores), off[out].mean()))
    assert all(best <= own[1] + 1e-9 for own, (_, best) in zip(risk.machine, risk.oracle, strict=True))


def test_the_worst_cases_are_the_largest_gaps_two_of_an_item(run: Tables, shown: View) -> None:
    gaps = run.scores.set_index("response_id").eval("abs(calibrated - target)")
    found = needs_texts(run.scores, dict.fromkeys(NAMES, SCALE.bounds))
    assert len(found) == len(shown.errors.cases) == 6
    assert gaps[found[0]] == gaps.max()
    assert list(gaps[found]) == sorted(gaps[found], reverse=True)
    assert pd.Series(found).str.rsplit("-", n=1).str[0].value_counts().max() <= 2


def test_quotes_that_fail_are_struck_through_with_the_reason(shown: View, seen: Seen) -> None:
    finding = {quote.finding: quote.stands for mark in shown.errors.cases[0].marks for quote in mark.quotes}
    assert finding == {
        "stands in the text": True,
        "not in the text": False,
        "not where it was cited, but elsewhere in the text": False,
    }
    struck = [attrs for _, attrs in seen.elements if attrs.get("class") == "quote bad"]
    assert len(struck) == 2 * len(shown.errors.cases)


def test_groups_that_are_too_small_are_not_shown() -> None:
    shown = view(made_run(items=1, each=120), STUDY, MANIFEST)
    (variable,) = shown.groups.variables
    assert {group.state for group in variable.groups.rows} == {"undecided", "hidden"}
    assert all((group.estimate.n < 30) == (group.estimate.value is None) for group in variable.groups.rows)


@pytest.mark.parametrize("where", ["text", "item", "rater", "group"])
def test_what_people_wrote_is_text_wherever_it_stands(where: str) -> None:
    plain: dict[str, Any] = {"items": 2, "each": 150}
    hostile = (
        plain
        | {
            "text": {"text": ANYWHERE.encode("utf-8", "replace").decode() + ANSWER},
            "item": {"item_name": lambda at: f"{ANYWHERE[:-1]}{at}"},
            "rater": {"raters": ("anna", ANYWHERE[:-1])},
            "group": {"group": ("english", ANYWHERE[:-1])},
        }[where]
    )
    calm, found = Seen(rendered(made_run(**plain))), Seen(rendered(made_run(**hostile)))
    # Marks differ where the text does; every other element and attribute must be one of the page's own.
    allowed = {(tag, *sorted(attrs)) for tag, attrs in calm.elements} | {("span", "class"), ("b",)}
    assert {(tag, *sorted(attrs)) for tag, attrs in found.elements} <= allowed
    assert "<script>alert(1)</script>" in found.text
    assert "⟨U+202E⟩" in found.text
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f\u202a-\u202e\ud800-\udfff]", "".join(found.texts))


def test_a_page_can_be_written_whatever_a_student_sent() -> None:
    assert rendered(made_run(items=1, each=60, text="\u202e \x00 " + ANSWER)).encode("utf-8")


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ({"raters": ()}, "no held-out human score tells how well"),
        ({"raters": ("anna",)}, "how far people agree is not known"),
        ({"scored": False}, "None of the 90 responses has a score"),
        ({"releases": False}, "may be released without a person looking first"),
        ({"author": False, "group": ()}, "the study names no group"),
        ({"items": 0, "raters": ()}, "There was nothing to score"),
        ({"scales": (Scale(min=0, max=3), Scale(min=0, max=60, step=0.5))}, "step of the scale"),
    ],
    ids=[
        "nobody scored",
        "one person",
        "nothing scored",
        "nothing released",
        "no authors or groups",
        "empty",
        "two scales",
    ],
)
def test_what_is_missing_is_said(how: dict[str, Any], said: str) -> None:
    found = Seen(rendered(made_run(**({"items": 1 + ("scales" in how), "each": 90} | how))))
    assert said in found.text
    assert "nan" not in found.text.lower().replace("anna", "")
    assert " None" not in found.text.replace("None of", "").replace("None.", "")


def test_a_run_without_metrics_shows_no_number_in_their_place(run: Tables) -> None:
    bare = view(replace(run, metrics=run.metrics.slice(0, 0), verdicts=run.verdicts.slice(0, 0)), STUDY, MANIFEST)
    assert all(key.machine.value is None and key.machine.note for key in bare.head.keys)
    assert bare.true_score.missing
    assert "not known" in bare.agreement.title


def test_long_lists_are_folded_and_the_page_stays_small() -> None:
    found = view(made_run(items=80, each=30, raters=("anna", "ben", "carla", "dora")), STUDY, MANIFEST)
    items = found.agreement.items
    assert (len(items.first), len(items.rows) + items.left_out) == (12, 80)
    assert len(page(found).encode()) < 400_000


def test_a_long_answer_makes_no_long_page() -> None:
    short, long = (
        rendered(made_run(items=1, each=90)),
        rendered(made_run(items=1, each=90, text=ANSWER + "x\n" * 500_000)),
    )
    assert len(long) < len(short) + 20_000
    assert "characters not shown" in long


def test_charts_have_finite_coordinates_inside_their_box(seen: Seen) -> None:
    marks = [
        (tag, attrs) for tag, attrs in seen.elements if tag in ("line", "circle", "rect", "text") and "%" in str(attrs)
    ]
    assert len(marks) > 100
    for tag, attrs in marks:
        for name in ("x", "x1", "x2", "cx"):
            if name in attrs and attrs.get("text-anchor") is None:
                assert 0 <= float(str(attrs[name]).removesuffix("%")) <= 100, (tag, attrs)
        assert all(
            math.isfinite(float(str(attrs[name]))) for name in ("y", "y1", "y2", "cy", "r", "height") if name in attrs
        )


def test_charts_say_in_words_what_they_draw(seen: Seen) -> None:
    charts = [attrs for tag, attrs in seen.elements if tag == "svg"]
    assert all(attrs.get("aria-hidden") == "true" or len(attrs.get("aria-label") or "") > 40 for attrs in charts)
    assert sum("aria-label" in attrs for attrs in charts) == 3


def test_a_view_does_not_depend_on_the_order_of_rows(run: Tables, shown: View) -> None:
    turned = replace(run, metrics=run.metrics.take(list(range(run.metrics.num_rows))[::-1]))
    assert view(turned, STUDY, MANIFEST).agreement == shown.agreement

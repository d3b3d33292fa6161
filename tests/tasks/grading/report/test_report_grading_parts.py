"""Parts of the report against rows made by hand: why nothing goes out, decisions, raters, money, the score's name."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from builders.rows import attempt, connected
from hypothesis import given
from hypothesis import strategies as st

from rubricflow.tasks.core.contracts.schema import conform
from rubricflow.tasks.core.contracts.settings.study import Release
from rubricflow.tasks.core.contracts.tables import TABLES
from rubricflow.tasks.core.contracts.tables.calibration import ReleaseRules
from rubricflow.tasks.core.contracts.tables.evaluation import RATER_FLAGS, RaterEffects
from rubricflow.tasks.core.contracts.tables.judging import Attempts, Prices
from rubricflow.tasks.core.display.charts import Axis
from rubricflow.tasks.core.display.page import Figure, Fold, Grid, Named, Part, Section, Text
from rubricflow.tasks.core.display.say import plain
from rubricflow.tasks.core.display.verdict import needs_of
from rubricflow.tasks.core.llm.prices import Price, Rates, TokenCounts, cost_of, price_rows
from rubricflow.tasks.core.stats.promise import UNLIKELY, MarkedAnswers, exact_interval
from rubricflow.tasks.core.stats.verdict import Estimate
from rubricflow.tasks.grading.calibrate.release import ReleaseCandidates, _promise
from rubricflow.tasks.grading.report.agreement import MACHINE, WORDS, RankedRater, Ranking, made_of, raters_section
from rubricflow.tasks.grading.report.charts import LEAST_SPAN, Dot, ForestRow, forest_axis, forest_row
from rubricflow.tasks.grading.report.evidence import Group, _groups_title, evidence_section
from rubricflow.tasks.grading.report.figures import QUERIES, Figures
from rubricflow.tasks.grading.report.gates import nothing_released
from rubricflow.tasks.grading.report.made import cost_facts

# Why nothing goes out.

RISKS = st.lists(st.tuples(st.floats(0, 1), st.booleans()), max_size=120)


def rules_of(drawn: list[list[tuple[float, bool]]], release: Release) -> list[dict[str, Any]]:
    rows = []
    for number, labels in enumerate(drawn):
        risk, wrong = np.array([r for r, _ in labels]), np.array([w for _, w in labels], dtype=np.bool_)
        who = np.array([f"p{n}" for n in range(len(labels))], dtype=np.str_)
        scope = "all" if len(drawn) == 1 else f"q{number}"
        half = np.arange(len(labels)) % 2 == 0
        rated = ReleaseCandidates(risk, wrong, who, risk, half, np.full(len(risk), 0.5), half)
        rows.append(_promise(scope, rated, [], release, UNLIKELY, None, len(risk)))
    return conform(ReleaseRules, rows).to_pylist()


@given(st.lists(RISKS, min_size=1, max_size=4), st.sampled_from([0.05, 0.1, 0.2]), st.integers(1, 500))
def test_where_nothing_goes_out_no_sentence_promises(drawn: Any, risk: float, responses: int) -> None:
    rules = rules_of(drawn, Release(risk=risk))
    possible = [row | {"n": 3} for row in rules if row["possible_target"] is not None]
    said = nothing_released(rules, possible, responses)
    assert said.endswith(".")
    assert not any(words in said for words in ("Promise:", "None", "nan"))
    assert all(row["possible_target"] > risk for row in possible)
    assert all((row["threshold"] is None) == (row["note"] is not None) for row in rules)


def test_too_few_marked_answers_are_counted() -> None:
    (few,) = rules_of([[(0.1, False)] * 12], Release())
    assert nothing_released([few], [], 9) == "Too few marked answers to promise anything: 45 needed, 12 here."
    assert few["possible_target"] == 0.18  # 0.82 to the power of 12 is below a tenth, 0.83 is not
    rules = rules_of([[(0.1, False)] * 12, [(0.1, True)] * 60], Release())
    assert nothing_released(rules, [], 9) == (
        "Of 2 questions, none can be promised: 1 have too few marked answers (45 needed for each); "
        "1 do not show that even their surest scores keep it."
    )
    none = "There are no marked answers that a promise could rest on."
    assert nothing_released([], [], 9) == none
    assert nothing_released([few | {"refused": "asks_nothing", "n": 0}], [], 9) == none
    needs = needs_of(Release(by="item"), [MarkedAnswers(f"q{n}", 90, 60, 50, 900) for n in range(2)])
    assert "1 have too few" not in nothing_released(rules, [], 180, needs)


def test_how_near_it_was_and_how_small_the_class_is_are_said() -> None:
    rule = {"scope": "q1", "n": 60, "target": 0.2, "confidence": 0.9, "threshold": None, "note": "because"}
    near = [{"scope": "q1", "possible_target": 0.24, "n": 80}]
    needs = needs_of(Release(by="set"), [MarkedAnswers("q1", 40, 40, 40, 4000)])
    assert plain(nothing_released([rule | {"refused": "no_promise"}], near, 400)) == (
        "Because. If up to 24% of them were allowed to be wrong, about 80 of 400 answers to question q1 could go out; "
        "this study allows 20%."
    )
    said = nothing_released([rule | {"refused": "no_promise"}], [], 40, needs)
    assert "error: 45 needed, 40 here. This class is too small for any promise" in said
    few = "too few marked answers to promise anything: 45 needed, 40 here, of which 2 go to a person in any case"
    assert nothing_released([rule | {"refused": "no_promise", "note": few}], [], 40, needs).count("45 needed") == 1
    # Where the promise asks nothing, no number of marks would do.
    assert nothing_released([rule | {"refused": "asks_nothing"}], [], 40, needs) == "Because."
    assert nothing_released([rule | {"refused": "question_means"}] * 2, [], 100) == "Because."


# Decisions.


def decided(metric: str, value: float, part: str = "all", of: str = "all") -> dict[str, Any]:
    named = {"rater_a": "people", "rater_b": "judge", "stage": "raw", "slice": part, "value_of": of}
    common = {"low": None, "high": None, "n": 50, "resampled": "", "undefined_draws": 0, "clusters": None, "note": None}
    return {"metric": f"decision_{metric}", "value": value} | named | common


NO_QUOTES = dict.fromkeys(("quotes", "standing", "credited", "placed"), 0)


TO_READ = [{"look": "credit", "people": "do not", "text": "names the <cause>", "passage": "rain fell"}]


def folds(rows: list[dict[str, Any]], supports: list[dict[str, Any]] | None = None) -> dict[str, list[Part]]:
    found = evidence_section(NO_QUOTES, [], [], supports or [], TO_READ if supports else [], Figures(rows))
    return {part.summary: [*part.parts] for part in found.parts if isinstance(part, Fold)}


def test_false_credit_that_a_second_look_found_stands_with_its_share_and_interval() -> None:
    look = {"looks": 900, "doubted": 90, "known": 900, "asked": 0}
    marked = {"marked": 200, "wrong": 40, "doubted_marked": 25, "found": 20}
    ((_, parts), (_, (read,))) = folds([], [{"kind": "credit"} | look | marked]).items()
    assert read.rows == [("credit", "do not", "names the <cause>", "rain fell")]
    (table,) = (part for part in parts if isinstance(part, Grid))
    shares = [line[2].text for line in table.rows[1:] if isinstance(line[2], Named)]
    assert [share.partition(" ")[0] for share in shares] == ["20%", "80%", "50%"]
    low, high = exact_interval(20, 40)
    assert shares[-1] == f"50% [{low:.0%}, {high:.0%}]"
    ((_, ranked), _) = folds([], [{"kind": "credit"} | look | marked | {"known": 0}]).items()
    assert ranked[0] != parts[0]


def test_how_sure_the_judge_is_stands_beside_how_often_it_is_right() -> None:
    rows = [decided("ece", 0.15), decided("confidence", 0.75), decided("accuracy", 0.6)]
    assert folds(rows) == folds([]) == {}
    bins = [("01", 0.6, 0.5), ("02", 0.9, 0.7)]
    for of, sure, right in bins:
        rows += [decided("confidence", sure, "confidence", of), decided("accuracy", right, "confidence", of)]
    ((title, parts),) = folds(rows).items()
    assert title == "The judge is 75% sure of its decisions and right in 60%"
    table = next(part for part in parts if isinstance(part, Grid))
    shown = [(line[0], line[1].estimate.value) for line in table.rows if isinstance(line[1], Figure)]
    assert shown == [("60%", 0.5), ("90%", 0.7)]


# Raters.


def effect(name: str, *flags: str, **more: Any) -> dict[str, Any]:
    row = {"rater_id": name, "trait": "", "slice": "all", "value_of": "all", "flags": list(flags)}
    figures = {"leniency": -0.37, "low": -0.41, "high": -0.33, "infit": 1.31, "infit_low": 1.23, "infit_high": 1.4}
    figures |= {"discrimination": 0.5, "discrimination_low": 0.4, "discrimination_high": 0.6}
    figures |= {"halo": 0.3, "halo_low": 0.2, "halo_high": 0.4}
    return row | figures | {"severity": 0.4, "severity_se": 0.02, "ratings": 80, "shared": 80} | more


def raters(*effects: dict[str, Any]) -> Section:
    return raters_section(Figures([]), [], conform(RaterEffects, effects).to_pylist())


def sentences(found: Section) -> Iterator[str]:
    return (plain(part.text) for part in found.parts if isinstance(part, Text) and not part.style)


def grid(found: Section) -> Grid:
    return next(part for part in found.parts if isinstance(part, Grid))


def test_who_needs_retraining_is_said_with_the_figure() -> None:
    found = raters(effect("anna"), effect("ben", "strict"), effect("ben", "erratic", trait="style"))
    assert plain(found.title) == "ben needs retraining"
    (sentence,) = sentences(found)
    assert "gives less than an average rater; " in sentence
    assert sentence.endswith("on style.")
    assert grid(found).marks == ["flag", ""]
    assert [row[3] for row in grid(found).rows] == [Figure(Estimate(1.31, 1.23, 1.4, n=80))] * 2
    calm = raters(effect("anna"), effect("ben"))
    assert (calm.title, [*sentences(calm)]) == ("No rater needs retraining", [])


def test_drift_names_its_period_and_every_flag_has_its_words() -> None:
    period = effect("ben", slice="period", value_of="week 2", leniency=-0.8, low=-1.0, high=-0.6)
    other = effect("ben", slice="period", value_of="week 1", leniency=0.3, low=0.1, high=0.5)
    found = raters(effect("ben", "drift"), other, period)
    assert "week 2" in str(grid(found).rows[0][5])
    for flag in RATER_FLAGS:
        assert RATER_FLAGS[flag] in next(sentences(raters(effect("ben", flag), period)))


def test_an_unknown_leniency_is_no_number() -> None:
    (row,) = grid(raters(effect("anna", leniency=None, low=None, high=None, note="shares no response"))).rows
    assert isinstance(row[2], Figure)
    assert (row[2].estimate.value, row[2].estimate.note) == (None, "shares no response")


# What the score is made of.

BLOCKS = {"judge": "judge", "characters": "words", "length": "words", "item": "question"}


@given(st.lists(st.sets(st.sampled_from([*BLOCKS]), min_size=1), min_size=1, max_size=4))
def test_the_calibrated_score_is_called_by_all_that_any_mapping_takes(parts: list[set[str]]) -> None:
    rows = [{"content": json.dumps({"mapping": {"blocks": [{"name": name} for name in part]}})} for part in parts]
    assert {*made_of(rows).split(" + ")} == {"judge"} | {BLOCKS[block] for part in parts for block in part}
    offsets = [{"content": json.dumps({"mapping": {"offsets": {"p": 1.0}}})}]
    assert (made_of([]), made_of(offsets)) == ("judge", "judge + question")


# Calls and money.

CALL = {"role": "grade", "model": "m", "stored": False, "failed": False, "violated": False, "latency_s": 1.0}
CALL |= {"calls": 2, "prompt_tokens": 2_000, "completion_tokens": 80, "cached_tokens": None, "cacheable_tokens": None}
KNOWN = [{"model": "m", "usd": 6.0, "calls": 100, "unknown": 0}]
COSTS = {"costs": {"prices": {"m": "$2 a million"}, "minutes": 3.0, "currency": "EUR", "usd": 1.2}}
RATERS = tuple(RankedRater(name, "", Estimate(value)) for name, value in ((MACHINE, 0.75), (WORDS, 0.55)))


def told(
    *attempts: dict[str, Any],
    costs: list[dict[str, Any]] = KNOWN,
    released: int = 50,
    manifest: dict[str, Any] = COSTS,
    raters: tuple[RankedRater, ...] = RATERS,
) -> dict[str, Any]:
    return dict(cost_facts(attempts, costs, 100, released, 7, Ranking(raters, "QWK", ""), manifest))


def test_calls_are_told_by_role_with_what_the_engine_held() -> None:
    mending = CALL | {"role": "semantic_repair", "calls": 1}
    assert told(CALL, mending)["Calls"] == "3: 2 to grade, 1 to repair the evidence"
    assert told(CALL)["Held by the engine's prefix cache"] == "not known: the backend counts none"
    held = CALL | {"cached_tokens": 500, "cacheable_tokens": 2_000}
    assert told(held)["Held by the engine's prefix cache"] == "25% of the prompts' tokens"
    assert told(CALL)["Tokens"] == "2,000 in, 80 out"
    unknown = told(CALL | {"prompt_tokens": None, "completion_tokens": None})
    assert unknown["Tokens"] == "not known: the backend counts none"
    assert told()["People's work ahead"] == "7 cases"


def test_costs_are_by_response_hour_and_point_in_the_currency_of_the_study() -> None:
    facts = told(CALL)
    assert facts["Cost"] == "5.00 EUR ($2 a million)"
    assert facts["A response"] == "0.05 EUR"
    assert facts["A released response"] == "0.10 EUR"
    assert facts["An hour of a person's time saved"] == "2.00 EUR, at 3 minutes a response"
    assert facts["A point of agreement more than the baseline"] == "0.25 EUR for each of 20.0 points of QWK"


def test_what_is_not_known_of_costs_is_said() -> None:
    nothing = told(CALL, costs=[KNOWN[0] | {"usd": None, "unknown": 100}])
    assert "not known" in nothing["Cost"]
    assert "A response" not in nothing
    part = told(CALL, costs=[KNOWN[0] | {"unknown": 1}], released=0, manifest={}, raters=RATERS[1:])
    assert "at least; 1 call of unknown cost" in part["Cost"]
    assert part["A released response"] == "none was released"
    assert "money.minutes" in part["An hour of a person's time saved"]
    assert part["A point of agreement more than the baseline"] == "not known"
    worse = (RATERS[0]._replace(agreement=Estimate(0.5)), RATERS[1])
    assert told(CALL, raters=worse)["A point of agreement more than the baseline"] == "none was gained"


def test_the_view_of_costs_adds_up_as_the_prices_say() -> None:
    """Tiers, batches, caches, shared and stored replies, errors, and calls of unknown cost, against plain Python."""
    chance = random.Random(5)
    tiers = (Rates(2, 0.2, 2.5, 10), Rates(4, 0.4, 5, 15, above=1_000))
    price = Price(tiers, tuple(Rates(*(rate / 2 for rate in rates[:4]), rates.above) for rates in tiers), "it", None)
    rows, expected, unknown = [], 0.0, 0
    for n in range(300):
        prompt = chance.choice([None, 0, 999, 1_000, 1_001, 5_000])
        cached, written = ((prompt or 0) // chance.randint(3, 9) for _ in range(2))
        provider, model = chance.choice([None, "openai", "plain"]), chance.choice(["m", "m", "unpriced"])
        error = chance.choice([None, None, "too_long: no", "deadline: late"])
        counts = {"prompt_tokens": prompt, "completion_tokens": None if prompt is None else 70}
        counts |= {"cached_tokens": cached, "written_tokens": written, "provider": provider, "model": model}
        rows += [attempt(f"r{n}", error=error, **counts), attempt(f"again {n}", request_digest=f"d-r{n}", stored=True)]
        if error == "too_long: no":
            continue
        used = None if prompt is None else TokenCounts(prompt, 70, cached, written)
        cost = cost_of(used, price, provider == "openai") if model == "m" and provider != "plain" else None
        expected, unknown = expected + (cost or 0.0), unknown + (cost is None)
    tables = {row: conform(row, []) for row in TABLES}
    tables |= {Attempts: conform(Attempts, rows), Prices: conform(Prices, price_rows("m", price))}
    with connected(tables) as connection:
        found = connection.sql(QUERIES["costs"]).to_arrow_table()
    assert sum(filter(None, found["usd"].to_pylist())) == pytest.approx(expected)
    assert sum(found["unknown"].to_pylist()) == unknown
    assert sum(found["calls"].to_pylist()) == 600


# The heading over groups of authors names the one that differs most.


def test_the_heading_names_of_the_groups_that_differ_the_one_that_does_most() -> None:
    inside, low, high = (
        Group(name, Estimate(value), said)
        for name, value, said in (("a", 0.9, "inside"), ("b", -0.4, "outside"), ("c", 0.2, "outside"))
    )
    assert _groups_title([[inside, high]]) == "One group differs: c, scored 0.20 SD too high"
    assert _groups_title([[inside], [high, low]]) == "2 groups differ, most b, scored 0.40 SD too low"


# Plots put values where their axis says: places and sides, read back from the SVG.


UNIT = Axis(0.0, 1.0, (0.0, 0.5, 1.0), 2, 98)


def marks(svg: str, tag: str, shape: str, *names: str) -> list[tuple[float, ...]]:
    """Numbers of these attributes of every mark of a class."""
    rows = []
    for attributes in re.findall(rf"<{tag} ([^>]*)", svg):
        told = dict(re.findall(r'([\w-]+)="(.*?)"', attributes))
        if told.get("class") == shape:
            rows.append(tuple(float(told[name].removesuffix("%")) for name in names))
    return rows


def axis_of(*estimates: Estimate, band: float | None = None) -> Axis:
    return forest_axis([ForestRow("", 0, (Dot(estimate, "m"),), ()) for estimate in estimates], band)


def test_a_forest_axis_does_not_blow_up_a_difference_of_nothing() -> None:
    near = axis_of(Estimate(0.80), Estimate(0.81))
    assert near.high - near.low >= LEAST_SPAN
    wide = axis_of(Estimate(0.5, 0.1, 0.9))
    assert (wide.low, wide.high) == (0, 1)
    assert axis_of(Estimate(0.0), band=0.1).low <= -0.1


def test_a_row_has_the_machine_above_people_each_with_its_interval() -> None:
    dots = [Dot(Estimate(0.5, 0.25, 0.75), "m"), Dot(Estimate(0.6, 0.5, 1.0), "h")]
    svg = str(forest_row(dots, UNIT))
    ((machine, upper),), ((people, lower),) = (marks(svg, "circle", shape, "cx", "cy") for shape in ("mf", "hf"))
    assert (machine, people) == pytest.approx((50, 59.6))
    assert upper < lower
    assert marks(svg, "line", "ml", "x1", "y1", "x2", "y2") == [(26, upper, 74, upper)]
    assert marks(svg, "line", "hl", "x1", "y1", "x2", "y2") == [(50, lower, 98, lower)]


def test_an_undefined_figure_has_no_mark() -> None:
    assert "circle" not in str(forest_row([Dot(Estimate(None), "m")], UNIT))

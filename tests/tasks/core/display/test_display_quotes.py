"""What quotes are worth: the counts against plain Python, and when the order of quotes is a warning."""

from __future__ import annotations

from typing import Any

import pytest
from builders.bundles import bundle, criterion
from builders.rows import connected, item, judgment, locked, response
from hypothesis import given, settings
from hypothesis import strategies as st

from rubricflow.tasks.core.contracts.schema import Row, conform
from rubricflow.tasks.core.contracts.tables import TABLES
from rubricflow.tasks.core.contracts.tables.data import Items, Responses, Units
from rubricflow.tasks.core.contracts.tables.judging import Judgments
from rubricflow.tasks.core.contracts.tables.rubrics import Bundles
from rubricflow.tasks.core.display.quotes import WORTH_OF_QUOTES, WorthOfQuotes

CRITERIA, SENTENCES = ("A", "B", "C"), 4
QUOTES = st.tuples(st.integers(0, SENTENCES - 1), st.sampled_from(["verified", "fabricated"]))
DECISIONS = st.tuples(st.sampled_from([0, 1]), st.one_of(st.none(), QUOTES), st.sampled_from([None, 0, 1]))
ANSWERS = st.lists(st.tuples(*[DECISIONS] * len(CRITERIA)), min_size=1, max_size=4)


@settings(max_examples=12)
@given(ANSWERS)
def test_counts_are_those_of_plain_python(answers: list[Any]) -> None:
    rows: dict[type[Row], list[dict[str, Any]]] = {Items: [item("q", rubric_id="r")], Judgments: [], Responses: []}
    rows[Bundles] = [locked(bundle(*(criterion(name) for name in CRITERIA)), "r")]
    rows[Units] = []
    expected = dict.fromkeys(("quotes", "standing", "credited", "credited_by_people", "placed", "in_order"), 0)
    expected |= {"not_credited": 0, "not_credited_by_people": 0}
    by_chance = 0.0
    for number, decisions in enumerate(answers):
        name = f"a{number}"
        rows[Responses].append(response(name, item_id="q"))
        spans = [("sentence", place) for place in range(SENTENCES)] + [("paragraph", 0)]
        rows[Units] += [
            {"response_id": name, "unit_id": f"{kind}{place}", "kind": kind, "start": 10 * place, "end": 10 * place + 9}
            for kind, place in spans
        ]
        pairs = []
        for place, (criterion_id, (level, quote, human)) in enumerate(zip(CRITERIA, decisions, strict=True)):
            stands = quote is not None and quote[1] == "verified"
            evidence = []
            if quote is not None:
                start = 10 * quote[0] + 3 if stands else None
                evidence = [
                    {"unit_id": "s", "quote": "x", "start": start, "end": start and start + 1, "status": quote[1]}
                ]
            rows[Judgments].append(judgment(name, criterion_id, level, evidence=evidence, verified=stands))
            expected["quotes"] += quote is not None
            expected["standing"] += stands
            if stands and quote is not None:
                pairs.append((place, quote[0]))
            if human is not None:
                marked = {"rater_id": "anna", "rater_kind": "human", "verified": None}
                rows[Judgments].append(judgment(name, criterion_id, human, **marked))
                kind = "credited" if level and stands else "not_credited" if not level else ""
                if kind:
                    expected[kind] += 1
                    expected[f"{kind}_by_people"] += human > 0
        expected["placed"] += len(pairs)
        expected["in_order"] += sum(place == sentence for place, sentence in pairs)
        by_chance += sum(place == sentence for place, _ in pairs for _, sentence in pairs) / max(1, len(pairs))
    tables = {table: conform(table, rows.get(table, [])) for table in TABLES}
    with connected(tables) as connection:
        (found,) = connection.sql(WORTH_OF_QUOTES).to_arrow_table().to_pylist()
    assert found.pop("by_chance") == pytest.approx(by_chance)
    assert found == expected


COUNTS = {"quotes": 1028, "standing": 1019, "credited": 800, "credited_by_people": 605, "placed": 1028}
COUNTS |= {"in_order": 813, "by_chance": 318.0, "not_credited": 1150, "not_credited_by_people": 598}


def test_that_quotes_stand_is_said_with_what_they_are_worth() -> None:
    assert WorthOfQuotes(COUNTS).sentence == (
        "99% of quotes are in the answer; people give 76% of the points that they stand for"
    )
    assert WorthOfQuotes(COUNTS | {"credited": 0}).sentence.endswith("; nobody checked the points that they stand for")
    assert WorthOfQuotes(COUNTS | {"quotes": 0}).sentence == ""


@pytest.mark.parametrize(
    ("changes", "warns"),
    [
        ({}, True),
        ({"credited": 0}, True),
        ({"in_order": 400}, False),
        ({"credited_by_people": 790}, False),
        ({"placed": 20, "in_order": 20, "by_chance": 4.0}, False),
    ],
)
def test_quotes_in_the_order_of_criteria_are_a_warning_unless_people_share_their_points(
    changes: dict[str, Any], warns: bool
) -> None:
    found = WorthOfQuotes(COUNTS | changes).warning
    assert bool(found) == warns
    if warns:
        assert "sentence k for criterion k (31% by chance)" in found

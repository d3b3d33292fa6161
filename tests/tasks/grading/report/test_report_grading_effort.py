"""What the report says of calls, tokens and criteria that exclude each other."""

from __future__ import annotations

import pytest

from rubricflow.tasks.grading.report.evidence import action_counts
from rubricflow.tasks.grading.report.provenance import cost_section

CALL = {"role": "grade", "model": "m", "stored": False, "failed": False, "violated": False, "latency_s": 1.0}
CALL |= {"calls": 2, "prompt_tokens": 2_000, "completion_tokens": 80, "cached_tokens": None, "cacheable_tokens": None}
CALL |= {"bundle": 3_000, "memory": None, "response": 1_000, "repair": None}


def told(*attempts: dict[str, object]) -> dict[str, str]:
    return dict(cost_section(attempts, 2, 0, 0).facts)


def test_tokens_of_a_prompt_are_shared_out_by_characters() -> None:
    assert told(CALL)["Tokens of a prompt"].startswith("bundle 750, response 250 a call")


def test_repairs_are_calls_of_their_own() -> None:
    mending = CALL | {"role": "semantic_repair", "calls": 1, "repair": 500}
    assert told(CALL, mending)["Calls"] == "3: 2 to grade, 1 to repair the evidence"


@pytest.mark.parametrize(("held", "said"), [(None, "not known"), (500, "25% of the prompts' tokens")])
def test_the_prefix_cache_is_known_where_the_engine_tells(held: int | None, said: str) -> None:
    assert (
        told(CALL | {"cached_tokens": held, "cacheable_tokens": held and 2_000})["Held by the engine's prefix cache"]
        == said
    )


def test_tokens_that_nobody_counts_are_not_known() -> None:
    found = told(CALL | {"prompt_tokens": None, "completion_tokens": None})
    assert found["Tokens"] == found["Tokens of a prompt"] == "not known: the backend counts none"


def test_responses_with_criteria_that_exclude_each_other_are_said() -> None:
    decided = [{"action": "none", "ungrounded": False, "unscored": False, "n": 8}]
    quiet, said = (action_counts(decided, rows, 4) for rows in ([], [{"n": 1}]))
    (line,) = set(said) - set(quiet)
    what = "Responses in which criteria that exclude each other were found; not both count"
    assert line == (what, 1, 0.25)

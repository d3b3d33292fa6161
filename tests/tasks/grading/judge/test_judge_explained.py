"""Words in quotation marks are found whatever marks are used, and apostrophes are none."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rubricflow.tasks.grading.judge.evidence import quotes_in


@pytest.mark.parametrize(
    ("explanation", "expected"),
    [
        ('It says "warm air rises" and “it cools”.', ["warm air rises", "it cools"]),
        ("It's not what the pupils' teacher didn't say.", []),
        ("He writes 'the kettle's lid', not 'x'.", ["the kettle's lid"]),
        ("«eau froide» und „zu kalt“, »so nicht«", ["eau froide", "zu kalt", "so nicht"]),
        ('"same" and "same" again', ["same"]),
        ('an open " mark', []),
        ("", []),
    ],
)
def test_quotes(explanation: str, expected: list[str]) -> None:
    assert quotes_in(explanation) == expected


@given(st.text(max_size=400))
def test_any_text_is_read(text: str) -> None:
    assert all(quote and quote in text for quote in quotes_in(text))

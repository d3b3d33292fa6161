"""Rubric lists: the forms in which they are written, and what is said of lines that cannot be used."""

import json
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rubricflow.tasks.core.contracts.errors import InputError, InputErrors
from rubricflow.tasks.rewards.serve.sent import listed_criteria, read_listed

CRITERIA = st.lists(
    st.tuples(st.text(min_size=1, max_size=30).filter(str.strip), st.floats(-9, 9).filter(bool)), min_size=1, max_size=5
)
FORMS = {
    "healthbench": lambda q, c: {
        "prompt": [{"role": "user", "content": q}],
        "prompt_id": "p",
        "rubrics": [{"criterion": text, "points": weight, "tags": []} for text, weight in c],
    },
    "rar": lambda q, c: {
        "question": q,
        "rubric": [{"title": "t", "description": text, "weight": weight} for text, weight in c],
    },
    "ours": lambda q, c: {"item_id": "p", "question": q, "rubric": [{"text": t, "weight": w} for t, w in c]},
}


def write(tmp_path, *lines):
    path = tmp_path / "list.jsonl"
    path.write_text("\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines), encoding="utf-8")
    return path


@pytest.mark.parametrize("form", FORMS)
@given(CRITERIA, st.text(min_size=1).filter(lambda text: text.strip() and text.isprintable()))
@settings(max_examples=15)
def test_every_form_reads_the_same(tmp_path_factory, form, criteria, question):
    path = write(tmp_path_factory.mktemp("list"), FORMS[form](question, criteria))
    (item,) = read_listed(path)
    assert [(one.text, one.weight) for one in item.criteria] == criteria
    assert item.question == question


def test_numbered_lines_are_criteria_of_weight_one():
    read = listed_criteria("Rubric:\n1. Names it\n   and says why\n2) Is short")
    assert read == [{"text": "Names it and says why", "weight": 1.0}, {"text": "Is short", "weight": 1.0}]


def test_all_that_is_missing_is_named_at_once(tmp_path):
    path = write(
        tmp_path,
        {"question": "Why?", "rubric": [{"text": "a"}, {"weight": 1}]},
        {"foo": 1},
        "{",
        {"question": "Fine", "rubric": ["x"]},
        {"question": "Why?", "rubric": "x", "canary": "c"},
        {"question": "Why?", "rubric": [{"text": "a", "weight": 0}]},
    )
    with pytest.raises(InputErrors) as caught:
        read_listed(path)
    said = str(caught.value)
    parts = ["line 1", "rubric[1].weight", "rubric[2].text", "line 2", "'question'", "'rubric'"]
    parts += ["line 3", "JSON", "line 5", "canary", "line 6", "another weight than 0"]
    assert [part for part in parts if part not in said] == []
    assert "line 4" not in said


def test_an_item_twice_is_an_error_only_where_it_differs(tmp_path):
    line = {"item_id": "a", "question": "Why?", "rubric": ["x"]}
    assert len(read_listed(write(tmp_path, line, "", line))) == 1
    with pytest.raises(InputError, match="given twice"):
        read_listed(write(tmp_path, line, {**line, "rubric": ["y"]}))
    with pytest.raises(InputError, match="no prompt with a rubric"):
        read_listed(write(tmp_path, ""))


NAMES = ["question", "prompt", "rubric", "rubrics", "text", "weight", "points", "criterion", "item_id", "content"]
LEAVES = st.none() | st.booleans() | st.floats() | st.text()
VALUES = st.recursive(LEAVES, lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(NAMES), inner))


@settings(max_examples=25)
@given(VALUES)
def test_any_line_is_read_or_refused_in_words(tmp_path_factory, value):
    path = write(tmp_path_factory.mktemp("list"), value)
    with suppress(InputError):
        assert read_listed(path)

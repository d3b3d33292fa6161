"""YAML by people: scalars that look like texts are texts, and what is none is named with the advice to quote it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import cycle
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from rubricflow.tasks.core.contracts.bundle import Rubric
from rubricflow.tasks.core.contracts.errors import InputError
from rubricflow.tasks.core.contracts.schema import Frozen
from rubricflow.tasks.core.contracts.settings.study import Study, load_study
from rubricflow.tasks.core.contracts.settings.written import parse, read_yaml

ROOT = Path(__file__).parents[4]


class RubricFile(Frozen):
    """As `tasks/grading/lock/rubric.py` has it."""

    rubrics: tuple[Rubric, ...]


FILES = [
    (Study, ROOT / "data/demo/study.yaml"),
    (Study, ROOT / "data/studies/asap_aes_replay.yaml"),
    (Study, ROOT / "data/studies/semeval2013.yaml"),
    (RubricFile, ROOT / "data/studies/enem_concept_rubrics.yaml"),
]
TEXTS = ["no", "Yes", "off", "ON", "y", "12:30", "2024-01-01", "1_000", "0x1F", "2026-13-45"]
OTHERS = ["true", "False", "null", "~", "1", "-2.50", "007", "1e3", ".inf"]


def scalars(node: yaml.Node, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], yaml.ScalarNode]]:
    """Every text in a file, with the keys that lead to it; a key itself ends in None."""
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            yield (*path, key.value, None), key
            yield from scalars(value, (*path, key.value))
    elif isinstance(node, yaml.SequenceNode):
        for at, value in enumerate(node.value):
            yield from scalars(value, (*path, at))
    elif isinstance(node, yaml.ScalarNode) and node.tag == "tag:yaml.org,2002:str" and node.style not in ("|", ">"):
        yield path, node


def spoilt(path: Path, words: list[str]) -> Iterator[tuple[tuple[Any, ...], str, str]]:
    """Texts of a file, some sixty, in turn replaced by one of the words: (where, the word, the file)."""
    text, turn = path.read_text(encoding="utf-8"), cycle(words)
    places = list(scalars(yaml.compose(text, yaml.SafeLoader)))
    for place, node in places[:: 1 + len(places) // 60]:
        word = next(turn)
        yield place, word, text[: node.start_mark.index] + word + text[node.end_mark.index :]


def at(content: Any, place: tuple[Any, ...]) -> Any:
    for part in place:
        content = content[part]
    return content


@pytest.mark.parametrize("path", [path for _, path in FILES], ids=lambda path: path.stem)
def test_what_looks_like_a_text_is_read_as_one(tmp_path: Path, path: Path) -> None:
    file = tmp_path / "file.yaml"
    for place, word, text in spoilt(path, TEXTS):
        file.write_text(text, encoding="utf-8")
        content = read_yaml(file)
        assert word in at(content, place[:-2]) if place[-1] is None else at(content, place) == word


def outcome(model: type[Frozen], file: Path) -> str:
    """What is said of a file, or what it is read as."""
    try:
        return f"read: {parse(model, read_yaml(file), file)}"
    except InputError as error:
        return error.rule


@pytest.mark.parametrize(("model", "path"), FILES, ids=[path.stem for _, path in FILES])
def test_where_a_text_is_due_what_is_none_is_told_to_be_quoted(tmp_path: Path, model: Any, path: Path) -> None:
    file = tmp_path / "file.yaml"
    advised = 0
    for place, word, text in spoilt(path, OTHERS):
        file.write_text(text, encoding="utf-8")
        said = outcome(model, file)
        advice = f"quote it: '{word}'" in said or "quote it as it is meant" in said
        advised += advice
        # Closed words, sections and the like have messages of their own; a number may stand in `where`.
        assert advice or ("valid string" not in said and "Keys should" not in said), (place, word, said)
        if said.startswith("read: ") and word in ("true", "False", "1", "-2.50", "007", "1e3", ".inf"):
            assert "where" in place or place[-1] in ("max", "min"), (place, word)
    assert advised


@pytest.mark.parametrize(
    ("changed", "field", "rule"),
    [
        ("rater: 1", "data.sources.0.scores.0.rater", "YAML reads 1 as a number, and a text is due; quote it: '1'"),
        ("rater: true", "data.sources.0.scores.0.rater", "reads true as true or false, and a text is due; quote it"),
        ("rater: ~", "data.sources.0.scores.0.rater", "YAML reads ~ as nothing, and a text is due; quote it: '~'"),
        ("rater:", "data.sources.0.scores.0.rater", "is empty; write a text"),
        ("rater: a, words: {1: 0}", "data.sources.0.scores.0.words.1", "YAML reads 1 as a number"),
        ("rater: a, words: {null: 0}", "data.sources.0.scores.0.words.null", "YAML reads null as nothing"),
        ("rater: a, traits: {x: 007}", "data.sources.0.scores.0.traits.x", "YAML reads 007 as a number"),
        ("rater: a, traits: {True: x}", "data.sources.0.scores.0.traits.True", "YAML reads True as true or false"),
    ],
)
def test_what_is_no_text_is_named_by_file_and_key(tmp_path: Path, changed: str, field: str, rule: str) -> None:
    path = tmp_path / "study.yaml"
    scores = f"scores: [{{score: s, {changed}}}]"
    path.write_text(f"name: s\ndata: {{sources: [{{file: a.csv, {scores}}}]}}\nrubrics: {{file: r.yaml}}\n")
    with pytest.raises(InputError, match=r"quote it|is empty") as stop:
        load_study(path)
    assert (stop.value.file, stop.value.field) == (path, field)
    assert rule in stop.value.rule


def test_level_names_are_read_as_they_look(tmp_path: Path) -> None:
    path = tmp_path / "rubrics.yaml"
    criterion = "{id: off, trait: t, text: It is so., levels: [no, yes]}"
    path.write_text(f"rubrics: [{{rubric_id: y, scale: {{min: 0, max: 1}}, criteria: [{criterion}]}}]\n")
    (rubric,) = parse(RubricFile, read_yaml(path), path).rubrics
    assert (rubric.criteria[0].id, rubric.criteria[0].levels) == ("off", ("no", "yes"))
    path.write_text(path.read_text().replace("[no, yes]", "[false, 1]"))
    with pytest.raises(InputError, match="YAML reads false as true or false, and a text is due; quote it: 'false'"):
        parse(RubricFile, read_yaml(path), path)


@pytest.mark.parametrize(("written", "number"), [("010", 10), ("1e1", 10.0), ("-5.", -5.0), ("+3", 3)])
def test_numbers_are_decimal(tmp_path: Path, written: str, number: float) -> None:
    path = tmp_path / "x.yaml"
    path.write_text(f"n: {written}\n")
    assert read_yaml(path) == {"n": number}


@pytest.mark.parametrize("const", ["true", "1.10"])
def test_a_const_that_yaml_changes_is_refused(tmp_path: Path, const: str) -> None:
    path = tmp_path / "study.yaml"
    items = f"items: {{item_id: i, question: {{const: {const}}}}}"
    path.write_text(f"name: s\ndata: {{sources: [{{file: a.csv, {items}}}]}}\nrubrics: {{file: r.yaml}}\n")
    with pytest.raises(InputError, match="is no text; quote it as it is meant"):
        load_study(path)


@pytest.mark.parametrize("word", ["no", "'off'", "Yes"])
def test_an_engine_s_options_are_true_or_false(tmp_path: Path, word: str) -> None:
    path = tmp_path / "study.yaml"
    engine = f"{{model: m, options: {{enforce_eager: {word}}}}}"
    path.write_text(
        f"name: s\ndata: {{layout: mohler}}\nrubrics: {{file: r.yaml}}\njudge: {{backend: vllm, engine: {engine}}}\n"
    )
    with pytest.raises(InputError, match="write true or false"):
        load_study(path)
    path.write_text(path.read_text().replace(word, "true"))
    assert load_study(path).judge.engine


def refusal(path: Path, text: str) -> str:
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InputError) as stop:
        read_yaml(path)
    return stop.value.rule


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        (
            "a0: &a0 [x]\n" + "".join(f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}, *a{n - 1}]\n" for n in range(1, 30)),
            "its aliases make it so in line",
        ),
        (
            "a0: &a0 {x: 1}\n"
            + "".join(f"a{n}: &a{n} {{<<: [*a{n - 1}, *a{n - 1}, *a{n - 1}]}}\n" for n in range(1, 30)),
            "its aliases make it so in line",
        ),
        ("a: &a " + "x" * 100_000 + "\nb: [" + "*a, " * 99 + "]\n", "its aliases make it so in line 2, column"),
        ("[" * 101, "more than 100 deep in line 1, column 101"),
        ("[" * 5000, "more than 100 deep in line 1, column 101"),
        ("? " * 3000, "more than 100 deep"),
        ("b: 1\na: &a [*a]\n", "the alias '*a' stands within what it names in line 2, column 8"),
        ("a: 1\nb: !!set {x, y}\n", "the tag '!!set' is not read here: leave it out in line 2, column 4"),
        ("a: !!binary aGVsbG8=\n", "the tag '!!binary'"),
        ("a: !!timestamp 2024-01-01\n", "the tag '!!timestamp'"),
        ("a: !!python/object/apply:os.system [ls]\n", "the tag '!!python/object/apply:os.system'"),
        ("a: !mine x\n", "the tag '!mine' is not read here"),
        ("a: !!int {}\n", "the tag '!!int'"),
        ("a: !!bool maybe\n", "'maybe' is no '!!bool' in line 1, column 4"),
        ("a: " + "9" * 301, "a number has at most 300 digits in line 1, column 4"),
        ("b: 1\n? [a, b]\n: 1\n", "a key is a text or a number, and this is a list or a mapping in line 2, column 3"),
        ("a: 1\nb: 2\n'a': 3\n", "the key 'a' is given twice in line 3, column 1"),
        ("1: x\n1.0: y\n", "the key '1.0' is given twice in line 2, column 1"),
        ("a: {<<: {b: 1}, <<: {c: 1}}\n", "the key '<<' is given twice in line 1, column 17"),
        ("a: 1\n---\nb: 1\n", "another document in line 2, column 1"),
        ("a: 1\nb: *c\n", "undefined alias 'c' in line 2, column 4"),
        ("a: 1\nbcd: \x01\n", "the character U+0001 in line 2, column 6"),
        ('a: "\\ud800"\n', "half a character"),
        ("x" * ((4 << 20) + 1), "it is larger than 4 MiB"),
    ],
)
def test_what_json_does_not_hold_or_is_too_large_is_refused_with_its_place(
    tmp_path: Path, text: str, rule: str
) -> None:
    assert rule in refusal(tmp_path / "x.yaml", text)


def test_aliases_and_merges_of_a_usual_size_are_read(tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    path.write_text("a: &a {k: 1, m: 2}\nb: {<<: *a, m: 3}\nc: [*a, *a]\nd: !!str 5\ne: <<\nf: " + "[" * 98 + "]" * 98)
    read = read_yaml(path)
    assert (read["b"], read["c"], read["d"], read["e"]) == ({"k": 1, "m": 3}, [{"k": 1, "m": 2}] * 2, "5", "<<")
    path.write_text("9" * 300)
    assert read_yaml(path) == int("9" * 300)


PIECES = [
    "a",
    "b: ",
    "1",
    "~",
    "&a ",
    "*a",
    "<<: ",
    "- ",
    "? ",
    ": ",
    "[",
    "]",
    "{",
    "}",
    ", ",
    "\n",
    "\n  ",
    "!!set ",
    "!!int ",
    "!x ",
    "|",
    "'",
    '"',
    "#",
    "%",
    "@",
    "`",
    "\t",
    "---",
    "...",
    "\ufeff",
    "é",
    "\x85",
    "1e999",
    "0x1",
]


@settings(max_examples=15)
@given(st.lists(st.sampled_from(PIECES), max_size=25).map("".join))
def test_any_file_is_what_json_holds_or_is_refused_with_line_and_column(text: str) -> None:
    rule = ""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "x.yaml"
        path.write_text(text, encoding="utf-8")
        try:
            json.dumps(read_yaml(path)).encode()
        except InputError as error:
            rule = error.rule
    assert not rule or re.search(r" in line \d+, column \d+$", rule)

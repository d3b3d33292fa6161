"""Templates are filled in one pass."""

from __future__ import annotations

from pathlib import Path

import pytest

from rubricflow.tasks.core.text.templates import Templates


def templates(folder: Path, text: str) -> Templates:
    (folder / "one.txt").write_text(text, encoding="utf-8")
    return Templates(folder)


def test_every_placeholder_is_replaced_wherever_it_stands(tmp_path: Path) -> None:
    found = templates(tmp_path, "{{a}}-{{b}}-{{a}} {a} {{}}")
    assert found.fill("one", {"a": "1", "b": "2"}) == "1-2-1 {a} {{}}"


def test_a_value_is_never_read_as_a_template(tmp_path: Path) -> None:
    values = {"a": "{{b}}", "b": r"\1 {{a}}"}
    assert templates(tmp_path, "{{a}}|{{b}}").fill("one", values) == r"{{b}}|\1 {{a}}"


def test_a_placeholder_without_a_value_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(KeyError):
        templates(tmp_path, "{{a}}").fill("one", {})


def test_a_section_stands_only_where_it_is_wanted(tmp_path: Path) -> None:
    (tmp_path / "t.txt").write_text("a{{#more}} {{b}}\nand{{/more}}{{#less}}!{{/less}}")
    of = Templates(tmp_path)
    assert of.fill("t", {"b": "b"}, frozenset({"more"})) == "a b\nand"
    assert of.fill("t", {}, frozenset({"less"})) == "a!"
    assert of.fill("t", {}) == "a"
    assert of.placeholders("t") == {"b"}


@pytest.mark.parametrize("text", ["{{#more}}x{{/more}}", "{{/more}}", "{{b}}"])
def test_no_value_is_read_as_a_section(tmp_path: Path, text: str) -> None:
    (tmp_path / "t.txt").write_text("{{b}}{{#more}}y{{/more}}")
    assert Templates(tmp_path).fill("t", {"b": text}) == text

"""README and guides: short enough, and true in what can be looked up."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from flows.cli import COMMANDS

ROOT = Path(__file__).resolve().parents[1]
DOCUMENTS = [Path("README.md"), *sorted(path.relative_to(ROOT) for path in (ROOT / "docs").glob("*.md"))]
EVERY = pytest.mark.parametrize("document", DOCUMENTS, ids=str)
LONGEST_README = 9_000


def text_of(document: Path) -> str:
    return (ROOT / document).read_text(encoding="utf-8")


def test_the_readme_is_read_in_a_few_minutes() -> None:
    assert len(text_of(Path("README.md"))) <= LONGEST_README


@EVERY
def test_every_command_that_is_named_is_there(document: Path) -> None:
    named = set(re.findall(r"(?:bin/|`)rubricflow ([a-z]+)\b", text_of(document)))
    assert named <= {command.__name__ for command in COMMANDS}


@EVERY
def test_every_link_leads_somewhere(document: Path) -> None:
    targets = re.findall(r"\]\((?!https?:)([^)#]+)", text_of(document))
    assert [target for target in targets if not (ROOT / document.parent / target).exists()] == []

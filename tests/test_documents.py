"""README and guides: short enough, and true in what can be looked up."""

from __future__ import annotations

import inspect
import re
import tomllib
from importlib import import_module
from importlib.metadata import version
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from rubricflow.flows.cli import COMMANDS, app, options_of
from rubricflow.tasks.core.contracts.tables.calibration import ROUTE_REASONS

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
    assert named <= {name.split()[0] for name in COMMANDS}


@EVERY
def test_every_link_leads_somewhere(document: Path) -> None:
    targets = re.findall(r"\]\((?!https?:)([^)#]+)", text_of(document))
    assert [target for target in targets if not (ROOT / document.parent / target).exists()] == []


def test_what_is_as_in_a_paper_names_a_test_or_command_that_is_there() -> None:
    tests = {path.stem.removeprefix("test_") for path in (ROOT / "tests").rglob("test_*.py")}
    rows = [line.strip("| ").split(" | ") for line in text_of(Path("docs/papers.md")).split("\n")]
    faithful = [row for row in rows if len(row) >= 3 and row[-2] == "F"]
    for row in faithful:
        named = re.findall(r"`([^`]+)`", row[-1])
        assert {name for name in named if re.fullmatch(r"[a-z]+(?:_[a-z]+)+", name)} <= tests, row
        scripts = [name for name in named if name.startswith("tests/")]
        assert all((ROOT / name).exists() for name in scripts), row
        commands = re.search(r"`(?:rubricflow|make) |core/stats|results\b", row[-1])
        assert tests & set(named) or scripts or commands, row
    assert len(faithful) > 40


def test_every_reason_to_wait_is_explained() -> None:
    rows = dict(re.findall(r"^\| ([^|]+) \| `(\w+)` \|", text_of(Path("docs/why-not-released.md")), re.M))
    assert {code: words for words, code in rows.items()} == ROUTE_REASONS


@EVERY
def test_a_bullet_is_read_at_a_glance(document: Path) -> None:
    text = re.sub(r"```.*?```", "", text_of(document), flags=re.DOTALL)
    bullets = re.findall(r"^[-*] .*(?:\n(?![-*#\n]).*)*", text, re.M)
    assert [bullet[:60] for bullet in bullets if len(bullet.split()) > 60] == []


def test_the_version_is_the_same_wherever_it_stands() -> None:
    said = CliRunner().invoke(app, ["--version"])
    assert (said.exit_code, said.stdout) == (0, f"rubricflow {version('rubricflow')}\n")
    project = tomllib.loads(text_of(Path("pyproject.toml")))["project"]
    cited = yaml.safe_load(text_of(Path("CITATION.cff")))
    released = re.findall(r"^## \[([\d.]+)\] - (\d{4}-\d\d-\d\d)$", text_of(Path("CHANGELOG.md")), re.M)
    assert released[0] == (cited["version"], cited["date-released"])
    assert project["version"] == cited["version"] == version("rubricflow")
    assert project["license"] == cited["license"]


def test_without_a_command_the_doors_of_the_readme_are_named() -> None:
    said = CliRunner().invoke(app, [])
    assert said.exit_code == 0
    doors = re.findall(r"^  .*?  (rubricflow .*)$", said.stdout, re.M)
    assert len(doors) == 4
    assert all(f".venv/bin/{door}" in text_of(Path("README.md")) for door in doors)


def test_the_shell_completes_commands() -> None:
    asked = {"_RUBRICFLOW_COMPLETE": "complete_bash", "COMP_WORDS": "rubricflow gra", "COMP_CWORD": "1"}
    said = CliRunner().invoke(app, [], prog_name="rubricflow", env=asked)
    assert {"grade", "grades"} <= set(said.stdout.split())


@pytest.mark.parametrize("name", COMMANDS)
def test_a_help_is_read_from_the_source_as_the_imported_function_has_it(name: str) -> None:
    file, _, function = COMMANDS[name].function.partition(":")
    work = getattr(import_module(f"rubricflow.flows.{file}"), function)
    imported = inspect.signature(getattr(work, "fn", work), eval_str=True).parameters.values()
    read, said = (
        re.sub(" at 0x[0-9a-f]+", "", str(list(options))) for options in (options_of(file, function), imported)
    )
    assert read == said

"""The direction of imports: contracts ← text, stats ← display, store, monitor, check, llm ← rooms ← doors ← flows."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
MODULES = sorted(path for house in ("tasks", "flows") for path in (ROOT / house).rglob("*.py"))
FLOORS: dict[str, set[str]] = {
    "contracts": set(),
    "text": {"contracts"},
    "stats": {"contracts"},
    "display": {"contracts", "text", "stats"},
    "store": {"contracts", "text", "stats"},
    "monitor": {"contracts", "store", "llm"},
    "check": {"contracts", "text", "stats", "store", "monitor"},
    "llm": {"contracts", "text", "stats", "store"},
    "web": {"contracts"},
    "publish": {"contracts", "text", "stats", "display", "store", "monitor"},
}
BELOW_ROOMS = {"contracts", "text", "stats", "display", "store", "llm", "web"}
WATCHED = BELOW_ROOMS | {"monitor", "publish"}
"""What doors stand on."""
FORBIDDEN_NAMES = {"utils", "util", "helpers", "helper", "common", "base", "manager", "managers", "misc"}


@cache
def imported(path: Path) -> set[str]:
    """Every module that a file imports anywhere in it, by its full name."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports say the full name"
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def rooms(path: Path) -> set[str]:
    """The rooms that a file imports."""
    return {room for name in imported(path) if (room := room_of_name(name))}


def room_of_name(name: str) -> str | None:
    """`tasks.core.llm.ask` → llm; `tasks.methods.report.arms` → methods.report; the package before it aside."""
    parts = name.removeprefix("rubricflow.").split(".")
    if parts[0] != "tasks" or len(parts) < 3:
        return None
    if parts[1] == "core":
        return parts[2]
    return ".".join(parts[1:3])


def room_of(path: Path) -> str | None:
    return None if path.name == "__init__.py" else room_of_name(".".join(path.relative_to(ROOT).with_suffix("").parts))


def is_door(path: Path) -> bool:
    return path.name == "task.py" and room_of(path) is not None


def test_there_is_something_to_look_at() -> None:
    assert {room_of(path) for path in MODULES} >= {
        "contracts",
        "text",
        "stats",
        "store",
        "check",
        "llm",
        "grading.ingest",
        "grading.lock",
        "methods.report",
    }
    assert any(is_door(path) for path in MODULES)
    assert "rubricflow.tasks.core.contracts.tables.BY_NAME" in imported(ROOT / "tasks/core/store/warehouse.py")


def offenders(wrong: Callable[[Path], set[str]]) -> dict[str, set[str]]:
    """What is wrong in each of the project's files where something is."""
    found = {str(path.relative_to(ROOT)): wrong(path) for path in MODULES}
    return {path: names for path, names in found.items() if names}


def test_a_room_imports_itself_and_the_floors_below() -> None:
    def above(path: Path) -> set[str]:
        room = room_of(path)
        allowed = FLOORS.get(room or "", WATCHED if is_door(path) else BELOW_ROOMS)
        return rooms(path) - allowed - {room} if room is not None else set()

    assert offenders(above) == {}


def test_only_doors_flows_and_the_monitor_import_prefect() -> None:
    def prefect(path: Path) -> set[str]:
        free = room_of(path) in (None, "monitor") or is_door(path)
        return set() if free else {name for name in imported(path) if name.split(".")[0] == "prefect"}

    assert offenders(prefect) == {}


def test_only_flows_import_flows_and_doors() -> None:
    def entered(path: Path) -> set[str]:
        if room_of(path) is None:
            return set()
        doors = {name for name in imported(path) if room_of_name(name) and ".task." in f"{name}."}
        doors -= {"rubricflow.tasks.core.monitor.runs.task"}  # what makes a function a task
        inner = {name for name in doors if is_door(path) and room_of_name(name) == room_of(path)}
        return doors - inner | {
            name for name in imported(path) if name.removeprefix("rubricflow.").startswith("flows.")
        }

    assert offenders(entered) == {}


def test_only_rubricflow_is_at_the_top() -> None:
    """An installed wheel puts one package into an environment."""
    assert offenders(lambda path: {name for name in imported(path) if name.split(".")[0] in ("tasks", "flows")}) == {}


def test_nothing_that_runs_imports_tests() -> None:
    testing = {"tests", "pytest", "hypothesis"}
    assert offenders(lambda path: {name for name in imported(path) if name.split(".")[0] in testing}) == {}


def test_files_are_named_for_what_they_do() -> None:
    def vague(path: Path) -> set[str]:
        return {part.removesuffix(".py").strip("_") for part in path.relative_to(ROOT).parts} & FORBIDDEN_NAMES

    assert offenders(vague) == {}


def test_contributing_names_files_that_are_there() -> None:
    texts = [(ROOT / name).read_text(encoding="utf-8") for name in ("CONTRIBUTING.md", "docs/extending.md")]
    lines = "\n".join(texts).splitlines()
    said = "\n".join(line for line in lines if not line.startswith("+"))  # a diff adds what is not there
    paths = set(re.findall(r"\b(?:tasks|flows|tests|sql)/[\w/.-]+\.(?:py|txt|yaml|md)\b", said))
    assert paths
    assert {path for path in paths if not (ROOT / path).exists()} == set()


def test_tests_have_names_of_their_own_and_no_packages() -> None:
    names = [path.name for path in (ROOT / "tests").rglob("test_*.py")]
    assert sorted(names) == sorted(set(names))
    assert not list((ROOT / "tests").rglob("__init__.py"))


def test_tests_share_scenes_and_builders_and_not_one_another() -> None:
    for path in (ROOT / "tests").rglob("*.py"):
        assert not re.search(r"^\s*(?:from|import) test_", path.read_text(encoding="utf-8"), re.MULTILINE), path

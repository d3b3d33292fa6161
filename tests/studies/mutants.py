"""Would the tests notice? Changes one place of the code at a time, drawn by chance, and runs its module's tests.

    python tests/studies/mutants.py --count 60 --seed 1 --to mutants.json
    python tests/studies/mutants.py --again mutants.json      # those that were killed, wherever their lines stand now

A mutant is killed where a test fails. Its tests are the test files that import or name its module, or whose helpers do,
at most ten, those of its package first; where there are none, those of the modules that import it.
Everything happens in a copy of the last commit.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import psutil

ROOT = Path(__file__).resolve().parents[2]
COMPARED = {ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq}
COMPARED |= {ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is}
COMPUTED = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult}
COMPUTED |= {ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd, ast.Mod: ast.Mult, ast.Pow: ast.Mult}
MOST = 10
"""How many test files one mutant meets at most: what everything imports would meet all of them."""
SECONDS = 300
"""How long the tests of one mutant may take: one that takes longer counts as killed, and 'too long' says so."""


def changed(node: ast.AST) -> ast.AST | None:
    """The node with another meaning; None where it has none that this tool knows."""
    if isinstance(node, ast.Compare) and type(node.ops[0]) in COMPARED:
        return ast.Compare(node.left, [COMPARED[type(node.ops[0])](), *node.ops[1:]], node.comparators)
    if isinstance(node, ast.BinOp) and type(node.op) in COMPUTED:
        return ast.BinOp(node.left, COMPUTED[type(node.op)](), node.right)
    if isinstance(node, ast.BoolOp):
        return ast.BoolOp(ast.Or() if isinstance(node.op, ast.And) else ast.And(), node.values)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return node.operand
    if isinstance(node, ast.IfExp):
        return ast.IfExp(node.test, node.orelse, node.body)
    if isinstance(node, ast.Constant) and isinstance(node.value, bool):
        return ast.Constant(not node.value)
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        return ast.Constant(node.value + 1)
    return None


def places(tree: ast.Module) -> Iterator[tuple[str, ast.expr]]:
    """Every expression inside a function, with the function's name; annotations and messages of errors aside."""
    for function in ast.walk(tree):
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        waiting: list[ast.AST] = list(function.body)
        while waiting:
            node = waiting.pop()
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Raise | ast.Assert | ast.JoinedStr):
                continue
            if isinstance(node, ast.expr) and node.lineno == node.end_lineno and changed(node):
                yield function.name, node
            waiting += [child for name, child in _children(node) if name != "annotation"]


def _children(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    for name, value in ast.iter_fields(node):
        yield from (
            (name, child) for child in (value if isinstance(value, list) else [value]) if isinstance(child, ast.AST)
        )


def drawn(count: int, seed: int, folder: str) -> list[dict[str, str]]:
    """Mutants: every package has the same share, every place of a package the same chance."""
    chance = random.Random(seed)
    packages: dict[str, list[dict[str, str]]] = {}
    for path in sorted(file for house in ("tasks", "flows") for file in (ROOT / house).rglob("*.py")):
        name = path.relative_to(ROOT).as_posix()
        if not name.startswith(folder):
            continue
        text = path.read_text(encoding="utf-8")
        lines = text.splitlines()
        for function, node in places(ast.parse(text)):
            line = lines[node.lineno - 1]
            encoded = line.encode()
            new = ast.unparse(ast.fix_missing_locations(changed(node)))
            now = encoded[: node.col_offset].decode() + f"({new})" + encoded[node.end_col_offset :].decode()
            packages.setdefault(name.rsplit("/", 1)[0], []).append(
                {"file": name, "function": function, "line": line, "mutant": now, "number": str(node.lineno)}
            )
    order = sorted(packages)
    chance.shuffle(order)
    return [chance.choice(packages[order[turn % len(order)]]) for turn in range(count)]


def found_again(mutant: dict[str, str]) -> dict[str, str] | None:
    """Where the line of an earlier commit stands now, in a function of the same name; None where it is gone."""
    for path in sorted(file for house in ("tasks", "flows") for file in (ROOT / house).rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        if mutant["line"].strip() not in text:
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == mutant["function"]:
                for number in range(node.lineno, (node.end_lineno or 0) + 1):
                    line = text.splitlines()[number - 1]
                    if line.strip() == mutant["line"].strip():
                        indent = line[: len(line) - len(line.lstrip())]
                        moved = {"file": path.relative_to(ROOT).as_posix(), "line": line, "number": str(number)}
                        return mutant | moved | {"mutant": indent + mutant["mutant"].strip()}
    return None


@cache
def imported(path: Path) -> set[str]:
    """The modules that a file imports, and all that its text names in full."""
    text = path.read_text(encoding="utf-8")
    froms = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.ImportFrom)]
    named = {f"{node.module}.{alias.name}" for node in froms for alias in node.names}
    words = re.findall(r"(?:tasks|flows|tests)(?:\.\w+)+", text)
    return named | {word.rsplit(".", cut)[0] for word in words for cut in (0, 1, 2)}


def tests_of(file: str) -> list[str]:
    """The test files of a source file; the whole package's where it is named by none, such as a protocol's."""
    helpers = {path for path in (ROOT / "tests").rglob("*.py") if not path.name.startswith(("test_", "bench_"))}
    sources = {path for house in ("tasks", "flows") for path in (ROOT / house).rglob("*.py")}
    tests = sorted((ROOT / "tests").rglob("test_*.py"))
    mirrored = ROOT / "tests" / Path(file).parent
    while not any(mirrored.rglob("test_*.py")):
        mirrored = mirrored.parent

    def module_of(path: Path) -> str:
        return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")

    reached = module = {module_of(ROOT / file)}
    found: list[Path] = []
    while not found:
        reached = reached | {module_of(path) for path in helpers if imported(path) & reached}
        found = [path for path in tests if imported(path) & reached]
        more = reached | {module_of(path) for path in sources if imported(path) & reached}
        if more == reached:
            found = found or [path for path in tests if mirrored in path.parents]
            break
        reached = more
    nearest = sorted(found, key=lambda path: (mirrored not in path.parents, not imported(path) & module))
    return [path.relative_to(ROOT).as_posix() for path in nearest[:MOST]]


def killed(mutant: dict[str, str], copy: Path) -> bool:
    """Whether a test fails in the copy with the mutant in it; the copy is left as it was."""
    path = copy / mutant["file"]
    text = path.read_text(encoding="utf-8")
    lines = text.splitlines(keepends=True)
    lines[int(mutant["number"]) - 1] = mutant["mutant"] + "\n"
    path.write_text("".join(lines), encoding="utf-8")
    words = ["-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "--hypothesis-profile", "repeatable"]
    run = subprocess.Popen(
        [sys.executable, *words, *tests_of(mutant["file"])],
        cwd=copy,
        env={**os.environ, "PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        return bool(run.wait(SECONDS))
    except subprocess.TimeoutExpired:
        for one in psutil.Process(run.pid).children(recursive=True):  # a test may have started a server
            one.kill()
        run.kill()
        run.wait()
        return True
    finally:
        path.write_text(text, encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--folder", default="", help="only files below it, such as tasks/core/text")
    parser.add_argument("--again", type=Path, help="mutants of an earlier commit")
    parser.add_argument("--to", type=Path, help="where to write them, with what became of them")
    given = parser.parse_args()
    earlier = json.loads(given.again.read_text()) if given.again else []
    again = [found_again(mutant) for mutant in earlier if mutant.get("killed")]
    mutants = [mutant for mutant in again if mutant] if given.again else drawn(given.count, given.seed, given.folder)
    with tempfile.TemporaryDirectory() as folder:
        archive = subprocess.run(["git", "archive", "HEAD"], cwd=ROOT, check=True, capture_output=True).stdout
        subprocess.run(["tar", "x", "-C", folder], input=archive, check=True)
        for mutant in mutants:
            begun = time.monotonic()
            mutant["killed"] = killed(mutant, Path(folder))
            seconds = time.monotonic() - begun
            fate = ("too long" if seconds > SECONDS else "killed") if mutant["killed"] else "SURVIVES"
            where = f"{mutant['file']}:{mutant['number']}"
            print(f"{fate:8} {seconds:4.0f} s  {where}  {mutant['mutant'].strip()}", flush=True)
            if given.to:
                given.to.write_text(json.dumps(mutants, indent=1))
    dead = sum(mutant["killed"] for mutant in mutants)
    print(
        f"{dead} of {len(mutants)} mutants are killed"
        + (f"; {again.count(None)} have no such line now" if again else "")
    )


if __name__ == "__main__":
    main()

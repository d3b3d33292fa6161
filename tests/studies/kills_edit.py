"""A study's arms of Edit trained twice: once undisturbed, once killed at random moments until it ends; what differs.

python tests/studies/kills_edit.py STUDY [--kills N] [--seed S]

STUDY is any study with a section `edit`, such as the laboratory's. Each process lives a tenth to a half of the time
that the undisturbed run takes, so that kills fall in many phases.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any


def start(study: Path, house: Path) -> subprocess.Popen[bytes]:
    """The command in a process of its own."""
    words = [sys.executable, "-m", "rubricflow.flows.cli", "edit", str(study), "--warehouse", str(house)]
    return subprocess.Popen(words, cwd=Path(__file__).resolve().parents[2])


def shards(house: Path) -> dict[str, int]:
    """Finished shards of the stage, with when their marks were written, in nanoseconds."""
    return {mark.stem: mark.stat().st_mtime_ns for mark in house.glob("*/_done/edit/*.json")}


def tables(house: Path) -> dict[str, Any]:
    """Table and stage → digest and rows."""
    (path,) = house.glob("*/manifest.json")
    refs = json.loads(path.read_bytes())["tables"]
    return {f"{ref['table']} of {ref['stage']}": (ref["digest"], ref["rows"]) for ref in refs}


def killed(study: Path, house: Path, moments: list[float]) -> set[str]:
    """Runs the study to its end with kills after so many seconds each; the finished shards that were made again.

    Those of the signals do not count: the selection completes them.
    """
    again: set[str] = set()
    for seconds in [*moments, None]:
        before = shards(house)
        process = start(study, house)
        try:
            code = process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            code = process.wait()
        after = shards(house)
        again |= {name for name, at in before.items() if after.get(name) != at and not name.startswith("signals-")}
        print(f"kills_edit: ended with {code}, {len(before):,} shards before, {len(after):,} after", flush=True)
        if code == 0:
            break
    return again


def main() -> int:
    """1 if the two runs differ, or finished work was done again."""
    words = argparse.ArgumentParser()
    words.add_argument("study", type=Path)
    words.add_argument("--kills", type=int, default=8)
    words.add_argument("--seed", type=int, default=0)
    given = words.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        begun = time.monotonic()
        if start(given.study.resolve(), Path(folder, "whole")).wait():
            return 1
        seconds = time.monotonic() - begun
        luck = random.Random(given.seed)
        moments = [luck.uniform(0.1, 0.5) * seconds for _ in range(given.kills)]
        again = killed(given.study.resolve(), Path(folder, "killed"), moments)
        whole, other = (tables(Path(folder, name)) for name in ("whole", "killed"))
    differ = sorted(name for name in whole | other if whole.get(name) != other.get(name))
    print(f"kills_edit: undisturbed in {seconds:.0f} s; tables that differ: {', '.join(differ) or 'none'}")
    print(f"kills_edit: finished shards made again: {', '.join(sorted(again)) or 'none'}")
    return int(bool(differ or again))


if __name__ == "__main__":
    sys.exit(main())

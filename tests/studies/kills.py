"""Kills at every named point, at random moments and in the real command; two runs at once; what came of each.

The real command is also stopped by every signal while it imports and in the flow: no process,
port or temporary file of it may be left.

python tests/studies/kills.py [--random N] [--seed S] [--no-command]
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "flows"))

from kill_driver import NO_ROOM, POINTS, Result, Trial
from left_driver import MOMENTS, SENDS, Left, stopped


def line(result: Result) -> bool:
    """Print a result; whether it is as it must be."""
    good = result.ended and result.equal and result.twice == 0 and not result.left
    killed, ended, equal = (
        "yes" if result.killed else "no",
        "yes" if result.ended else "NO",
        "yes" if result.equal else "NO",
    )
    counts = f"{result.twice:>6} {result.again:>6} {len(result.left):>6}"
    print(f"{result.point:52} {killed:>6} {result.replies:>7} {ended:>7} {equal:>7} {counts}")
    if not good:
        print(*result.left, result.log, sep="\n")
    return good


def stop_all(study: Path, folder: Path) -> list[bool]:
    """Stop the real command in every way at every moment; whether nothing was left."""

    def stop(way: tuple[str, str]) -> Left:
        return stopped(study, folder, *way)

    print(f"{'stopped':52} {'code':>6} {'before':>9} {'processes':>9} {'ports':>6} {'files':>6}")
    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(stop, product(SENDS, MOMENTS)))
    for left in found:
        counts = f"{len(left.before):>9} {len(left.processes):>9} {len(left.ports):>6} {len(left.files):>6}"
        print(f"{left.what:52} {left.code:>6} {counts}")
        if not left.nothing():
            print(*left.processes, *left.ports, *left.files, left.said, sep="\n")
    return [left.nothing() for left in found]


def main() -> int:
    """Run them all; 1 if one failed."""
    words = argparse.ArgumentParser()
    words.add_argument("--random", type=int, default=12)
    words.add_argument("--seed", type=int, default=0)
    words.add_argument("--no-command", action="store_true")
    given = words.parse_args()
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        trial = Trial(Path(folder))
        asked = f"{'asked':>6} {'asked':>6} {'left':>6}"
        print(f"{'killed':52} {'killed':>6} {'replies':>7} {'resumed':>7} {'digests':>7} {asked}")
        print(f"{'':52} {'':>6} {'stored':>7} {'':>7} {'equal':>7} {'twice':>6} {'again':>6}")
        good = [line(trial.kill(what, point)) for what, point in POINTS.items()]
        good += [line(trial.kill(what, None, at)) for what, at in trial.random_moments(given.random, given.seed)]
        for what in NO_ROOM:
            found = trial.without_room(what)
            good.append(found["code"] == 2 and not found["left"])
            good.append(line(Result(**{name: found[name] for name in Result._fields})))
        if not given.no_command:
            good += stop_all(trial.study, Path(folder) / "stopped")
        for number, studies in enumerate([[None, None], [None, None], [None, trial.other_study()], [None] * 4]):
            found = trial.together(studies, f"together-{number}")
            good.append(not any(found["codes"]) and found["equal"] and found["replies"] and not found["twice"])
            told = f"{len(studies)} runs at once, {'one study' if len(set(studies)) == 1 else 'two studies'}"
            print(f"{told}: {'as one by one' if good[-1] else found}")
    print(f"{sum(good)} of {len(good)} as they must be, {time.monotonic() - start:.0f} s")
    return int(not all(good))


if __name__ == "__main__":
    sys.exit(main())

"""Types what the last line of a graded run says to type."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from builders.command import done


def run_next(printed: str, folder: Path) -> list[str]:
    """The commands that stand below the line "Next" of a run's output; AssertionError where one of them refuses.

    `review` would serve a page until somebody stops it: `votes` reads the same queue of the same run.
    """
    (below,) = re.findall(r"^Next[,:].*\n((?:  .*\n)*)", printed, re.MULTILINE)
    commands = []
    for typed in re.findall(r"^  rubricflow (.+)$", below, re.MULTILINE):
        name, *words = shlex.split(typed)
        if name == "review":
            words += ["--to", str(folder / "votes.csv")]
        words = [str(folder / word) if word.endswith((".xlsx", "labels.csv")) else word for word in words]
        done("votes" if name == "review" else name, *words)
        commands.append(name)
    return commands

"""Does what is left to do once the parent of this script has ended, however it ended:

python -I -S orphans.py PARENT PROCESS           ends a process, which would go on for good
python -I -S orphans.py PARENT FOLDER MESSAGE    removes a folder and prints a message

A command that ends in order ends the second one first. If it is still here then, the command ended suddenly: it was
killed, ran out of memory, or a library ended it (a minute after Ray lost its head, it ends the process of its driver,
and no handler of Python's runs).
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress

LOOK_S = 0.1
"""How often it looks whether the parent and the process are there."""


def wait_for_end(parent: int, look: Callable[[], None]) -> None:
    """Returns when the parent of this script is gone. look: called as often as this looks."""
    while os.getppid() == parent:
        look()
        time.sleep(LOOK_S)


def end_with_parent(parent: int, process: int) -> None:
    """Returns when the process is gone; ends it where the parent of this one is gone first."""
    with suppress(ProcessLookupError):
        wait_for_end(parent, lambda: os.kill(process, 0))
        os.kill(process, signal.SIGTERM)


if __name__ == "__main__":
    if len(sys.argv) == 3:
        end_with_parent(int(sys.argv[1]), int(sys.argv[2]))
    else:
        wait_for_end(int(sys.argv[1]), lambda: None)
        shutil.rmtree(sys.argv[2], ignore_errors=True)
        print(sys.argv[3], file=sys.stderr, flush=True)

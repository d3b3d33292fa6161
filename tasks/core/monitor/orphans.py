"""Ends a process once the parent of this script has ended: python -I -S tasks/core/monitor/orphans.py PARENT PROCESS

A parent that is killed ends nothing by itself, and what it started would go on for good.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from contextlib import suppress

LOOK_S = 0.2
"""How often it looks whether both are there."""


def end_with_parent(parent: int, process: int) -> None:
    """Returns when the process is gone; ends it where the parent of this one is gone first."""
    with suppress(ProcessLookupError):
        while os.getppid() == parent:
            os.kill(process, 0)
            time.sleep(LOOK_S)
        os.kill(process, signal.SIGTERM)


if __name__ == "__main__":
    end_with_parent(int(sys.argv[1]), int(sys.argv[2]))

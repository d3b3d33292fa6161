"""Waits for its parent to end, removes a folder and prints a message: python -I -S flows/sweep.py PARENT FOLDER MESSAGE

A command that ends in order ends this script first. If the script is still here then, the command ended suddenly: it
was killed, ran out of memory, or a library ended it (a minute after Ray lost its head, it ends the process of its
driver, and no handler of Python's runs).
"""

from __future__ import annotations

import os
import shutil
import sys
import time

LOOK_S = 0.1
"""How often it looks whether the parent is there."""

if __name__ == "__main__":
    while os.getppid() == int(sys.argv[1]):
        time.sleep(LOOK_S)
    shutil.rmtree(sys.argv[2], ignore_errors=True)
    print(sys.argv[3], file=sys.stderr, flush=True)

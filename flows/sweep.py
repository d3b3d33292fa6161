"""Removes a folder once the parent of this script has ended: python -I -S flows/sweep.py PARENT FOLDER"""

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

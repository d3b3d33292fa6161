"""Freed memory goes back to the system."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tasks.store.memory import give_all_back

MANY = 400_000


def resident() -> int:
    """Bytes of this process in memory."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc, and the C library of Linux gives back when told to")
def test_what_small_objects_held_goes_back_though_one_of_them_stays() -> None:
    give_all_back()
    before = resident()
    texts = [f"{'x' * 600}{number}" for number in range(MANY)]
    held = resident() - before
    last = texts[-1]
    del texts
    give_all_back()
    assert held > 200 * 2**20
    assert resident() - before < held / 2
    assert last.endswith(str(MANY - 1))

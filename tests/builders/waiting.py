"""Waiting for what a test needs, however busy the machine is."""

import time


def until(is_so, seconds=300.0):
    """Waits until it is so. The limit is there for what never comes: no test counts on how soon it does."""
    end = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < end, f"not within {seconds:g} s"
        time.sleep(0.005)

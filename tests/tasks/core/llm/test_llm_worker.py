"""What a worker's process keeps from one piece to the next."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from rubricflow.tasks.core.store.workers import WorkerCache


class Model:
    """Something large."""


@given(st.lists(st.sampled_from([b"one", b"other"]), min_size=1, max_size=20))
def test_a_process_holds_the_model_of_the_last_command_alone(sent: list[bytes]) -> None:
    cache, opened = WorkerCache(), list[weakref.ref[Model]]()

    def opening(previous: list[weakref.ref[Model]]) -> Callable[[], Model]:
        def open_model() -> Model:
            assert not any(model() for model in previous), "another one is let go before"
            model = Model()
            opened.append(weakref.ref(model))
            return model

        return open_model

    for command in sent:
        cache.get_or_open(command, opening(opened))
    assert len(opened) == 1 + sum(before != after for before, after in pairwise(sent))
    assert opened[-1]() is not None

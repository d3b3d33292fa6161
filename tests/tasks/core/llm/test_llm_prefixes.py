"""Which replica is asked: the one that holds the beginning, without leaving the others idle."""

from __future__ import annotations

from collections import Counter, defaultdict

from hypothesis import given
from hypothesis import strategies as st

from rubricflow.tasks.core.contracts.settings.engine import Sampling
from rubricflow.tasks.core.llm.backends.pace import Prefixes
from rubricflow.tasks.core.llm.request import Message, Request


def about(item: int) -> Request:
    messages = Message("system", f"the rubric of item {item}"), Message("user", "an answer")
    return Request(messages=messages, role="grade", subject="r", sampling=Sampling())


def chosen(prefixes: Prefixes, item: int, in_flight: list[int]) -> int:
    return prefixes.choose(about(item), in_flight, [True] * len(in_flight))


def test_clients_that_never_met_choose_alike() -> None:
    idle, first, second = [0] * 4, Prefixes(4, 64), Prefixes(4, 64)
    items = list(range(40))
    for item in items:
        chosen(first, item, idle)
    for item in reversed(items):
        chosen(second, item, idle)
    assert [chosen(first, item, idle) for item in items] == [chosen(second, item, idle) for item in items]
    assert set(Counter(chosen(first, item, idle) for item in items)) == {0, 1, 2, 3}


def test_a_single_item_uses_every_replica() -> None:
    prefixes, in_flight = Prefixes(4, 64), [0] * 4
    for _ in range(64):
        in_flight[chosen(prefixes, 0, in_flight)] += 1
    assert in_flight == [16] * 4


def test_an_item_stays_with_its_replica_while_that_has_room() -> None:
    prefixes, in_flight = Prefixes(4, 64), [3, 1, 2, 0]
    for item in range(20):
        chosen(prefixes, item, in_flight)
    homes = defaultdict[int, set[int]](set)
    for _ in range(5):
        for item in range(20):
            homes[item].add(chosen(prefixes, item, in_flight))
    assert {len(replicas) for replicas in homes.values()} == {1}


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 40), st.booleans()), min_size=2, max_size=6), st.data())
def test_whoever_is_asked_may_be_asked(states: list[tuple[int, int, bool]], data: st.DataObject) -> None:
    able = [fit for *_, fit in states]
    able[data.draw(st.integers(0, len(able) - 1))] = True
    prefixes = Prefixes(len(states), data.draw(st.integers(1, 64)))
    for item, *_ in states:
        assert able[prefixes.choose(about(item), [flying for _, flying, _ in states], able)]

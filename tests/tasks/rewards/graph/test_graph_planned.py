"""What annotating takes is said before, never more is spent than was given, and nothing is paid for twice."""

from __future__ import annotations

from typing import Any

from graph_scene import by_sign, edge, said
from hypothesis import given, settings
from hypothesis import strategies as st

from rubricflow.tasks.core.contracts.bundle import Criterion
from rubricflow.tasks.core.contracts.settings.reward import Graphs
from rubricflow.tasks.core.llm.backend import Scripted
from rubricflow.tasks.core.llm.budget import Budget, Budgeted, BudgetSpent, budget_of
from rubricflow.tasks.core.llm.reply_store import ReplyStore
from rubricflow.tasks.core.llm.request import Reply, Request
from rubricflow.tasks.rewards.graph.annotator import Annotator
from rubricflow.tasks.rewards.graph.build import Built, build
from rubricflow.tasks.rewards.graph.subject import GraphSubject, candidates

RUBRICS = st.lists(st.lists(st.sampled_from([-1.0, 1.0, 2.0]), min_size=1, max_size=6), min_size=1, max_size=4)


def rubrics(weights: list[list[float]]) -> dict[str, GraphSubject]:
    named = {}
    for number, of_rubric in enumerate(weights):
        criteria = (Criterion(id=f"c{at}", trait="t", text=f"Text {at}.", weight=w) for at, w in enumerate(of_rubric))
        named[f"r{number}"] = GraphSubject(f"r{number}", f"Why {number}?", None, tuple(criteria))
    return named


def answered(request: Request) -> Reply:
    """A model that gives every criterion the role of its sign, and sees a dependency in every other pair."""
    pairs = candidates(by_sign(request))[::2]
    text = said(by_sign(request), *(edge(*pair) for pair in pairs))
    return Reply(text=text, prompt_tokens=90, completion_tokens=40)


def drawn(subjects: dict[str, GraphSubject], replies: ReplyStore, cap: Budget | None = None) -> tuple[Any, ...]:
    """The graphs, the backend and what a person was told; the graphs are the error where there is one."""
    backend, told = Scripted(answered, batch_size=7), list[str]()
    paid = Budgeted(backend, cap) if cap else backend
    graphs: list[Built] | BudgetSpent
    try:
        graphs = build(subjects, {}, [], Annotator(paid, replies, Graphs(), told.append))
    except BudgetSpent as spent:
        graphs = spent
    return graphs, backend, told


def planned(told: list[str]) -> list[int]:
    """The calls of each line that plans some."""
    lines = [line.partition(": ")[2] for line in told if "tokens" in line]
    return [int(line.partition(" calls")[0].replace(",", "")) for line in lines]


@settings(max_examples=15)
@given(weights=RUBRICS)
def test_as_many_calls_are_made_as_were_said(weights: list[list[float]]) -> None:
    subjects = rubrics(weights)
    with ReplyStore(":memory:") as replies:
        first, backend, told = drawn(subjects, replies)
        assert planned(told) == [backend.calls]
        again, silent, told = drawn(subjects, replies)
        assert silent.calls == 0
        assert [one.graph for one in again] == [one.graph for one in first]
        assert not backend.calls or f"{backend.calls} calls, {backend.calls} of them answered before" in told[0]
        assert all("about 0 prompt tokens and 0 reply tokens" in line for line in told if "tokens" in line)


@settings(max_examples=15)
@given(weights=RUBRICS, budgets=st.lists(st.integers(3_000, 30_000), min_size=1, max_size=4))
def test_a_budget_is_never_passed_and_what_was_paid_is_not_asked_again(
    weights: list[list[float]], budgets: list[int]
) -> None:
    subjects = rubrics(weights)
    with ReplyStore(":memory:") as plain:
        whole, backend, _ = drawn(subjects, plain)
        wanted = {request.subject + request.messages[1].content for request in backend.asked}
    with ReplyStore(":memory:") as replies:
        asked = []
        for budget in (*budgets, 10**9):
            cap = budget_of(budget)
            graphs, backend, _ = drawn(subjects, replies, cap)
            asked += [request.subject + request.messages[1].content for request in backend.asked]
            assert cap["tokens"].spent <= budget
            if not isinstance(graphs, BudgetSpent):
                break
            assert "the same command continues" in str(graphs)
        assert [one.graph for one in graphs] == [one.graph for one in whole]
    assert len(asked) == len(set(asked))
    assert set(asked) == wanted

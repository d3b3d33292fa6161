"""Rubrics that workers ask about: the same tables as in one process, whoever asks, in whatever packs."""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from builders import studies
from builders.bundles import bundle
from builders.crew import CrewHere
from builders.rows import item, locked
from graph_scene import by_sign, edge, said
from hypothesis import given, settings
from hypothesis import strategies as st

from rubricflow.tasks.core.contracts.bundle import Criterion
from rubricflow.tasks.core.contracts.settings.engine import HERE, Placement
from rubricflow.tasks.core.contracts.settings.study import Study
from rubricflow.tasks.core.contracts.tables.data import Items
from rubricflow.tasks.core.contracts.tables.rubrics import Bundles
from rubricflow.tasks.core.llm.backend import Backend, Scripted
from rubricflow.tasks.core.llm.backends.replay import UnansweredError
from rubricflow.tasks.core.llm.budget import BudgetSpent, Sharing, kept_budget, ledger_of, on_budget, sharing
from rubricflow.tasks.core.llm.ledger import CallLedger
from rubricflow.tasks.core.llm.reply_store import ReplyStore
from rubricflow.tasks.core.llm.request import Reply, Request, digest
from rubricflow.tasks.core.store.warehouse import Run, Warehouse
from rubricflow.tasks.rewards.graph import task as door
from rubricflow.tasks.rewards.graph.subject import candidates
from rubricflow.tasks.rewards.graph.task import Graphed, graph

DASK = Placement(engine="dask")
MODEL = {"backend": "openai", "engine": {"model": "m"}}
VOTES = "subject_kind,rubric_id,criterion_id,value,rater_id,voted_at\n"
TOKENS = 60
"""Of a call."""


def study(**graphs: Any) -> Study:
    return studies.study(graph=MODEL | graphs)


def run_of(folder: Path, weights: list[list[int]], questions: int = 10**9) -> Run:
    """A run with rubrics of criteria of these weights; so many different questions."""
    run = Warehouse.open(folder / "house").run("run")
    rubrics = {
        f"r{number:02d}": bundle(
            *(Criterion(id=f"c{n}", trait="t", text=f"Text {n}.", weight=w) for n, w in enumerate(of_rubric))
        )
        for number, of_rubric in enumerate(weights)
    }
    items = [item(name, question=f"Why {number % questions}?") for number, name in enumerate(rubrics)]
    run.commit("ingest", "all", {Items: items})
    run.commit("lock", "all", {Bundles: [locked(judged, name) for name, judged in rubrics.items()]})
    return run


def right(request: Request) -> Reply:
    """Every criterion has the role of its sign, and every other pair depends."""
    text = said(by_sign(request), *(edge(*pair) for pair in candidates(by_sign(request))[::2]))
    return Reply(text=text, prompt_tokens=TOKENS - 10, completion_tokens=10)


def faulty(request: Request) -> Reply | str | None:
    """Some requests fail, are left out or are answered with nonsense: always the same ones."""
    drawn = zlib.crc32("".join(message.content for message in request.messages).encode()) % 12
    if drawn < 3:
        return (Reply(error="down: no"), '{"roles": {"c0": "core"}, "edges": []}', None)[drawn]
    return right(request)


@contextmanager
def shared(
    script: Any = right, pack: int = 2, workers: int = 0, crews: list[CrewHere] | None = None
) -> Iterator[list[Scripted]]:
    """The door with packs of this size and a scripted model; gives the backends that were opened."""
    opened: list[Scripted] = []

    def open_backend(*_: Any) -> Backend:
        opened.append(Scripted(script, model="m", batch_size=5))
        return on_budget(opened[-1])

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(door, "PACK", pack)
        patched.setattr(door, "open_backend", open_backend)
        if workers:
            crew = CrewHere(patched, workers)
            if crews is not None:
                crews.append(crew)
        yield opened


def graphed(run: Run, plan: Study, placement: Placement = HERE) -> Graphed:
    folder = run.warehouse.root.parent
    return graph.fn(run, plan, folder, run.ref(Items, "ingest"), run.ref(Bundles, "lock"), placement)


def asked(backends: list[Scripted]) -> Counter[str]:
    """How often each request was asked; those without a reply are left out, as no store keeps them."""
    everything = [request for backend in backends for request in backend.asked]
    return Counter(digest(request, "m") for request in everything if is_answered(faulty(request)))


def is_answered(line: Reply | str | None) -> bool:
    return isinstance(line, str) or (line is not None and line.error is None)


RUBRICS = st.lists(st.lists(st.sampled_from([-1, 1, 2]), min_size=1, max_size=6), min_size=1, max_size=7)


@settings(max_examples=8)
@given(
    weights=RUBRICS,
    questions=st.integers(1, 3),
    pack=st.integers(1, 4),
    workers=st.integers(1, 3),
    voted=st.lists(st.tuples(st.integers(0, 6), st.sampled_from(["core", "additional", "penalty"])), max_size=3),
)
def test_workers_make_what_one_process_makes_and_ask_everything_once(
    tmp_path_factory: pytest.TempPathFactory,
    weights: list[list[int]],
    questions: int,
    pack: int,
    workers: int,
    voted: list[tuple[int, str]],
) -> None:
    plan = study(votes="votes.csv", file="graphs.yaml", examples=1)
    runs = [run_of(tmp_path_factory.mktemp("graph"), weights, questions) for _ in range(2)]
    rows = [
        f"graph_role,r{place % len(weights):02d},c0,{role},v{number},2026-01-02T10:00Z"
        for number, (place, role) in enumerate(voted)
    ]
    for run in runs:
        (run.warehouse.root.parent / "votes.csv").write_text(VOTES + "\n".join(rows))
        (run.warehouse.root.parent / "graphs.yaml").write_text("graphs: [{rubric_id: r00}]")
    with shared(faulty) as alone:
        expected = graphed(runs[0], plan)
    with shared(faulty, pack, workers) as backends:
        assert graphed(runs[1], plan, DASK) == expected
    assert asked(backends) == asked(alone)
    assert set(asked(backends).values()) <= {1}


WEIGHTS = [[1, 1, -1], [1], [1, 2, 1], [2, 2], [1, 1, 1, 1], [1, -1]]
"""Of six rubrics: three packs of two."""


def expected(folder: Path) -> tuple[Graphed, int]:
    """What one process makes of the six, and the calls that it takes."""
    with shared() as opened:
        graphs = graphed(run_of(folder, WEIGHTS), study())
    return graphs, opened[0].calls


class Model:
    """Answers until it is killed; remembers what it answered, however often it is opened."""

    def __init__(self) -> None:
        self.answered: list[str] = []
        self.most = 10**9

    def __call__(self, request: Request) -> Reply | KeyboardInterrupt:
        if len(self.answered) == self.most:
            return KeyboardInterrupt()
        self.answered.append(digest(request, "m"))
        return right(request)


@settings(max_examples=4)
@given(survived=st.lists(st.integers(0, 9), min_size=1, max_size=3))
def test_a_killed_command_asks_nothing_twice(tmp_path_factory: pytest.TempPathFactory, survived: list[int]) -> None:
    folder, model = tmp_path_factory.mktemp("killed"), Model()
    run = run_of(folder, WEIGHTS)
    for calls in survived:
        model.most = len(model.answered) + calls
        with shared(model, workers=2), suppress(KeyboardInterrupt):
            graphed(run, study(), DASK)
    model.most = 10**9
    graphs, calls = expected(folder / "alone")
    with shared(model, workers=2):
        assert graphed(run, study(), DASK) == graphs
    assert len(model.answered) == len(set(model.answered)) == calls


@settings(max_examples=2)
@given(tokens=st.integers(3_000, 6_000))
def test_a_budget_ends_the_packs_together_and_what_is_left_is_for_the_judge(
    tmp_path_factory: pytest.TempPathFactory, tokens: int
) -> None:
    folder, model, graphs = tmp_path_factory.mktemp("budget"), Model(), None
    run, plan = run_of(folder, WEIGHTS), study(sampling={"max_tokens": 1})
    budget = 0
    while graphs is None:
        budget += tokens
        with suppress(BudgetSpent), kept_budget(run.warehouse, "run", budget, None), shared(model, workers=2):
            graphs = graphed(run, plan, DASK)
        assert TOKENS * len(model.answered) <= budget
        with closing(CallLedger(ledger_of(run.warehouse))) as ledger:
            assert ledger.drawn("run tokens") == (TOKENS * len(model.answered), budget)
    assert len(model.answered) == len(set(model.answered)) == expected(folder / "alone")[1]


def test_a_worker_opens_its_model_once_with_its_share_of_the_limits(tmp_path: Path) -> None:
    crews, shares = list[CrewHere](), list[Sharing]()
    with shared(pack=1, workers=2, crews=crews), pytest.MonkeyPatch.context() as patched:
        opens = door.open_backend
        patched.setattr(door, "open_backend", lambda *_: (shares.append(sharing()), opens(*_))[1])
        graphed(run_of(tmp_path, WEIGHTS), study(), DASK)
    assert [(len(share.lanes), share.ledger is not None) for share in shares] == [(4, True)] * 2
    (crew,) = crews
    assert len(crew.sizes) == 5, "the rubric of one criterion needs no reply"
    assert max(crew.sizes) < 5_000, "what a piece takes along"


def test_where_every_reply_is_there_no_worker_is_needed_and_no_model(tmp_path: Path) -> None:
    with shared():
        graphs = graphed(run_of(tmp_path, WEIGHTS), study())
    again = Warehouse.open(tmp_path / "house").run("again")
    run = Warehouse.open(tmp_path / "house").run("run")
    again.commit("ingest", "all", {Items: run.read(run.ref(Items, "ingest"))})
    again.commit("lock", "all", {Bundles: run.read(run.ref(Bundles, "lock"))})
    with shared() as opened:
        assert [ref.digest for ref in graphed(again, study(), DASK)] == [ref.digest for ref in graphs]
    assert not opened


@pytest.mark.parametrize(("plan", "pack"), [(MODEL, 6), ({"backend": "stated"}, 2)])
def test_a_single_pack_and_what_criteria_state_need_no_workers(plan: dict[str, Any], pack: int, tmp_path: Path) -> None:
    with shared(pack=pack):
        assert graphed(run_of(tmp_path, WEIGHTS), studies.study(graph=plan), DASK).graphs.rows == 6


def test_replies_that_went_elsewhere_end_the_command_and_leave_no_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(door, "open_replies", lambda place: ReplyStore(":memory:"))
    run = run_of(tmp_path, WEIGHTS)
    with shared(workers=1), pytest.raises(UnansweredError, match="name a reply store that all workers write to"):
        graphed(run, study(), DASK)
    assert not run.done("graph", "all")

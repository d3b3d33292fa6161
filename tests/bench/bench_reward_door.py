"""The reward door on a large run: seconds, peak memory and rows, and where memory is held:
python tests/bench/bench_reward_door.py [RESPONSES] [CRITERIA] [RUBRICS].

Random graphs of about as many edges as criteria; judgments with probabilities. The door runs in a process of its own:
its peak (VmHWM) is not that of who wrote the run.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

sys.path.extend(str(folder) for folder in Path(__file__).resolve().parents[1:3])

import numpy as np
import pyarrow as pa
from builders import studies
from builders.rows import item, locked

from rubricflow.tasks.core.contracts.bundle import Bundle, Criterion, Protocol, Scale, Trait
from rubricflow.tasks.core.contracts.graph import Edge, Graph, Node
from rubricflow.tasks.core.contracts.schema import Row, schema
from rubricflow.tasks.core.contracts.tables.data import Items, Responses
from rubricflow.tasks.core.contracts.tables.judging import Gradings, Judgments
from rubricflow.tasks.core.contracts.tables.rubrics import Bundles, RubricGraphs
from rubricflow.tasks.core.store.warehouse import Run, Warehouse
from rubricflow.tasks.rewards.reward import task as door

SHARD = 50_000
"""Responses whose judgments are written together."""
RETENTION = {"weak_prerequisite": 0.6, "strong_prerequisite": 0.2, "activation": 0.0}


def rubric_of(rng: np.random.Generator, criteria: int) -> tuple[Bundle, Graph]:
    """A bundle and a random acyclic graph of at most as many edges as criteria."""
    names = [f"criterion-{number}" for number in range(criteria)]
    weights = rng.integers(1, 11, criteria)
    bundle = Bundle(
        text="",
        scale=Scale(min=0, max=1),
        traits=(Trait(id="t", name="T", min=0, max=1),),
        criteria=tuple(
            Criterion(id=name, trait="t", text="Says it.", weight=int(weight))
            for name, weight in zip(names, weights, strict=True)
        ),
        protocol=Protocol(name="pointwise", final_score="weighted_points", signals=("score",)),
    )
    pairs = [(parent, child) for child in range(criteria) for parent in range(child)]
    chosen = rng.choice(len(pairs), min(len(pairs), criteria), replace=False)
    edges = tuple(
        Edge(parent=names[pairs[number][0]], child=names[pairs[number][1]], relation=rng.choice(list(RETENTION)))
        for number in chosen
    )
    return bundle, Graph(nodes=tuple(Node(criterion_id=name, role="core") for name in names), edges=edges)


def graph_row(name: str, graph: Graph) -> dict[str, object]:
    """Its row of `rubric_graphs`."""
    counts = dict.fromkeys(("candidates", "proposed", "kept", "invalid", "failed", "roles_missing", "depth"), 0)
    said = {"annotator": "none", "profile": "none", "source_digest": "", "made_from": {}, "calls": []}
    identity = {"rubric_id": name, "graph_id": graph.graph_id, "content": graph.canonical()}
    return identity | said | counts | {"criteria": len(graph.nodes)}


def columns(row: type[Row], length: int, known: dict[str, pa.Array]) -> pa.Table:
    """A table of these columns, null in the others."""
    want = schema(row)
    nothing = {field.name: pa.nulls(length, field.type) for field in want if field.name not in known}
    return pa.Table.from_arrays(
        [(nothing | known)[name].cast(want.field(name).type) for name in want.names], schema=want
    )


def empty(length: int, kind: pa.DataType) -> pa.Array:
    """So many empty lists or maps."""
    return pa.array([[]] * length, kind)


def judgments(rng: np.random.Generator, names: pa.Array, criteria: int) -> pa.Table:
    """Those of some responses, with two levels and the probability of each."""
    rows = len(names) * criteria
    share = np.round(rng.random(rows), 3)
    likely = pa.ListArray.from_arrays(np.arange(0, 2 * rows + 1, 2), np.column_stack([1 - share, share]).ravel())
    decided = pa.array((share >= 0.5).astype(np.int64))
    known = {
        "response_id": names.take(pa.array(np.repeat(np.arange(len(names)), criteria))),
        "criterion_id": pa.array([f"criterion-{number}" for number in range(criteria)] * len(names)),
        "rater_id": pa.repeat("judge", rows),
        "rater_kind": pa.repeat("llm", rows),
        "sample": pa.array(np.zeros(rows, np.int64)),
        "decision": decided,
        "stated": decided,
        "level_probabilities": likely,
        "evidence": empty(rows, schema(Judgments).field("evidence").type),
        "action": pa.repeat("none", rows),
    }
    return columns(Judgments, rows, known)


def parts(responses: int, rubrics: int) -> Iterator[tuple[pa.Array, pa.Array]]:
    """Ids of responses with their items', a shard at a time."""
    for start in range(0, responses, SHARD):
        numbers = range(start, min(responses, start + SHARD))
        yield pa.array([f"response-{n:07d}" for n in numbers]), pa.array([f"rubric-{n % rubrics}" for n in numbers])


def write(run: Run, responses: int, criteria: int, rubrics: int) -> None:
    """All that the door reads."""
    rng = np.random.default_rng(0)
    built = {f"rubric-{number}": rubric_of(rng, criteria) for number in range(rubrics)}
    answered = []
    for number, (names, item_ids) in enumerate(parts(responses, rubrics)):
        run.commit("judge", f"{number:05d}", {Judgments: judgments(rng, names, criteria)})
        groups = empty(len(names), schema(Responses).field("groups").type)
        words = {"text": pa.repeat("Because.", len(names)), "split": pa.repeat("test", len(names)), "groups": groups}
        answered.append(columns(Responses, len(names), {"response_id": names, "item_id": item_ids, **words}))
    tables = {Items: [item(name) for name in built], Responses: pa.concat_tables(answered), Gradings: []}
    run.commit("ingest", "all", tables)
    run.commit("lock", "all", {Bundles: [locked(bundle, name) for name, (bundle, _) in built.items()]})
    run.commit("graph", "all", {RubricGraphs: [graph_row(name, graph) for name, (_, graph) in built.items()]})


def held() -> tuple[float, float]:
    """MiB that this process holds, and the most that it has held."""
    lines = Path("/proc/self/status").read_text().splitlines()
    now, most = (next(line for line in lines if line.startswith(name)) for name in ("VmRSS", "VmHWM"))
    return int(now.split()[1]) / 1024, int(most.split()[1]) / 1024


def told(name: str) -> None:
    """Has a function that the door calls say what is held, and has been held at most, when it has ended."""
    act = getattr(door, name)

    def telling(*arguments: object, **named: object) -> object:
        started = time.perf_counter()
        made = act(*arguments, **named)
        now, most = held()
        print(f"{name}: {time.perf_counter() - started:.1f} s, {now:,.0f} MiB held, {most:,.0f} at most")
        return made

    setattr(door, name, telling)


def pay(folder: str) -> None:
    """Runs the door over the run in a folder and prints its figures."""
    run, study = Warehouse.open(Path(folder)).run("run"), studies.study(reward={"retention": RETENTION})
    for name in ("judged_responses", "write_rewards"):
        told(name)
    tables = [run.ref(row, stage) for row, stage in REFERENCES]
    before, started = held()[0], time.perf_counter()
    paid = door.reward.fn(run, study, Path(folder), *tables)
    seconds, peak = time.perf_counter() - started, held()[1]
    rows = ", ".join(f"{ref.rows:,} {ref.table}" for ref in paid)
    print(f"{tables[1].rows:,} responses, {tables[-1].rows:,} judgments: {rows}")
    each = 100_000 * seconds / tables[1].rows
    print(f"{seconds:.1f} s ({each:.1f} s for 100,000 responses), peak {peak:,.0f} MiB, {before:,.0f} of it before")
    print(f"processor time {sum(resource.getrusage(resource.RUSAGE_SELF)[:2]):.0f} s")


REFERENCES = (
    (Items, "ingest"),
    (Responses, "ingest"),
    (Gradings, "ingest"),
    (Bundles, "lock"),
    (RubricGraphs, "graph"),
    (Judgments, "judge"),
)
"""Tables that the door takes, and the stages that wrote them."""


def main(responses: int = 100_000, criteria: int = 10, rubrics: int = 1_000) -> None:
    """Writes a run and rewards it in another process."""
    with tempfile.TemporaryDirectory() as folder:
        write(Warehouse.open(Path(folder)).run("run"), responses, criteria, rubrics)
        subprocess.run([sys.executable, __file__, "--pay", folder], check=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--pay"]:
        pay(sys.argv[2])
    else:
        main(*map(int, sys.argv[1:]))

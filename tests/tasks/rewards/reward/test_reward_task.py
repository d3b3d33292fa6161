"""The entry point of reward on random runs: killed wherever, its tables are the same."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from builders import studies
from builders.rows import grading, item, judgment, locked, response
from hypothesis import given, settings
from hypothesis import strategies as st
from rubric_graphs import RETENTION, bundle, graph

from rubricflow.tasks.core.contracts.graph import Graph
from rubricflow.tasks.core.contracts.schema import TableRef
from rubricflow.tasks.core.contracts.tables.data import Items, Responses
from rubricflow.tasks.core.contracts.tables.judging import Gradings, Judgments
from rubricflow.tasks.core.contracts.tables.rubrics import Bundles, RubricGraphs
from rubricflow.tasks.core.store.warehouse import Run, Warehouse
from rubricflow.tasks.rewards.reward.task import reward

RELATIONS = ("weak_prerequisite", "strong_prerequisite", "activation")
SEEDS = st.integers(0, 2**32 - 1)
Inputs = tuple[TableRef, ...]


def study(unscored: str = "null") -> Any:
    return studies.study(
        reward={"retention": RETENTION.model_dump(), "draws": 5},
        judge={"unscored": unscored},
    )


def drawn(rng: np.random.Generator, count: int) -> Graph:
    """A random graph of one relation."""
    pairs = [(a, b) for b in range(count) for a in range(b) if rng.random() < 0.4]
    return graph(count, pairs, str(rng.choice(RELATIONS)))


def row_of(name: str, content: Graph) -> dict[str, Any]:
    """A graph's row of `rubric_graphs`."""
    counts = ("criteria", "candidates", "proposed", "kept", "invalid", "failed", "roles_missing", "depth")
    said = {"annotator": "none", "profile": "none", "source_digest": "", "made_from": {}, "calls": []}
    identity = {"rubric_id": name, "graph_id": content.graph_id, "content": content.canonical()}
    return identity | said | dict.fromkeys(counts, 0)


def verdict(rng: np.random.Generator, response_id: str, criterion: int, rater: str, sample: int) -> dict[str, Any]:
    """A judgment with a probability, without one, or unscored."""
    level = None if rng.random() < 0.1 else int(rng.integers(2))
    share = round(float(rng.random()), 2)
    likely = [1 - share, share] if level is not None and rng.random() < 0.7 else None
    return judgment(response_id, f"c{criterion}", level, rater, sample=sample, level_probabilities=likely)


def written(folder: str | Path, seed: int) -> tuple[Run, Inputs]:
    """A random run as the door reads it: judgments of several raters, dealt to shards in any order."""
    rng, run = np.random.default_rng(seed), Warehouse.open(Path(folder)).run("run")
    sizes = rng.integers(1, 6, 3).tolist()
    bundles = [bundle(rng.choice([-3.0, 1.0, 2.0, 5.0], size).tolist()) for size in sizes]
    graphs = [drawn(rng, size) for size in sizes]
    of = rng.integers(0, 3, 20).tolist()
    answers = [response(f"r{n}", f"i{rubric}") for n, rubric in enumerate(of)]
    given = [("m", 0), ("m", 1), ("other", 0)][: int(rng.integers(1, 4))]
    verdicts = [
        verdict(rng, f"r{n}", criterion, *whose)
        for n, rubric in enumerate(of)
        for whose in given
        for criterion in range(sizes[rubric])
    ]
    people = [grading(f"r{n}", "h", float(rng.integers(5)), item_id=f"i{of[n]}") for n in range(10)]
    run.commit("ingest", "all", {Items: [item(f"i{n}") for n in range(3)], Responses: answers, Gradings: people})
    run.commit("lock", "all", {Bundles: [locked(content, f"i{n}") for n, content in enumerate(bundles)]})
    run.commit("graph", "all", {RubricGraphs: [row_of(f"i{n}", content) for n, content in enumerate(graphs)]})
    shuffled = [verdicts[place] for place in rng.permutation(len(verdicts))]
    for number, start in enumerate(range(0, len(shuffled), 50)):
        run.commit("judge", f"{number:05d}", {Judgments: shuffled[start : start + 50]})
    stages = ((Items, "ingest"), (Responses, "ingest"), (Gradings, "ingest"), (Bundles, "lock"))
    others = ((RubricGraphs, "graph"), (Judgments, "judge"))
    return run, tuple(run.ref(row, stage) for row, stage in (*stages, *others, others[-1]))


def digests(run: Run, inputs: Inputs, unscored: str = "null") -> list[str]:
    return [ref.digest for ref in reward.fn(run, study(unscored), Path(), *inputs)]


@settings(max_examples=1)
@given(SEEDS)
def test_killed_wherever_it_goes_on_to_the_same_tables(seed: int) -> None:
    rng = np.random.default_rng(seed)
    with tempfile.TemporaryDirectory() as whole, tempfile.TemporaryDirectory() as harmed:
        clean, inputs = written(whole, seed)
        expected = digests(clean, inputs)
        last = rng.choice(sorted(clean.shards("reward")))
        run, inputs = written(harmed, seed)
        with pytest.MonkeyPatch.context() as parted:
            parted.setattr("rubricflow.tasks.rewards.reward.rows.PART", 7)  # of which no table knows
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(Run, "commit", killed_at(str(last)))
                with pytest.raises(KeyboardInterrupt):
                    digests(run, inputs)
            assert not run.done("reward", "all")
            assert digests(run, inputs) == expected
        assert len(run.shards("reward")) > len(clean.shards("reward"))


def killed_at(name: str) -> Any:
    """A commit that dies before it writes this shard."""
    commit = Run.commit

    def dying(self: Run, stage: str, shard: str, tables: Mapping[Any, Any]) -> None:
        if (stage, shard) == ("reward", name):
            raise KeyboardInterrupt
        commit(self, stage, shard, tables)

    return dying

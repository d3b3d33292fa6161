"""Rubrics and responses for the tests of this room."""

import networkx as nx
import numpy as np
import pyarrow as pa

from rubricflow.tasks.core.contracts.settings.reward import Retention, Reward
from rubricflow.tasks.rewards.reward.compiled import CompiledGraph, batch
from rubricflow.tasks.rewards.reward.local import Locals

FACTORS = {"weak_prerequisite": 0.6, "strong_prerequisite": 0.2, "activation": 0.0}
WEAK, STRONG, ACTIVATION = FACTORS


def study(**given):
    """The paper's factors, with few draws."""
    return Reward(retention=Retention(**FACTORS), **{"draws": 50, "seed": 7, **given})


def rubric(weights, edges, name="rubric"):
    """A rubric of criteria c0, c1, … ; edges: (parent, child, relation), parents before children in number."""
    edges = sorted(edges, key=lambda edge: (edge[1], edge[0]))
    return CompiledGraph(
        rubric_id=name,
        graph_id=f"graph of {name}",
        criteria=tuple(f"c{at}" for at in range(len(weights))),
        weights=np.array(weights, dtype=float),
        order=np.arange(len(weights), dtype=np.int32),
        parent=np.array([parent for parent, _, _ in edges], dtype=np.int32),
        child=np.array([child for _, child, _ in edges], dtype=np.int32),
        relation=tuple(relation for _, _, relation in edges),
        retention=np.array([FACTORS[relation] for _, _, relation in edges]),
    )


def random_rubric(rng, name="rubric", most=7):
    """Up to `most` criteria with weights of either sign, each pair an edge with probability 0.4."""
    k = int(rng.integers(1, most + 1))
    pairs = [(parent, child) for child in range(k) for parent in range(child) if rng.random() < 0.4]
    return rubric(
        rng.choice([-5.0, -1.0, 2.0, 7.0], k), [(a, b, rng.choice(list(FACTORS)).item()) for a, b in pairs], name
    )


def locals_of(rubrics, of, scores, items=None):
    """Responses r0, r1, … with these scores, one list for each, None where unscored; items: of each response."""
    flat = [score for row in scores for score in row]
    items = items or [f"i{at}" for at in range(len(of))]
    return Locals(
        batch=batch(
            rubrics,
            np.array(of, dtype=np.int32),
            np.array([0.0 if score is None else score for score in flat]),
            np.array([score is not None for score in flat], dtype=bool),
        ),
        response_id=pa.array([f"r{at}" for at in range(len(of))], pa.string()),
        item_id=pa.array(items, pa.string()),
        rater_id=pa.array(["judge"] * len(of), pa.string()),
        sample=pa.array([0] * len(of), pa.int64()),
        decided_by=pa.array(["probability"] * len(of), pa.string()),
    )


def random_locals(rng, responses=12, items=5, unscored=0.1):
    """Responses under three random rubrics; scores are tenths, so that some stand on the threshold."""
    rubrics = [random_rubric(rng, f"rubric{at}") for at in range(3)]
    of = rng.integers(0, 3, responses).tolist()
    scores = [
        [None if rng.random() < unscored else int(rng.integers(0, 11)) / 10 for _ in rubrics[at].criteria] for at in of
    ]
    return locals_of(rubrics, of, scores, [f"i{rng.integers(items)}" for _ in of])


def rows_of(locals_):
    """(response, rubric, start of its scores) of every response."""
    whole = locals_.batch
    return [(n, whole.compiled[whole.rubric_index[n]], int(whole.start[n])) for n in range(len(whole.rubric_index))]


def ancestors(one, place):
    """The places of all that a criterion depends on."""
    graph = nx.DiGraph(zip(one.parent.tolist(), one.child.tolist(), strict=True))
    graph.add_node(place)
    return nx.ancestors(graph, place)

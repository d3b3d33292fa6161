"""Rewards a second on one core, beside plain Python and NumPy on the same data, and exact beside topological
marginals: python tests/bench/bench_reward.py [RESPONSES].

Random rubrics of HealthBench's size: 11.5 criteria and 10.9 edges in the mean, weights from -10 to 10.
"""

import gc
import os
import sys
import time
from pathlib import Path

os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = os.environ["NUMBA_NUM_THREADS"] = "1"
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import numpy as np

from rubricflow.tasks.core.contracts.bundle import Bundle, Criterion, Protocol, Scale, Trait
from rubricflow.tasks.core.contracts.graph import Edge, Graph, Node
from rubricflow.tasks.core.contracts.settings.reward import Retention
from rubricflow.tasks.rewards.reward.aggregate import aggregate
from rubricflow.tasks.rewards.reward.compiled import batch, compile_graph

RESPONSES, RUBRICS = 100_000, 1_000
CRITERIA, EDGES = 11.5, 10.9
PER_PROMPT = 8
REPEATS = 9
SLOW_REPEATS = 3
RETENTION = Retention(weak_prerequisite=0.6, strong_prerequisite=0.2, activation=0.0)
SMALL = 14
"""Criteria of the graphs that the paper compares with enumeration."""
TABLE_6 = "Table 6, HealthBench: marginal MAE 0.0068, reward MAE 0.0042, correlation 0.9968"


def rubric_of(rng, criteria):
    """A bundle and a random acyclic graph, compiled."""
    names = [f"criterion-{at}" for at in range(criteria)]
    bundle = Bundle(
        text="",
        scale=Scale(min=0, max=1),
        traits=(Trait(id="t", name="T", min=0, max=1),),
        criteria=tuple(
            Criterion(id=name, trait="t", text="Says it.", weight=int(rng.integers(-10, 11)) or 1) for name in names
        ),
        protocol=Protocol(name="pointwise", final_score="weighted_points", signals=("score",)),
    )
    order = rng.permutation(criteria)
    pairs = [(order[a], order[b]) for b in range(criteria) for a in range(b)]
    count = min(len(pairs), rng.poisson(EDGES))
    edges = [pairs[at] for at in rng.choice(len(pairs), count, replace=False)] if pairs else []
    relations = rng.choice(list(RETENTION.model_dump()), len(edges))
    graph = Graph(
        nodes=tuple(Node(criterion_id=name, role="core") for name in names),
        edges=tuple(
            Edge(parent=names[a], child=names[b], relation=relation)
            for (a, b), relation in zip(edges, relations, strict=True)
        ),
    )
    return bundle, graph


def rubrics_of(rng, count, most=None):
    """(compiled rubrics, seconds to compile them); most: no rubric has more criteria."""
    sizes = np.clip(rng.poisson(CRITERIA, count), 1, most)
    made = {f"rubric-{at}": rubric_of(rng, int(size)) for at, size in enumerate(sizes)}
    started = time.perf_counter()
    compiled = [compile_graph(name, bundle, graph, RETENTION) for name, (bundle, graph) in made.items()]
    return compiled, time.perf_counter() - started


def scored(rng, compiled, of):
    """A batch with local scores of every kind: certain ones, likely ones, and in between."""
    sizes = np.array([len(one.criteria) for one in compiled])[of]
    return batch(compiled, of, np.round(rng.beta(0.5, 0.5, sizes.sum()), 3))


def best(act, repeats=REPEATS):
    """Result and least processor time of some runs."""
    gc.collect()
    gc.freeze()  # the samples are no part of the work
    times = []
    for _ in range(repeats):
        started = time.process_time()
        result = act()
        times.append(time.process_time() - started)
    return result, min(times)


def plain(responses, of, graphs):
    """Eqs. 12-14 as they are written, criteria by name, one response after the other."""
    found = []
    for local, which in zip(responses, of, strict=True):
        order, parents, weights, mass = graphs[which]
        marginal = {}
        for criterion in order:
            share = local[criterion]
            for parent, kept in parents[criterion]:
                share *= marginal[parent] + (1 - marginal[parent]) * kept
            marginal[criterion] = share
        found.append(sum(weight * marginal[criterion] for criterion, weight in weights.items()) / mass)
    return found


def by_numpy(one):
    """The same in NumPy: the responses of a rubric together, edge by edge."""
    found = np.empty(len(one.rubric_index))
    grouped = np.argsort(one.rubric_index, kind="stable")
    ends = np.cumsum(np.bincount(one.rubric_index, minlength=len(one.compiled)))
    for compiled, responses in zip(one.compiled, np.split(grouped, ends[:-1]), strict=True):
        marginal = one.local[one.start[responses] + np.arange(len(compiled.criteria))[:, None]]
        for parent, child, kept in zip(compiled.parent, compiled.child, compiled.retention, strict=True):
            marginal[child] *= marginal[parent] + (1 - marginal[parent]) * kept
        found[responses] = compiled.weights @ marginal / compiled.mass
    return found


def named(compiled):
    """What `plain` needs of a rubric."""
    parents = {name: [] for name in compiled.criteria}
    for (parent, child), kept in zip(compiled.edges, compiled.retention.tolist(), strict=True):
        parents[child].append((parent, kept))
    weights = dict(zip(compiled.criteria, compiled.weights.tolist(), strict=True))
    return [compiled.criteria[at] for at in compiled.order], parents, weights, compiled.mass


def compare(name, one):
    """Print the rates of all implementations on one batch; their rewards must agree."""
    lists = [part.tolist() for part in np.split(one.local, one.start[1:-1])]
    dicts = [
        dict(zip(one.compiled[at].criteria, local, strict=True))
        for at, local in zip(one.rubric_index, lists, strict=True)
    ]
    of = one.rubric_index.tolist()
    by_name = [named(compiled) for compiled in one.compiled]
    ours, fast = best(lambda: aggregate(one, "gear").reward)
    _, checked = best(lambda: aggregate(batch(one.compiled, one.rubric_index, one.local), "gear").reward)
    others = {
        "plain Python": best(lambda: plain(dicts, of, by_name), SLOW_REPEATS),
        "NumPy, a rubric at a time": best(lambda: by_numpy(one), SLOW_REPEATS),
    }
    n = len(of)
    print(f"{n:,} responses, {name}: ours {1e3 * fast:.2f} ms, {n / fast:,.0f} rewards/s; ", end="")
    print(f"with the local scores checked first {1e3 * checked:.2f} ms, {n / checked:,.0f}/s")
    for label, (found, took) in others.items():
        gap = np.abs(np.array(found) - ours).max()
        print(f"  {label}: {1e3 * took:.0f} ms, {n / took:,.0f} rewards/s; ", end="")
        print(f"ours is {took / fast:.0f} times as fast; largest difference {gap:.0e}")
        assert gap < 1e-12


def agreement(name, one):
    """Print how far the topological update is from exact marginals and rewards on a batch."""
    update, took = best(lambda: aggregate(one, "gear"))
    exact, took_exact = best(lambda: aggregate(one, "gear", inference="exact"), SLOW_REPEATS)
    apart = np.abs(update.marginal - exact.marginal).mean(), np.abs(update.reward - exact.reward).mean()
    together = np.corrcoef(update.reward, exact.reward)[0, 1]
    responses, criteria = len(one.rubric_index), len(one.local)
    print(
        f"{name}, {responses:,} responses, {criteria / responses:.2f} criteria: marginal MAE {apart[0]:.4f}, "
        f"reward MAE {apart[1]:.4f}, correlation {together:.4f}; {1e3 * took:.1f} and {1e3 * took_exact:.0f} ms"
    )


def main():
    rng = np.random.default_rng(0)
    n = int(sys.argv[1]) if len(sys.argv) > 1 else RESPONSES
    compiled, took = rubrics_of(rng, RUBRICS)
    sizes = [(len(one.criteria), len(one.parent)) for one in compiled]
    print(
        f"{RUBRICS:,} rubrics, compiled once in {took:.2f} s; in the mean {np.mean(sizes, axis=0).round(1).tolist()} "
        f"criteria and edges. One core; processor time, best of {REPEATS}, of {SLOW_REPEATS} for what is compared with."
    )
    of = rng.integers(0, RUBRICS, n)
    compare("rubrics shuffled", scored(rng, compiled, of))
    compare(f"{PER_PROMPT} in a row", scored(rng, compiled, np.repeat(of, PER_PROMPT)[:n]))
    print(TABLE_6)
    small, _ = rubrics_of(rng, RUBRICS, SMALL)
    agreement("random graphs", scored(rng, small, np.repeat(np.arange(RUBRICS), 5)))


if __name__ == "__main__":
    main()

"""Are HealthBench's edges right? python tests/studies/graph_claims.py write|read --to FOLDER --warehouse DIR

write: what readers are to judge of the edges of a finished run of `graphs.py healthbench`: each edge in a claim the way
round that it has and in one the other way, in two arms, so that nobody reads both, and as many pairs of the same
rubrics drawn by chance that their roles allow and no reply named. `claims-1` and `claims-2` hold the cases, and
`claims.jsonl` which claim is which. read: what two readers of each arm said, in `claims-N/a` and `claims-N/b`.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from graphs import only_run

from rubricflow.tasks.core.contracts.bundle import unlocked
from rubricflow.tasks.core.contracts.graph import Graph
from rubricflow.tasks.core.contracts.tables.data import Items
from rubricflow.tasks.core.contracts.tables.rubrics import Bundles, GraphEdges, RubricGraphs
from rubricflow.tasks.rewards.graph.subject import candidates

QUESTION = """\
A response to a query is scored by criteria with points. Each claim is about two criteria of one rubric, X and Y, \
and says that X needs Y: where a response plainly fails Y, the points of X should be withheld at least in part, even \
if X seems to be met there, because what X asks for is made from, about, a detail of, or only applies given what Y \
asks for. Decide by reading whether the claim is right: yes or no.

For a criterion with negative points, "met" means the fault is there: it needs the other one where the fault can \
only be committed, or only counts, given that other one.
Being about the same subject, sharing words or standing in one answer is no need. Two criteria that say the same do \
not need each other. A penalty for leaving something out does not need the criterion that asks for that very thing. \
The direction counts: that X needs Y does not say that Y needs X.
Think of a response in which Y plainly fails and X seems met: would a careful grader still give the points of X in \
full? Then the claim is wrong.
"""

REPLY = 'Reply with one JSON object and nothing else: {"1": "yes" or "no", ...}, with every claim by its number.'


def claims(folder: Path, warehouse: Path, start: int) -> None:
    """Writes the cases of the rubrics from a place of the draw on."""
    run = only_run(folder, warehouse)
    prompts = pd.read_parquet(folder / "prompts_rubrics.parquet")["prompt_key"].tolist()[start:]
    items = {item["rubric_id"]: item for item in run.table(Items, "ingest").to_pylist()}
    bundles = unlocked(run.table(Bundles, "lock").to_pylist())
    edges = run.table(GraphEdges, "graph").to_pandas()
    rows = run.table(RubricGraphs, "graph").to_pylist()
    graphs = {row["rubric_id"]: Graph.model_validate_json(row["content"]) for row in rows}
    rng = np.random.default_rng(39)
    claimed = list[dict[str, Any]]()
    for name in sorted(bundles):
        kept = edges[(edges["rubric_id"] == name) & edges["kept"]]
        if items[name]["item_id"] not in prompts or kept.empty:
            continue
        proposed = edges[edges["rubric_id"] == name]
        named = set(zip(proposed["parent"], proposed["child"], strict=True))
        roles = {node.criterion_id: node.role for node in graphs[name].nodes}
        others = [pair for pair in candidates(roles) if not {pair, pair[::-1]} & named]
        drawn = [others[at] for at in rng.permutation(len(others))[: len(kept)]]
        for pairs, kind in ((zip(kept["parent"], kept["child"], strict=True), "edge"), (drawn, "random")):
            for parent, child in pairs:
                first = int(rng.integers(2))
                one = {"rubric_id": name, "kind": kind, "parent": parent, "child": child}
                claimed.append(one | {"arm": first, "x": child, "y": parent})
                if kind == "edge":
                    claimed.append(one | {"arm": 1 - first, "kind": "reversed", "x": parent, "y": child})
    for arm in (0, 1):
        of_arm = [claimed[at] for at in rng.permutation(len(claimed)) if claimed[at]["arm"] == arm]
        rubrics = list(dict.fromkeys(one["rubric_id"] for one in of_arm))
        cases = folder / f"claims-{arm + 1}" / "cases"
        cases.mkdir(parents=True)
        (cases.parent / "instructions.txt").write_text(QUESTION)
        for number in range(-(-len(rubrics) // 3)):
            text, at = list[str](), 0
            for name in rubrics[3 * number : 3 * number + 3]:
                text.append(f'The query:\n"""\n{items[name]["question"]}\n"""\n')
                for one in (one for one in of_arm if one["rubric_id"] == name):
                    at += 1
                    one |= {"case": f"case-{number + 1:02d}", "number": at}
                    shown = (
                        f"{key.upper()} ({c.weight:+g} points): {shorten(c.text)}"
                        for key in "xy"
                        for c in bundles[name].whole
                        if c.id == one[key]
                    )
                    text.append("\n".join((f"Claim {at}: X needs Y", *shown, "")))
            text.append(REPLY)
            (cases / f"case-{number + 1:02d}.txt").write_text("\n".join(text))
    (folder / "claims.jsonl").write_text("\n".join(map(json.dumps, claimed)))


def precision(folder: Path, warehouse: Path) -> None:
    """What two readers say of the claims about the edges that a run kept, and of those drawn with them, with intervals
    over rubrics; their replies lie in `claims-N/a` and `claims-N/b`."""
    claimed = pd.read_json(folder / "claims.jsonl", lines=True, dtype={"rubric_id": str})
    for reader in "ab":
        said = [
            json.loads((folder / f"claims-{one.arm + 1}" / reader / f"{one.case}.json").read_text())[str(one.number)]
            for one in claimed.itertuples()
        ]
        claimed[reader] = np.array(said) == "yes"
    rows = only_run(folder, warehouse).table(GraphEdges, "graph").to_pandas()
    pair = ["rubric_id", "parent", "child"]
    kept = claimed.merge(rows[rows["kept"]][[*pair, "relation"]], on=pair)
    drawn = claimed[claimed["kind"] == "random"]
    edges, turned = kept[kept["kind"] == "edge"], kept[kept["kind"] == "reversed"]
    parts = [("edges", edges), ("the other way round", turned), ("drawn by chance", drawn)]
    parts += [(f"edges, {name}", part) for name, part in edges.groupby("relation")]
    for name, part in (*parts, ("all claims", claimed)):
        a, b = part["a"].to_numpy(), part["b"].to_numpy()
        sums = (
            part.assign(n=1, mean=(a.astype(float) + b) / 2, both=a & b)
            .groupby("rubric_id")[["n", "mean", "a", "b", "both"]]
            .sum()
        )
        draws = np.random.default_rng(39).integers(0, len(sums), (2000, len(sums)))
        of_draws = sums.to_numpy(dtype=float)[draws].sum(axis=1)
        low, high = np.percentile(of_draws[:, 1:] / of_draws[:, :1], (2.5, 97.5), axis=0)
        print(f"{name}: {len(part)} of {len(sums)} rubrics; right by", end="")
        for at, key in enumerate(("mean", "a", "b", "both")):
            print(f" {key} {sums[key].sum() / len(part):.3f} [{low[at]:.3f}, {high[at]:.3f}]", end="")
        by_chance = a.mean() * b.mean() + (1 - a.mean()) * (1 - b.mean())
        agree = np.mean(a == b)
        print(f"; readers agree {agree:.3f}, kappa {(agree - by_chance) / (1 - by_chance + 1e-12):.3f}")


def shorten(text: str) -> str:
    """A criterion without its middle where it is long."""
    return text if len(text) <= 700 else f"{text[:500]} [...] {text[-150:]}"


def main() -> None:
    """Write the cases, or read the replies."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("write", "read"))
    parser.add_argument("--to", type=Path, required=True)
    parser.add_argument("--warehouse", type=Path, required=True)
    parser.add_argument("--start", type=int, default=0, help="how many of the first rubrics were written before")
    given = parser.parse_args()
    if given.what == "write":
        claims(given.to, given.warehouse, given.start)
    else:
        precision(given.to, given.warehouse)


if __name__ == "__main__":
    main()

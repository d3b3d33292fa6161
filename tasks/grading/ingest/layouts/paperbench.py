"""What the columns of PaperBench need before they map: trees, a row a node, become items with their criteria."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Any

import pandas as pd

POINTS = 100.0
"""Points of a paper, shared out among its upper criteria by their weights, and so on downwards."""
Node = Mapping[Hashable, Any]


def prepare(file: str, frame: pd.DataFrame) -> pd.DataFrame:
    """A row for each paper, numbered as its first node: the root says what is asked, the nodes below are its criteria.

    All nodes of a paper stand in one chunk. Nodes that differ only in their place among the siblings are one.
    """
    cells = [name for name in frame.columns if name != "sibling_index"]
    rows: dict[str, list[Node]] = defaultdict(list)
    first: dict[str, int] = {}
    nodes = frame.loc[~frame[cells].duplicated()]
    for number, node in zip(nodes.index.tolist(), nodes.to_dict("records"), strict=True):
        rows[node["paper"]].append(node)
        first.setdefault(node["paper"], number)
    papers = []
    for name, nodes_of_paper in rows.items():
        question, criteria = _paper(nodes_of_paper)
        papers.append({"paper": name, "question": question, "criteria": criteria})
    columns = pd.Index(("paper", "question", "criteria"))
    return pd.DataFrame(papers, index=pd.Index(first.values()), columns=columns, dtype=object)


def _paper(nodes: Sequence[Node]) -> tuple[str | None, list[dict[str, Any]]]:
    """What the root demands, and the criteria below it; None and nothing where there is no single root."""
    below: defaultdict[str | None, list[Node]] = defaultdict(list)
    for node in nodes:
        below[node["parent_id"]].append(node)
    if len(below[None]) != 1:
        return None, []
    (root,) = below[None]
    return root["requirement"], list(_criteria(root, None, POINTS, below, _ids(nodes)))


def _ids(nodes: Sequence[Node]) -> dict[tuple[str | None, str], str]:
    """(parent, node) → id of the criterion: the node's own, after its parent's where several parents list it."""
    parents = Counter(node["node_id"] for node in nodes)
    pairs = [(node["parent_id"], node["node_id"]) for node in nodes]
    return {(parent, node): node if parents[node] == 1 else f"{parent}/{node}" for parent, node in pairs}


def _criteria(
    node: Node,
    name: str | None,
    points: float,
    below: Mapping[str | None, Sequence[Node]],
    ids: Mapping[tuple[str | None, str], str],
) -> Iterator[dict[str, Any]]:
    """The criteria below a node, depth first; siblings share its points by their weights. A leaf, which is judged
    alone, says what it is part of. name: of the criterion that the node is, None for the root."""
    children = below.get(node["node_id"], ())
    total = sum(child["weight"] for child in children) or 1.0  # criteria without points are refused with their rubric
    for child in children:
        child_name, share = ids[node["node_id"], child["node_id"]], points * child["weight"] / total
        is_alone = name is not None and child["node_id"] not in below
        text = f"{child['requirement']} (part of: {node['requirement']})" if is_alone else child["requirement"]
        yield {"id": child_name, "text": text, "weight": share, "parent": name}
        yield from _criteria(child, child_name, share, below, ids)

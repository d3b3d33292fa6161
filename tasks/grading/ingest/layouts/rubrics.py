"""What the columns of data sets with rubrics need before they map: a function each, (name of the file, a chunk of its
rows) → the chunk with columns that map."""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import pandas as pd

from rubricflow.tasks.core.store.cells import with_columns

POINTS = 100.0
"""Points of a paper of PaperBench, shared out among its upper criteria by their weights, and so on downwards."""
BANDS = ("1-2", "3-4", "5-6", "7-8", "9-10")
"""Of WritingBench's criteria, each worth WEIGHT points."""
WEIGHT = 10
Node = Mapping[Hashable, Any]
_MARK = re.compile(r"[（(]\s*(?P<sign>[+＋]?)\s*(?P<points>\d+(?:\.\d+)?)\s*(?P<unit>分?)\s*[)）]")


def healthbench(file: str, frame: pd.DataFrame) -> pd.DataFrame:
    """HealthBench: a conversation becomes a text with its roles, a verdict a level. A criterion gets an id of its
    points and text, since the graders list an item's criteria in orders of their own. Only the runs with a seed record
    a share of the points, the others the points themselves, which are left out."""
    if "criteria_met" in frame:
        graded = zip(frame["points"], frame["criterion"], frame["completion_id"], strict=True)
        met = [{"True": 1, "False": 0}.get(str(cell)) for cell in frame["criteria_met"]]
        return with_columns(frame, {"criterion_id": _healthbench_ids(graded), "met": met})
    if "recorded_score" in frame:
        return frame.assign(share=frame["recorded_score"].where(frame["run"].str.contains("|seed", regex=False)))
    columns: dict[str, list[Any]] = {"conversation": [], "theme": [], "criteria": []}
    for turns, tags, rubric in zip(
        frame["conversation_json"], frame["example_tags"], frame["rubric_json"], strict=True
    ):
        said = (f"{turn['role'].capitalize()}: {turn['content']}" for turn in json.loads(turns))
        columns["conversation"].append("\n\n".join(said))
        themes = (tag.removeprefix("theme:") for tag in json.loads(tags or "[]") if tag.startswith("theme:"))
        columns["theme"].append(next(themes, None))
        criteria = [(criterion["points"], criterion["criterion"]) for criterion in json.loads(rubric)]
        named = zip(_healthbench_ids(criteria), criteria, strict=True)
        columns["criteria"].append([{"id": name, "text": text, "weight": points} for name, (points, text) in named])
    return with_columns(frame, columns)


def _healthbench_ids(criteria: Iterable[tuple[Any, ...]]) -> list[str]:
    """Ids of criteria given as points, text and whom they belong to; of the same ones the second ends in '.2'."""
    counts: Counter[tuple[str, ...]] = Counter()
    ids = []
    for points, text, *owner in criteria:
        name = "C" + hashlib.sha256(f"{points:g} {text}".encode()).hexdigest()[:8]
        counts[name, *owner] += 1
        ids.append(name if counts[name, *owner] == 1 else f"{name}.{counts[name, *owner]}")
    return ids


def paperbench(file: str, frame: pd.DataFrame) -> pd.DataFrame:
    """PaperBench: trees, a row a node, become a row for each paper, numbered as its first node: the root is what is
    asked, the nodes below are its criteria; nothing of either where there is no single root.

    All nodes of a paper are in one chunk. Nodes that differ only in their place among the siblings are one.
    """
    cells = [name for name in frame.columns if name != "sibling_index"]
    papers = {}
    for name, nodes in frame.loc[~frame[cells].duplicated()].groupby("paper", sort=False, dropna=False):
        below = defaultdict(list)
        for node in nodes.to_dict("records"):
            below[node["parent_id"]].append(node)
        parents = Counter(nodes["node_id"])
        question, criteria = None, []
        if len(below[None]) == 1:
            (root,) = below[None]
            question, criteria = root["requirement"], list(_paper_criteria(root, None, POINTS, below, parents))
        papers[nodes.index[0]] = {"paper": name, "question": question, "criteria": criteria}
    columns = pd.Index(("paper", "question", "criteria"))
    return pd.DataFrame([*papers.values()], index=pd.Index(papers), columns=columns, dtype=object)


def _paper_criteria(
    node: Node,
    name: str | None,
    points: float,
    below: Mapping[str | None, Sequence[Node]],
    parents: Mapping[str, int],
) -> Iterator[dict[str, Any]]:
    """The criteria below a node, depth first; siblings share its points by their weights. A leaf, which is judged
    alone, names what it is part of.

    name: of the criterion that the node is, None for the root. A criterion's id is its node's, after the parent's where
    several parents list the node (parents: node → how many).
    """
    children = below.get(node["node_id"], ())
    total = sum(child["weight"] for child in children) or 1.0  # criteria without points are refused with their rubric
    for child in children:
        key, share = child["node_id"], points * child["weight"] / total
        child_name = key if parents[key] == 1 else f"{node['node_id']}/{key}"
        is_alone = name is not None and key not in below
        text = f"{child['requirement']} (part of: {node['requirement']})" if is_alone else child["requirement"]
        yield {"id": child_name, "text": text, "weight": share, "parent": name}
        yield from _paper_criteria(child, child_name, share, below, parents)


def plawbench(file: str, frame: pd.DataFrame) -> pd.DataFrame:
    """PLawBench: the criteria become lists, with sub-points where a criterion's text marks points, as in '（+5分）'."""
    lists = []
    for cell in frame["rubric_json"]:
        criteria = []
        for number, criterion in enumerate(json.loads(cell), 1):
            name, points = f"C{number}", float(criterion["points"])
            criteria.append({"id": name, "text": criterion["criterion"], "weight": points})
            for part, (text, weight) in enumerate(sub_points(criterion["criterion"], points), 1):
                criteria.append({"id": f"{name}.{part}", "text": text, "weight": weight, "parent": name})
        lists.append(criteria)
    return with_columns(frame, {"criteria": lists})


def sub_points(text: str, points: float) -> list[tuple[str, float]]:
    """Sub-points of a criterion as (text without the mark, points); none where fewer than two are marked.

    A sub-point begins with the line of its mark, or at a further mark of the line. What stands before the first, such
    as a condition for them all, is said with each. Unsigned marks, as in '（5分）', are read where the signed ones do
    not add up to the criterion's points and all do together, one of all the points being the criterion's own; a mark
    that the following ones split is their heading.
    """
    every = [match for match in _MARK.finditer(text) if match["sign"] or match["unit"]]
    marks = [match for match in every if match["sign"]]
    every = [match for match in every if match["sign"] or float(match["points"]) != points]
    if _total(marks) != points and _total(every) == points:
        marks = every
    begins = []
    for position, mark in enumerate(marks):
        line = text.rfind("\n", 0, mark.start()) + 1
        begins.append(line if position == 0 or marks[position - 1].end() <= line else mark.start())
    if _total(marks) != points:
        values = [float(mark["points"]) for mark in marks]
        for position in reversed(range(len(values))):
            if any(sum(values[position + 1 : end]) == values[position] for end in range(position + 3, len(values) + 1)):
                del marks[position], begins[position + 1]
    if len(marks) < 2:
        return []
    head, parts = text[: begins[0]].strip(), list[tuple[str, float]]()
    for begin, mark, end in zip(begins, marks, [*begins[1:], len(text)], strict=True):
        part = (text[begin : mark.start()] + text[mark.end() : end]).strip()
        parts.append((f"{head}\n{part}".strip(), float(mark["points"])))
    return parts


def _total(marks: Iterable[re.Match[str]]) -> float:
    return sum(float(mark["points"]) for mark in marks)


def writingbench(file: str, frame: pd.DataFrame) -> pd.DataFrame:
    """WritingBench: the criteria become lists; the ten levels are named by their score, a band's upper one also by its
    description."""
    lists = []
    for checklist in frame["checklist"]:
        criteria = []
        for number, criterion in enumerate(json.loads(checklist), 1):
            levels = []
            for band in BANDS:
                lower, upper = band.split("-")
                levels += [lower, f"{upper} (band {band}): {criterion[band]}"]
            text = f"{criterion['name']}: {criterion['criteria_description']}"
            criteria.append({"id": f"C{number}", "text": text, "weight": WEIGHT, "levels": levels})
        lists.append(criteria)
    return with_columns(frame, {"criteria": lists})

"""What the columns of public data sets need before they map: a function each, (name of the file, a chunk of its rows) →
the chunk with columns that map. First those that people scored, then those with rubrics."""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import pandas as pd

from rubricflow.tasks.core.contracts.errors import InputError
from rubricflow.tasks.core.store.cells import as_number, need, quoted, texts, with_columns
from rubricflow.tasks.core.text.digest import text_digest

_PARAGRAPH_MARK = re.compile(r"(?:(?<!\s)\s++)?\^\s?[pP]\s*")  # blanks are tried once, not from each
_TITLES = re.compile(r"\A(?:\s*(?:rubric range|scoring rubric)\s*:[^\n]*(?:\n|\Z))+", re.IGNORECASE)
_POINT_END = re.compile(r"(?<=[。；！？])|(?<=．)(?!\d)|(?<=[^\\];)|\n\s*\n")


def asap2(file: str, frame: pd.DataFrame) -> pd.DataFrame:
    """ASAP 2.0: the source texts of a prompt become one; rows without an essay's id are blank and go."""
    frame = frame.loc[[bool(str(cell or "").strip()) for cell in frame["essay_id"]]]
    names = sorted(name for name in frame.columns if name.startswith("source_text_"))
    rows = ([str(cell or "").strip() for cell in cells] for cells in frame[names].to_numpy())
    return with_columns(frame, {"source_texts": ["\n\n".join(filter(None, parts)) for parts in rows]})


TRAITS = {
    7: ("ideas", "organization", "style", "conventions"),
    8: ("ideas", "organization", "voice", "word_choice", "sentence_fluency", "conventions"),
}
SUMMED = (1, 7, 8)
"""Sets of ASAP-AES whose resolved score is the sum of two raters; one rater's score counts twice on that scale."""


def asap_aes(file: str, frame: pd.DataFrame) -> pd.DataFrame:
    """ASAP-AES. Essays: trait columns get their set's names, and one rater's score is put on the resolved scale. Sets:
    what kind each is, and the raters' guide where the file has it."""
    if "essay" not in frame:
        kinds = ["source_dependent" if text else "persuasive_or_narrative" for text in frame["source_text"]]
        guides = frame["rubric_text"] if "rubric_text" in frame else [None] * len(frame)
        return with_columns(frame, {"kind": kinds, "rubric_text": guides})
    columns = {}
    summed = frame["essay_set"].isin(SUMMED)
    for rater in (1, 2):
        single = frame[f"rater{rater}_domain1"].astype(float)
        columns[f"rater{rater}_score"] = single.where(~summed, 2 * single)
        for number, names in TRAITS.items():
            for position, trait in enumerate(names, 1):
                marks = frame[f"rater{rater}_trait{position}"].astype(float).where(frame["essay_set"] == number)
                name = f"rater{rater}_{trait}"
                columns[name] = marks.fillna(columns.get(name, marks))
    return frame.assign(**columns)


def asap_sas(file: str, frame: pd.DataFrame) -> pd.DataFrame:
    """ASAP-SAS. Answers: the transcribers' mark for a new paragraph becomes a line break. Key elements: headings and
    'other' go; the scoring guide that raters had is the rubric's text with all of them, and the answers that it gives
    as possible."""
    if "student_answer" in frame:
        return frame.assign(student_answer=frame["student_answer"].map(lambda text: _PARAGRAPH_MARK.sub("\n", text)))
    names = ("rubric_text", "key_elements", "possible_answers_text")
    parts = zip(*(frame[name] if name in frame else [None] * len(frame) for name in names), strict=True)
    elements = []
    guides = list[str | None]()
    for rubric, listed, possible in parts:
        headings = [text for text in listed or () if text.rstrip().endswith(":")]
        kept = (text for text in listed or () if text not in headings)
        elements.append([text for text in kept if not text.lower().startswith("other")])
        if not isinstance(rubric, str) or not rubric.strip():
            guides.append(None)
            continue
        lines = [text if text in headings else f"- {text}" for text in listed or ()]
        keys = "\n".join(["Key elements:", *lines]) if lines else ""
        sections = (_TITLES.sub("", rubric), keys, possible if isinstance(possible, str) else "")
        guides.append("\n\n".join(section.strip() for section in sections if section.strip()))
    return with_columns(frame, {"key_elements": elements, "guide": guides})


def dress(file: str, frame: pd.DataFrame) -> pd.DataFrame:
    """DREsS: a prompt gets an id of its text; the score is the sum of the three traits, empty where one is."""
    ids = ["P" + text_digest(str(prompt))[:8] for prompt in frame["prompt"]]
    return frame.assign(prompt_id=ids, sum=_sum(frame, ("content", "organization", "language")))


def gradeagentops(file: str, frame: pd.DataFrame) -> pd.DataFrame:
    """GradeAgentOps: question and student together are the answer's id; gold points become texts and weights."""
    frame = frame.assign(answered=_pairs(frame, "question_id", "student_id"))
    if "Gold_points" not in frame:
        return frame
    columns = {}
    for name, key in (("points", "text"), ("weights", "weight")):
        columns[name] = [[point[key] for point in points] for points in frame["Gold_points"]]
    return with_columns(frame, columns)


def mocha(file: str, frame: pd.DataFrame) -> pd.DataFrame:
    """MOCHA: one row that holds everything becomes a row a candidate, of which a minimal pair has two; an item is what
    a data set asks with the same passage, question and reference.

    InputError for a data set that holds no records by id, or a record without its texts.
    """
    rows = []
    keys = ("context", "question", "reference")
    for dataset in frame.columns:
        records = frame[dataset].iloc[0]
        if not isinstance(records, dict) or not all(isinstance(record, dict) for record in records.values()):
            raise InputError("holds no records by id", file=file, field=dataset)
        for name, record in records.items():
            asked = {key: record.get(key) for key in keys}
            endings = [ending for ending in ("", "1", "2") if f"candidate{ending}" in record]
            candidates = {ending: record[f"candidate{ending}"] for ending in endings}
            if not candidates or not all(isinstance(text, str) for text in (*asked.values(), *candidates.values())):
                raise InputError("lacks one of its texts", file=file, field=f"{dataset}.{name}")
            item = f"{dataset}:{text_digest(chr(0).join((dataset, *asked.values())))[:12]}"
            source = (record.get("metadata") or {}).get("source")
            for ending, candidate in candidates.items():
                row: dict[str, Any] = {"response_id": f"{dataset}:{name}{ending and f':{ending}'}", "item_id": item}
                row |= {"dataset": dataset, "source": source, **asked}
                rows.append(row | {"candidate": candidate, "score": record.get(f"score{ending}")})
    columns = pd.Index(("response_id", "item_id", "dataset", "source", *keys, "candidate", "score"))
    return pd.DataFrame(rows, columns=columns, dtype=object)


def physics_partial_credit(file: str, frame: pd.DataFrame) -> pd.DataFrame:
    """The physics explanations: question and student together are the answer's id; a person's score is the sum of the
    three items. A problem gets the most detailed rubric that the source has of it."""
    if "student" not in frame:
        rubrics = frame[(frame["kind"] == "Rubric") & (frame["name"] == "detailed")]
        return frame.assign(guide=frame["question_id"].map(rubrics.set_index("question_id")["text"]).astype(object))
    sums = {}
    for rater in ("human1", "human2"):
        marks = frame[[f"item{n}_{rater}" for n in (1, 2, 3)]].astype(float)
        sums[rater] = marks.sum(axis=1, skipna=False)
    return frame.assign(answered=_pairs(frame, "question_id", "student"), **sums)


def sas_bench(file: str, frame: pd.DataFrame) -> pd.DataFrame:
    """SAS-Bench: an item is what is asked with the same question, reference, analysis and total. Its points are the
    reference's sentences, cut at semicolons, too; the source does not give the marks of each, so they share the total
    equally. An answer is its steps in order, with a line break between them as between the lines of one that the
    authors put together.

    The file's name tells the subject ('0_Physics_ShortAns.jsonl'), which begins the ids. InputError for a missing
    column, a total that is no whole number from 1, a mark off 0 to the total, and steps that are no list of objects
    with a response.
    """
    names = ("id", "question", "reference", "analysis")
    for name in (*names, "total", "manual_label", "steps"):
        need(frame, name, file)
    rows = [number + 1 for number in frame.index.tolist()]
    subject = file.split("_")[1]
    columns: dict[str, list[Any]] = {name: [] for name in ("id", "item", "points", "weights", "answer")}
    cells = [texts(frame[name], file, rows, name) for name in names]
    marks = zip(rows, frame["total"], frame["manual_label"], frame["steps"], strict=True)
    for (name, question, reference, analysis), (row, total, mark, steps) in zip(
        zip(*cells, strict=True), marks, strict=True
    ):
        top = _top(total, mark, file, row)
        # Not cut at line breaks, which are anywhere in these texts, nor in numbers and LaTeX's `\;`.
        points = [part.strip() for part in _POINT_END.split(reference or "") if any(map(str.isalnum, part))]
        columns["id"].append(name and f"{subject}:{name}")
        identity = "\0".join(map(str, (question, reference, analysis, top)))
        columns["item"].append(f"{subject}:{text_digest(identity)[:12]}")
        columns["points"].append(points)
        columns["weights"].append([top / len(points)] * len(points) if points else [])
        columns["answer"].append(_answer(steps, file, row))
    return with_columns(frame.assign(subject=subject), columns)


def _top(cell: Any, mark: Any, file: str, row: int) -> int:
    """The total, under which the mark must lie."""
    total = as_number(cell, file, row, "total")
    marked = as_number(mark, file, row, "manual_label")
    if total is None:
        raise InputError("is empty", file=file, row=row, field="total")
    if total < 1 or not total.is_integer():
        raise InputError(f"{quoted(cell)} is no whole number of marks from 1", file=file, row=row, field="total")
    if marked is not None and not 0 <= marked <= total:
        raise InputError(f"{marked:g} is off the scale 0 to {total:g}", file=file, row=row, field="manual_label")
    return int(total)


def _answer(cell: Any, file: str, row: int) -> str:
    if not isinstance(cell, list) or not all(isinstance(step, dict) for step in cell):
        raise InputError("is not a list of objects", file=file, row=row, field="steps")
    responses = texts([step.get("response") for step in cell], file, [row] * len(cell), "steps.response")
    if None in responses:
        raise InputError(f"step {responses.index(None) + 1} has no response", file=file, row=row, field="steps")
    return "\n".join(response for response in responses if response is not None)


def summeval(file: str, frame: pd.DataFrame) -> pd.DataFrame:
    """SummEval: article and system together are the summary's id."""
    return frame.assign(summarised=_pairs(frame, "doc_id", "system")) if "system" in frame else frame


def summhf(file: str, frame: pd.DataFrame) -> pd.DataFrame:
    """Summaries with human feedback: what lies inside `info` and `summary` becomes columns; only posts are kept. An
    axis not rated is empty."""
    frame, rows = frame.loc[[bool(info.get("post")) for info in frame["info"]]], list[dict[str, Any]]()
    axes = ("overall", "accuracy", "coverage", "coherence")
    for place, info, summary in zip(frame.index, frame["info"], frame["summary"], strict=True):
        post = f"{info.get('title') or ''}\n\n{info['post']}".strip()
        row = {"rating": f"{info['id']}:{place + 1}", "post_id": info["id"], "post": post}
        row |= {"subreddit": info.get("subreddit"), "text": summary["text"], "policy": summary["policy"]}
        rows.append(row | {axis: summary["axes"].get(axis) for axis in axes})
    columns = pd.Index(("rating", "post_id", "post", "subreddit", "text", "policy", *axes))
    return pd.DataFrame(rows, index=frame.index, columns=columns, dtype=object)


def webnlg(file: str, frame: pd.DataFrame) -> pd.DataFrame:
    """WebNLG's human evaluation: triples stand one to a line and get an id; the score is the sum of the three
    traits."""
    meanings = [str(meaning) for meaning in frame["mr"]]
    triples = [meaning.replace("<br>", "\n") for meaning in meanings]
    ids = ["T" + text_digest(meaning)[:8] for meaning in meanings]
    return frame.assign(triples=triples, triples_id=ids, sum=_sum(frame, ("semantics", "grammar", "fluency")))


def _sum(frame: pd.DataFrame, traits: tuple[str, ...]) -> pd.Series:
    """The sum of some columns' numbers, empty where one is."""
    marks: pd.DataFrame = frame[list(traits)].apply(pd.to_numeric, errors="coerce")
    return marks.sum(axis=1, skipna=False)


def _pairs(frame: pd.DataFrame, first: str, second: str) -> list[str]:
    return [f"{one}:{other}" for one, other in zip(frame[first], frame[second], strict=True)]


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
        name = "C" + text_digest(f"{points:g} {text}")[:8]
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
            question = root["requirement"]
            criteria = list(_paper_criteria(root, None, POINTS, below, parents))
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
        key = child["node_id"]
        share = points * child["weight"] / total
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
            name = f"C{number}"
            points = float(criterion["points"])
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
    head = text[: begins[0]].strip()
    parts = []
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

"""A better rubric: what code can mend, and each change from one rubric to another in words with its reason.

A revised rubric has its own ids where it says something new: what a person or a judge decided on a criterion holds for
nothing else.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from textwrap import shorten
from typing import Any, Literal, NamedTuple

import yaml

from rubricflow.tasks.core.contracts.bundle import Criterion, Rubric
from rubricflow.tasks.core.contracts.settings.written import read_yaml
from rubricflow.tasks.core.text.tokens import whole
from rubricflow.tasks.grading.rubrics.findings import decided, findings, missing_catch_alls, undefined_middle
from rubricflow.tasks.grading.rubrics.wording import grams, joins_two, likeness

CHANGES: Mapping[str, str] = {
    "kept": "kept",
    "reworded": "reworded",
    "levels": "levels changed",
    "points": "points changed",
    "split": "split",
    "joined": "joined with others",
    "added": "added",
    "removed": "removed",
    "count": "counting rule changed",
    "group": "made a group",
    "exclusion": "exclude each other",
    "other": "changed otherwise",
    "note": "scoring note",
    "note removed": "scoring note removed",
}
Problem = Callable[[Rubric], str | None]
"""Why a rubric cannot be locked, or its top not be reached; None for one that can."""


class RubricChange(NamedTuple):
    """What became of criteria."""

    rubric_id: str
    before: tuple[str, ...]
    """Ids as they were; none for what is new."""
    after: tuple[str, ...]
    """Ids as they are; none for what is removed."""
    what: str
    """Of CHANGES."""
    why: str
    by: Literal["rule", "judge"]
    """A mend that code makes by itself, or the judge's proposal."""


def mended(rubric: Rubric, problem: Problem) -> tuple[Rubric, list[RubricChange]]:
    """The rubric with what code can mend, each mend alone only where the rubric can be locked with it.

    A middle level that nobody defined is left out where it is idle or the criterion states a fact; a catch-all of the
    guide joins the count that is closest in its words; alternatives exclude each other.
    """
    changes: list[RubricChange] = []
    for mend in (_two_levels, _with_catch_alls, _excluding):
        revised, made = mend(rubric)
        if made and problem(revised) is None:
            rubric, changes = revised, changes + made
    return rubric, changes


def _two_levels(rubric: Rubric) -> tuple[Rubric, list[RubricChange]]:
    """Examples label levels: a rubric with examples keeps them."""
    counts = {criterion.id: criterion.count for criterion in rubric.criteria}
    facts = []
    criteria = []
    deciding = () if rubric.examples else decided(rubric)
    for criterion in rubric.criteria:
        counting = counts.get(criterion.parent or "")
        is_fact = criterion.kind in ("gold_point", "misconception") and criterion in deciding
        is_one = not counting.least if counting else joins_two(criterion.text) is None
        if is_fact and is_one and len(undefined_middle(criterion)) == len(criterion.levels) - 2 > 0:
            facts.append(criterion.id)
            update = {"levels": (criterion.levels[0], criterion.levels[-1]), "earns": ()}
            criterion = criterion.model_copy(update=update)
        criteria.append(criterion)
    why = "Nobody defined the middle level, and a fact is said or not."
    made = [RubricChange(rubric.rubric_id, tuple(facts), tuple(facts), "levels", why, "rule")] if facts else []
    return rubric.model_copy(update={"criteria": tuple(criteria)}), made


def _with_catch_alls(rubric: Rubric) -> tuple[Rubric, list[RubricChange]]:
    counting = [criterion for criterion in rubric.criteria if criterion.count]
    criteria = list(rubric.criteria)
    made = []
    for catch in missing_catch_alls(rubric) if counting else ():
        about = grams(f"{catch.before} {catch.words}")
        parent = max(counting, key=lambda one: likeness(about, grams(one.text)))
        siblings = [one for one in decided(rubric) if one.parent == parent.id]
        if not siblings:
            continue
        ids = {criterion.id for criterion in criteria}
        names = (f"{parent.id}_other{number or ''}" for number in range(len(criteria) + 1))
        name = next(one for one in names if one not in ids)
        text = f"Gives what the guide calls '{catch.words.lower()}': right, and named by no other criterion here."
        update = {"id": name, "text": text, "levels": ("not said", "said"), "excludes": ()}
        criteria.insert(criteria.index(siblings[-1]) + 1, siblings[-1].model_copy(update=update))
        why = f"The guide allows '{catch.words}'."
        made.append(RubricChange(rubric.rubric_id, (), (name,), "added", why, "rule"))
    return rubric.model_copy(update={"criteria": tuple(criteria)}), made


def _excluding(rubric: Rubric) -> tuple[Rubric, list[RubricChange]]:
    groups = [finding.criteria for finding in findings(rubric) if finding.rule == "exclusive"]
    others = {name: [one for one in group if one != name] for group in groups for name in group}
    criteria = []
    for one in rubric.criteria:
        excludes = tuple(dict.fromkeys((*one.excludes, *others.get(one.id, ()))))
        criteria.append(one.model_copy(update={"excludes": excludes}))
    why = "No answer can say more than one of them."
    made = [RubricChange(rubric.rubric_id, group, group, "exclusion", why, "rule") for group in groups]
    return rubric.model_copy(update={"criteria": tuple(criteria)}), made


class Reasons(NamedTuple):
    """Why a proposed rubric is as it is."""

    sources: dict[str, tuple[str, ...]]
    """Id of a new criterion → ids of those that it is made of."""
    whys: dict[str, str]
    """Id of a new criterion or group, or of one that was removed → why."""
    notes: dict[str, str]
    """Scoring note → why."""


def changes(old: Rubric, new: Rubric, reasons: Reasons) -> Iterator[RubricChange]:
    """Every change from one rubric to another as a judge proposes it, and the criteria that it keeps, in the order of
    the new one; what is removed comes last."""

    def change(before: Sequence[str], after: Sequence[str], what: str, why: str) -> RubricChange:
        return RubricChange(old.rubric_id, tuple(before), tuple(after), what, why, "judge")

    before, after = ({one.id: one for one in rubric.criteria} for rubric in (old, new))
    was_decided = {one.id for one in decided(old)}
    uses = Counter(chain.from_iterable(reasons.sources.values()))
    for name, one in after.items():
        why = reasons.whys.get(name, "")
        names = reasons.sources.get(name, ())
        if not one.count and name in reasons.sources:
            what = "joined" if names else "added"
            if len(names) == 1:
                what = "split" if uses[names[0]] > 1 else _difference(before[names[0]], one)
            yield change(names, [name], what, why)
        elif name not in before:
            yield change([], [name], "added", why)
        elif one != before[name]:
            what = _difference(before[name], one) if before[name].count else "group"
            yield change([name], [name], what, why)
    for name in before:
        made_of = [new_name for new_name, names in reasons.sources.items() if name in names]
        if name not in (uses if name in was_decided else after):
            why = reasons.whys.get(name, "What was counted under it stands elsewhere.")
            yield change([name], [], "removed", why)
        elif name not in after and name in reasons.whys:
            yield change([name], made_of, "joined", reasons.whys[name])
    yield from (change([], [note], "note", reasons.notes[note]) for note in new.notes if note not in old.notes)
    yield from (change([note], [], "note removed", "") for note in old.notes if note not in new.notes)


def _difference(old: Criterion, new: Criterion) -> str:
    """The first way in which two forms of a criterion or group differ."""
    differs = {
        "count": old.count != new.count,
        "reworded": old.text != new.text,
        "levels": old.levels != new.levels,
        "points": (old.weight, old.parent, old.earns) != (new.weight, new.parent, new.earns),
        "exclusion": set(old.excludes) != set(new.excludes),
        "other": old.model_copy(update={"id": new.id}) != new,
    }
    return next((what for what, is_so in differs.items() if is_so), "kept")


def in_words(change: RubricChange) -> str:
    """A change on one line: `P3 → P3a: split (judge): why`; of a note the first words."""
    before, after = (shorten(", ".join(names), 80, placeholder=" …") for names in (change.before, change.after))
    names = before if change.before == change.after else f"{before or 'nothing'} → {after or 'nothing'}"
    line = f"{names}: {CHANGES[change.what]} ({change.by})" + (f": {change.why}" if change.why else "")
    return " ".join(line.split())


class _Lines(yaml.SafeDumper):
    """Writes a text of several lines as these lines."""

    def represent_str(self, data: str) -> yaml.ScalarNode:
        return self.represent_scalar("tag:yaml.org,2002:str", data, style="|" if "\n" in data else None)


_Lines.add_representer(str, _Lines.represent_str)


def as_yaml(rubrics: Sequence[Rubric], made: Sequence[RubricChange]) -> str:
    """A file of authored rubrics, under what was changed and why as comments; what is left out is as the contract has
    it."""
    lines = ["# A proposal: nothing is judged by it until a study names this file. What was changed, and why:"]
    for rubric in rubrics:
        of_rubric = [change for change in made if change.rubric_id == rubric.rubric_id and change.what != "kept"]
        lines += [f"# {rubric.rubric_id}: {in_words(change)}" for change in of_rubric]
    content = json.dumps({"rubrics": [rubric.model_dump(mode="json", exclude_defaults=True) for rubric in rubrics]})
    plain = json.loads(content, parse_float=lambda text: whole(float(text)))
    written = yaml.dump(plain, None, _Lines, sort_keys=False, allow_unicode=True, width=120, default_flow_style=None)
    return "\n".join([*lines, written])


# A proposal next to the study that it is for.


_PATHS = frozenset({"folder", "file", "replies", "grader", "votes", "edge_retention", "model", "truth", "beside"})
"""Keys of a study that may name a file or a folder."""


def study_of_proposal(study_file: Path, beside: Path, rubrics: str) -> str:
    """A study file for the proposal, as YAML: the same study under another name by the proposed rubrics. What names a
    file or a folder names it from where this one is. People's marks of single criteria are left out: they are of the
    old ones."""
    written, base = read_yaml(study_file), study_file.parent

    def moved(value: Any, key: str = "") -> Any:
        if isinstance(value, dict):
            return {name: moved(one, name) for name, one in value.items()}
        if isinstance(value, list):
            return [moved(one, key) for one in value]
        is_path = key in _PATHS and isinstance(value, str) and not os.path.isabs(value) and (base / value).exists()
        return os.path.relpath(base / value, beside.parent) if is_path else value

    data = {"folder": ".", **written["data"]}
    sources = data.pop("sources", None)  # whose files are named from the folder
    result = moved({**written, "data": data}) | {"name": f"{written['name']}_revised"}
    if sources is not None:
        kept = [{key: one for key, one in source.items() if key != "marks"} for source in sources]
        result["data"]["sources"] = [one for one in kept if one.keys() - {"file", "sheet", "encoding", "words"}]
    derived = written["rubrics"].get("derive")
    result["rubrics"] = {"file": rubrics, **({"derive": derived} if derived else {})}
    head = "# The same study by proposed rubrics.\n"
    return head + yaml.safe_dump(result, sort_keys=False, allow_unicode=True, width=120)

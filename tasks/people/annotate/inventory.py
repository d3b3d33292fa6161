"""Inventories of concepts: whether one keeps to its construction (REC-CBM, appendix C.3; rows of `constructions`);
asking a model for a first one, which educators then edit (appendix C.2).

Coverage: the concepts decide the grade. Non-redundancy: no concept re-scores what another one scores. Ordinal anchors:
every level has a descriptor of its own, and higher levels go with higher grades. Without labels only the rubric's form
and wording are judged.

What the model is free in is what needs reading: names, definitions, descriptors and groups. Ranges and the order of
things are code's, and so is the contract: as many levels as asked for, ids that differ, no descriptor missing or twice.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple, cast, get_args

import numpy as np
import yaml
from pydantic import ValidationError
from sklearn.linear_model import Ridge
from sklearn.model_selection import KFold, cross_val_predict

from rubricflow.tasks.core.contracts import Record
from rubricflow.tasks.core.contracts.bundle import Criterion, EvidenceType, Rubric, Scale, Trait
from rubricflow.tasks.core.contracts.errors import InputError
from rubricflow.tasks.core.contracts.settings.engine import Sampling
from rubricflow.tasks.core.display.table import Row, Rows
from rubricflow.tasks.core.llm.ask import Checked, all_again, ask_amending, usable
from rubricflow.tasks.core.llm.backend import Backend
from rubricflow.tasks.core.llm.extract import extract
from rubricflow.tasks.core.llm.reply_store import Replies
from rubricflow.tasks.core.llm.request import Reply, Request, contract_request
from rubricflow.tasks.core.llm.schema import compact, form, record, several, text
from rubricflow.tasks.core.stats.agreement import spearman
from rubricflow.tasks.core.stats.arrays import Floats, Ints
from rubricflow.tasks.core.text.digest import nonce
from rubricflow.tasks.core.text.fold import folded
from rubricflow.tasks.core.text.templates import Templates
from rubricflow.tasks.core.text.tokens import tokens

COVERED = 0.5
"""Share of the grades' variance, predicted from the concepts, that they must tell: below it more of what decides the
grade lies outside the concepts than inside."""
REDUNDANT = 0.9
"""Rank correlation from which two concepts tell the same: .81 of the variance of one's ranks is then the other's, about
what two good raters of one concept share."""
SAME_WORDS = 0.6
"""Share of common words from which two statements are one in other words: they differ in less than every second."""
FEWEST = 30
"""Labelled responses below which figures say nothing: four of their five folds are three responses for each of eight
concepts."""
FOLDS = 5
NOISE = 2.0
"""Standard errors by which a mean grade must fall from one level to the next before it counts as falling."""


def constructions(rubric: Rubric, labels: Ints | None = None, grades: Floats | None = None) -> list[Record]:
    """Rows of `constructions`: for every trait and all concepts, every pair of concepts, and every concept.

    labels: (n, C) levels of the rubric's criteria in their order, -1 where there is none; those of a criterion that is
    made of its sub-points do not count. grades: (n,) on the rubric's scale, NaN where there is none.
    """
    if labels is None:
        labels = np.empty((0, len(rubric.criteria)), np.int64)
    if grades is None:
        grades = np.full(len(labels), np.nan)
    parents = {criterion.parent for criterion in rubric.criteria}
    decided = [place for place, criterion in enumerate(rubric.criteria) if criterion.id not in parents]
    concepts, labels = [rubric.criteria[place] for place in decided], labels[:, decided]
    findings = {
        "coverage": _coverage(rubric, concepts, labels, grades),
        "non_redundancy": _redundancy(concepts, labels),
        "ordinal_anchors": _anchors(concepts, labels, grades),
    }
    rows = []
    for rule, of_rule in findings.items():
        rows += [{"rubric_id": rubric.rubric_id, "rule": rule, **finding._asdict()} for finding in of_rule]
    return rows


class RuleFinding(NamedTuple):
    """What a rule finds, in the columns of `constructions`."""

    subject: str
    value: float | None
    limit: float | None
    outcome: str
    detail: str


def _coverage(rubric: Rubric, concepts: Sequence[Criterion], labels: Ints, grades: Floats) -> Iterator[RuleFinding]:
    for trait in rubric.traits:
        count = sum(concept.trait == trait.id for concept in concepts)
        yield RuleFinding(trait.id, float(count), 1.0, _outcome(count > 0), f"{count} concepts count for it")
    complete = (labels >= 0).all(axis=1) & np.isfinite(grades)
    n = int(complete.sum())
    share = explained(labels[complete], grades[complete]) if n >= FEWEST else None
    if share is None:
        detail = f"{n} responses have all labels and a grade; {FEWEST} with unlike grades are needed"
        yield RuleFinding("all", None, COVERED, "unknown", detail)
    else:
        detail = f"a line through the concepts tells {share:.0%} of the variance of {n} grades that it did not see"
        yield RuleFinding("all", share, COVERED, _outcome(share >= COVERED), detail)


def explained(labels: Ints, grades: Floats) -> float | None:
    """Cross-validated R² of the grade by a ridge on the levels, ≤ 1; None where all grades are one.

    labels: (n, K) without gaps; grades: (n,). Each fold is predicted by the line of the others.
    """
    spread = float(((grades - grades.mean()) ** 2).sum())
    if spread == 0:
        return None
    folds = KFold(FOLDS, shuffle=True, random_state=0)
    predicted = cross_val_predict(Ridge(alpha=1.0), labels.astype(np.float64), grades, cv=folds)
    return 1 - float(((grades - predicted) ** 2).sum()) / spread


def _redundancy(concepts: Sequence[Criterion], labels: Ints) -> Iterator[RuleFinding]:
    words = [set(tokens(concept.text)) for concept in concepts]
    for i, j in combinations(range(len(concepts)), 2):
        subject = f"{concepts[i].id} and {concepts[j].id}"
        both = labels[(labels[:, i] >= 0) & (labels[:, j] >= 0)][:, [i, j]]
        rho = spearman(*both.T).value if len(both) >= FEWEST else None
        if rho is not None:
            detail = f"their labels of {len(both)} responses correlate with {rho:.2f}"
            yield RuleFinding(subject, abs(rho), REDUNDANT, _outcome(abs(rho) < REDUNDANT), detail)
            continue
        share = len(words[i] & words[j]) / max(len(words[i] | words[j]), 1)
        detail = f"they share {share:.0%} of their words; too few labels, or all alike, to correlate"
        yield RuleFinding(subject, share, SAME_WORDS, "unknown" if share < SAME_WORDS else "broken", detail)


def _anchors(concepts: Sequence[Criterion], labels: Ints, grades: Floats) -> Iterator[RuleFinding]:
    for k, concept in enumerate(concepts):
        distinct = len({folded(anchor) for anchor in concept.levels if anchor.strip()})
        if distinct < len(concept.levels):
            detail = f"{distinct} of its {len(concept.levels)} levels have a descriptor of their own"
            yield RuleFinding(concept.id, float(distinct), float(len(concept.levels)), "broken", detail)
            continue
        graded = (labels[:, k] >= 0) & np.isfinite(grades)
        yield RuleFinding(concept.id, *_rising(labels[graded, k], grades[graded], concept.top))


def _rising(levels: Ints, grades: Floats, top: int) -> tuple[float | None, float | None, str, str]:
    """Whether the mean grade rises with the level: the smallest step from a level to the next, in grade points."""
    counts = np.bincount(levels, minlength=top + 1)
    if len(levels) < FEWEST:
        return None, 0.0, "unknown", f"descriptors differ; {len(levels)} graded labels, {FEWEST} are needed"
    if not counts.all():
        unused = ", ".join(str(level) for level in np.flatnonzero(counts == 0))
        return None, 0.0, "broken", f"descriptors differ; nobody gives level {unused}"
    means = np.bincount(levels, grades, top + 1) / counts
    within = ((grades - means[levels]) ** 2).sum() / max(len(levels) - top - 1, 1)
    steps = np.diff(means)
    noise = NOISE * np.sqrt(within * (1 / counts[:-1] + 1 / counts[1:]))
    level = int(steps.argmin())
    smallest = float(steps[level])
    detail = f"descriptors differ; the mean grade moves least from level {level} to {level + 1}, by {smallest:+.2f}"
    if (steps < -noise).any():
        return smallest, 0.0, "broken", detail
    if not (steps > 0).all():
        return smallest, 0.0, "unknown", f"{detail}, within chance"
    return smallest, 0.0, "kept", detail


def _outcome(holds: bool) -> str:
    return "kept" if holds else "broken"


QUESTIONS = 10
"""Most questions that are shown: enough to see what they have in common."""
MOST_GROUPS = 4
TYPES = tuple(name for name in get_args(EvidenceType) if name != "none")
_ID = r"^[A-Za-z][A-Za-z0-9_]{0,15}$"
_LONGEST = 2_000
"""Characters of a question, its material or its answer that are shown."""
_SHOWN = {"question": "Question", "context": "Material", "reference_answer": "Reference answer"}
"""Column of `items` → what it is called."""
_TOKENS, _TOKENS_PER_LEVEL = 512, 60
"""What a proposal takes: names and definitions, and a descriptor."""
_EXAMPLE = {
    "id": "REASONS",
    "name": "Reasons",
    "definition": "How well the answer supports what it claims.",
    "evidence": "span_level",
    "levels": ["claims without a reason", "names a reason", "shows how the reason leads to the claim"],
}
_PROMPTS = Templates(Path(__file__).with_name("prompts"))


@dataclass(frozen=True)
class Brief:
    """What a model is asked to propose."""

    rubric_id: str
    """Id of the rubric to be made; items point to it."""
    scale: Scale
    """The score scale of the data set."""
    items: Rows
    """Rows of `items` (question, context, reference_answer), of which the first QUESTIONS are shown: a sample."""
    title: str = ""
    """What the data set is called; the rubric's id where not given."""
    text: str = ""
    """The rubric in prose, where its author wrote one."""
    concepts: int = 8
    """How many."""
    levels: int = 3
    """How many each has, at least 2."""


def propose(
    brief: Brief, backend: Backend, replies: Replies, sampling: Sampling | None = None, structured: bool = True
) -> Rubric:
    """The inventory that a model proposes; one that the store holds a reply for is not asked for again.

    structured: whether the model is held to the schema. InputError where there is nothing to propose from, and where
    no reply within the budget keeps the contract, with what was wrong with the last.
    """
    if not brief.items or brief.concepts < 1 or brief.levels < 2:
        raise InputError("a proposal needs questions, at least one concept and at least two levels", field="items")
    first = request(brief, sampling or Sampling(), structured)
    (call,) = ask_amending([first], backend, replies, check, all_again(_PROMPTS))
    return usable(call, "inventory", "write it by hand, as in data/inventories")


def as_yaml(rubric: Rubric) -> str:
    """A file of authored rubrics with this one, for people to edit; what is left out is as the contract has it."""
    content = rubric.model_dump(mode="json", exclude_defaults=True)
    return yaml.safe_dump({"rubrics": [content]}, sort_keys=False, allow_unicode=True, width=120)


def request(brief: Brief, sampling: Sampling, structured: bool) -> Request:
    """The request for one inventory; the reply may be as long as its levels need."""
    low, high, step = brief.scale.bounds
    contract = schema(brief)
    lines = []
    for number, item in enumerate(brief.items[:QUESTIONS], 1):
        lines.append(f"({number})")
        for key, name in _SHOWN.items():
            if content := item.get(key):
                first, *others = str(content)[:_LONGEST].splitlines()
                lines += [f"{name}: {first}", *others]
    shown = "\n".join(f"| {line}" for line in lines)
    rubric = f"\nThe rubric that graders were given:\n{brief.text}\n" if brief.text.strip() else ""
    values = {
        "title": brief.title or brief.rubric_id,
        "scale": f"{low:g} to {high:g} in steps of {step:g}",
        "rubric": rubric,
        "nonce": nonce(shown),
        "questions": shown,
        "count": str(brief.concepts),
        "levels": str(brief.levels),
        "shape": form(contract),
        "example": compact(_EXAMPLE),
    }
    content = _PROMPTS.fill("propose", values)
    longest = _TOKENS + _TOKENS_PER_LEVEL * brief.concepts * (brief.levels + 2)
    about = {"role": "induce", "subject": brief.rubric_id, "data": brief}
    return contract_request(content, contract, sampling, longest, structured, **about)


def schema(brief: Brief) -> Record:
    """The contract, `{"groups": [{"name", "concepts": [{"id", "name", "definition", "evidence", "levels"}]}]}`."""
    concept = record(
        {
            "id": {"type": "string", "pattern": _ID, "description": "id"},
            "name": text(60, "name"),
            "definition": text(300, "sentence"),
            "evidence": {"type": "string", "enum": list(TYPES)},
            "levels": several(text(160, "descriptor"), brief.levels, brief.levels),
        }
    )
    group = record({"name": text(60, "name"), "concepts": several(concept, 1, brief.concepts)})
    return record({"groups": several(group, 1, MOST_GROUPS)})


def check(request: Request, reply: Reply) -> Checked[Rubric]:
    """The rubric that a reply makes, or all that breaks the contract, so that one repair can mend it."""
    brief: Brief = request.data
    artifact, note = extract(reply.text, request.keys)
    if artifact is None:
        return Checked(None, (f"no JSON object with the key 'groups' could be read ({note})",))
    try:
        rubric = _rubric(brief, artifact["groups"])
    except (ValidationError, KeyError, TypeError, AttributeError) as error:
        words = f"{error} is missing" if isinstance(error, KeyError) else str(error)
        if isinstance(error, ValidationError):
            first = error.errors()[0]
            words = f"{first['msg']} at {'.'.join(map(str, first['loc']))}"
        return Checked(None, (f"it does not have the form that was asked for: {words}",))
    problems = tuple(_problems(brief, rubric))
    return Checked(None if problems else rubric, problems)


def _rubric(brief: Brief, groups: list[Record]) -> Rubric:
    low, high, step = brief.scale.bounds
    traits, concepts = [], []
    for number, group in enumerate(groups, 1):
        traits.append(Trait(id=f"G{number}", name=_words(group["name"]), min=low, max=high, step=step))
        concepts += [_concept(f"G{number}", entry) for entry in group["concepts"]]
    return Rubric(
        rubric_id=brief.rubric_id,
        title=brief.title,
        text=brief.text,
        scale=brief.scale,
        traits=tuple(traits),
        criteria=tuple(concepts),
    )


def _concept(trait: str, entry: Row) -> Criterion:
    if entry["evidence"] not in TYPES:
        raise TypeError(f"{entry['evidence']!r:.40} is no type of evidence")
    if not isinstance(entry["levels"], list):
        raise TypeError(f"the levels of {entry['id']!r:.40} are no list")
    name = _words(entry["name"])
    definition = _words(entry["definition"])
    levels = [" ".join(level.split()) if isinstance(level, str) else "" for level in entry["levels"]]
    return Criterion(
        id=_words(entry["id"]),
        trait=trait,
        text=f"{name}: {definition}",
        kind="concept",
        levels=tuple(levels),
        evidence=cast(EvidenceType, entry["evidence"]),
    )


def _problems(brief: Brief, rubric: Rubric) -> Iterator[str]:
    """What breaks the contract, in words."""
    concepts = rubric.criteria
    if len(concepts) != brief.concepts:
        yield f"it has {len(concepts)} concepts, not {brief.concepts}"
    ids = Counter(c.id for c in concepts)
    wordings = Counter(folded(c.text) for c in concepts)
    for name, counts in (("id", ids), ("wording", wordings)):
        for value in sorted(value for value, count in counts.items() if count > 1):
            yield f"two concepts have the same {name}: {value[:80]}"
    for concept in concepts:
        if concept.levels == tuple(_EXAMPLE["levels"]):
            yield f"concept {concept.id[:40]} is the example of another data set"
        if not re.fullmatch(_ID, concept.id):
            yield f"'{concept.id[:40]}' is no id of at most 16 letters and digits"
        if len(concept.levels) != brief.levels:
            yield f"concept {concept.id[:40]} has {len(concept.levels)} levels, not {brief.levels}"
        if not all(concept.levels):
            yield f"concept {concept.id[:40]} has a level without a descriptor"
        elif len({folded(level) for level in concept.levels}) < len(concept.levels):
            yield f"concept {concept.id[:40]} has two levels with the same descriptor"
    for trait in rubric.traits:
        if not any(concept.trait == trait.id for concept in concepts):
            yield f"group '{trait.name[:40]}' has no concept"


def _words(value: Any) -> str:
    """A text on one line; TypeError for what is none or blank."""
    if not isinstance(value, str) or not value.strip():
        raise TypeError(f"{value!r:.40} is no text")
    return " ".join(value.split())

"""Asking a model for a first inventory of concepts, which educators then edit (REC-CBM, appendix C.2).

What the model is free in is what needs reading: names, definitions, descriptors and groups. Ranges and the order of
things are code's, and so is the contract: as many levels as asked for, ids that differ, no descriptor missing or twice.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast, get_args

import yaml
from pydantic import ValidationError

from rubricflow.tasks.core.contracts.bundle import Criterion, EvidenceType, Rubric, Scale, Trait
from rubricflow.tasks.core.contracts.errors import InputError
from rubricflow.tasks.core.contracts.settings.engine import Sampling
from rubricflow.tasks.core.display.table import Record, Row, Rows
from rubricflow.tasks.core.llm.ask import Checked, all_again, ask_amending, usable
from rubricflow.tasks.core.llm.backend import Backend
from rubricflow.tasks.core.llm.extract import extract
from rubricflow.tasks.core.llm.reply_store import Replies
from rubricflow.tasks.core.llm.request import Reply, Request, contract_request
from rubricflow.tasks.core.llm.schema import compact, form, record, several, text
from rubricflow.tasks.core.text.digest import text_digest
from rubricflow.tasks.core.text.fold import folded
from rubricflow.tasks.core.text.templates import Templates

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
        "nonce": text_digest(shown)[:16],
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
    name, definition = _words(entry["name"]), _words(entry["definition"])
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
    ids, wordings = Counter(c.id for c in concepts), Counter(folded(c.text) for c in concepts)
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

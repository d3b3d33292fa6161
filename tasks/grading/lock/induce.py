"""Induction: a language model makes traits, checklist items, anchors and evidence types of a rubric's prose.

Rulers, phase I (section 3.2, appendices A.8 and B.1). What the model is free in is what needs reading; ids, ranges and
the order of things are code's. Traits that the author gave stay as they are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast, get_args

from pydantic import ValidationError

from rubricflow.tasks.core.contracts.bundle import Anchor, Criterion, EvidenceType, Rubric, Trait
from rubricflow.tasks.core.contracts.settings.engine import Sampling
from rubricflow.tasks.core.contracts.settings.study import Induce
from rubricflow.tasks.core.llm.ask import Checked, RequestOutcome, all_again, as_call, ask_amending, usable
from rubricflow.tasks.core.llm.backend import Backend
from rubricflow.tasks.core.llm.extract import extract
from rubricflow.tasks.core.llm.reply_store import Replies
from rubricflow.tasks.core.llm.request import Message, Reply, Request
from rubricflow.tasks.core.llm.schema import form, record, several, text
from rubricflow.tasks.core.text.templates import Templates
from rubricflow.tasks.grading.lock.rubric import broken

PROMPTS = Templates(Path(__file__).with_name("prompts"))


@dataclass(frozen=True)
class RubricBrief:
    """What is to be made of a rubric; the `data` of its request."""

    role: Literal["induce", "paraphrase"]
    rubric: Rubric
    criteria: int
    """About how many checklist items an induction shall make; 0 for a paraphrase."""
    seed: int


@dataclass(frozen=True)
class MadeRubric:
    """A rubric, and the calls that it took as rows of `Rubrics.calls`."""

    rubric: Rubric
    calls: tuple[dict[str, Any], ...] = ()


TYPES = tuple(name for name in get_args(EvidenceType) if name != "none")
LEVELS = ("absent", "partial", "clear")
"""The decisions 0, 1 and 2 of a checklist item."""
MOST_TRAITS = 6
_TOKENS, _TOKENS_PER_ITEM = 512, 160
"""What an artifact takes: anchors, and a checklist item with its levels."""


def induction(
    rubric: Rubric,
    plan: Induce,
    sampling: Sampling,
    *,
    question: str | None = None,
    context: str | None = None,
    descending: bool = False,
    structured: bool = True,
) -> Request:
    """The request that induces a rubric's criteria.

    question, context: of the item, where the rubric belongs to one alone. sampling: the judge's; the plan's seed and
    temperature take the place of its own, and the reply may be as long as the plan's criteria need. descending: anchors
    are printed with the highest score first.
    """
    low, high, step = rubric.scale.bounds
    contract = schema(rubric, plan.criteria)
    longest = max(sampling.longest, _TOKENS + _TOKENS_PER_ITEM * plan.criteria)
    drawing = sampling.model_copy(update={"seed": plan.seed, "temperature": plan.temperature, "max_tokens": longest})
    values = {
        "title": rubric.title or rubric.rubric_id,
        "rubric": rubric.text,
        "scale": f"{low:g} to {high:g} in steps of {step:g}",
        "material": _material(question, context),
        "traits": "\n".join(_trait_lines(rubric, descending)),
        "count": str(plan.criteria),
        "shape": form(contract),
    }
    brief = RubricBrief("induce", rubric, plan.criteria, plan.seed)
    return request(brief, PROMPTS.fill("induce", values), contract, drawing, structured)


def schema(rubric: Rubric, criteria: int) -> dict[str, Any]:
    """The contract: every string bounded, every trait with at least one item, every item with three levels.

    `{"traits": {trait id: {"items": [{"text", "evidence", "levels": {"absent", "partial", "clear"}}]}}}` where the
    author gave traits; otherwise a list of `{"name", "anchors": {"lowest", "middle", "highest"}, "items"}`.
    """
    item = record(
        {
            "text": text(240, "statement"),
            "evidence": {"type": "string", "enum": list(TYPES)},
            "levels": record({name: text(160, "few words") for name in LEVELS}),
        }
    )
    items = several(item, 1, criteria)
    if rubric.traits:
        return record({"traits": record({trait.id: record({"items": items}) for trait in rubric.traits})})
    anchors = record({name: text(240) for name in _anchored(rubric)})
    trait = record({"name": text(60, "name"), "anchors": anchors, "items": items})
    return record({"traits": several(trait, 1, MOST_TRAITS)})


def check(request: Request, reply: Reply) -> Checked[Rubric]:
    """The rubric that a reply makes; violations where it breaks the contract or would be an unusable rubric."""
    brief: RubricBrief = request.data
    artifact, note = extract(reply.text, request.keys)
    if artifact is None:
        return Checked(None, (f"unreadable:{note}",))
    try:
        rubric = _rubric(brief.rubric, artifact["traits"])
    except ValidationError as error:
        first = error.errors()[0]
        return Checked(None, (f"malformed: {first['msg']} at {'.'.join(map(str, first['loc']))}",))
    except (KeyError, TypeError, AttributeError) as error:
        return Checked(None, (f"malformed: {type(error).__name__} {error}",))
    if len(rubric.criteria) > 2 * brief.criteria:
        return Checked(None, (f"{len(rubric.criteria)} items; about {brief.criteria} were asked for",))
    problem = broken(rubric) or _repeated(rubric)
    return Checked(None, (f"unusable: {problem}",)) if problem else Checked(rubric, ())


def _rubric(source: Rubric, artifact: Any) -> Rubric:
    """The source with the criteria, and without traits of its own the traits, of an artifact; without its examples,
    which label the author's criteria."""
    if source.traits:
        contents = [(trait, artifact[trait.id]) for trait in source.traits]
    else:
        if not isinstance(artifact, list):
            raise TypeError("'traits' is no list")
        contents = [(_trait(f"T{number}", source, content), content) for number, content in enumerate(artifact, 1)]
    ids = _ids(source)
    criteria: list[Criterion] = []
    for trait, content in contents:
        criteria += [_criterion(next(ids), trait.id, item) for item in _list(content["items"])]
    traits = tuple(trait for trait, _ in contents)
    return source.model_copy(update={"traits": traits, "criteria": tuple(criteria), "examples": ()})


def _trait(name: str, source: Rubric, content: Mapping[str, Any]) -> Trait:
    low, high, step = source.scale.bounds
    texts = content["anchors"]
    anchors = tuple(Anchor(score=score, text=texts[place]) for place, score in _anchored(source).items())
    return Trait(id=name, name=_words(content["name"]), min=low, max=high, step=step, anchors=anchors)


def _criterion(name: str, trait: str, item: Mapping[str, Any]) -> Criterion:
    if item["evidence"] not in TYPES:
        raise TypeError(f"'{item['evidence']}' is no type of evidence for an item")
    levels = tuple(_words(item["levels"][level]) for level in LEVELS)
    kind = cast(EvidenceType, item["evidence"])
    return Criterion(id=name, trait=trait, text=_words(item["text"]), kind="checklist", levels=levels, evidence=kind)


def _ids(source: Rubric) -> Iterator[str]:
    """I01, I02, …, but never an id that the author used: people may have marked that criterion."""
    used = {criterion.id for criterion in source.criteria}
    return (name for n in range(1, 1000) if (name := f"I{n:02d}") not in used)


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list) or not value:
        raise TypeError("'items' is no list of items")
    return value


def _words(value: Any) -> str:
    """A text on one line; TypeError for what is none or blank."""
    if not isinstance(value, str) or not value.strip():
        raise TypeError(f"{value!r:.40} is no text")
    return " ".join(value.split())


def _repeated(rubric: Rubric) -> str | None:
    """Two items, or two traits, that say the same."""
    items, traits = [criterion.text for criterion in rubric.criteria], [trait.name for trait in rubric.traits]
    for kind, texts in (("items", items), ("traits", traits)):
        counts = Counter(text.casefold() for text in texts)
        repeated = next((text for text in texts if counts[text.casefold()] > 1), None)
        if repeated:
            return f"two {kind} read '{repeated[:60]}'"
    return None


def _anchored(rubric: Rubric) -> dict[str, float]:
    """The scores that a made trait's anchors describe."""
    scale = rubric.scale
    middle = scale.min + scale.step * (scale.levels // 2)
    if scale.levels > 2:
        return {"lowest": scale.min, "middle": middle, "highest": scale.max}
    return {"lowest": scale.min, "highest": scale.max}


def _material(question: str | None, context: str | None) -> str:
    about = f"\nIt is about answers to this question:\n{question}\n" if question else ""
    return about + (f"\nMaterial that belongs to the question:\n{context}\n" if context else "")


def _trait_lines(rubric: Rubric, descending: bool) -> Iterator[str]:
    if not rubric.traits:
        yield f"Name between one and {MOST_TRAITS} traits of quality that the rubric speaks of, each in a few words."
        yield "Describe for each what the lowest, the middle and the highest score look like, and what parts them."
    for trait in rubric.traits:
        yield f"- {trait.id}: {trait.name}, {trait.min:g} to {trait.max:g}"
        for anchor in reversed(trait.anchors) if descending else trait.anchors:
            yield f"  {anchor.score:g}: {anchor.text}"


# Asking a model for a rubric: prompts, bounded schemas, repair of what breaks the contract, and a record of it all.


def request(
    brief: RubricBrief, prompt: str, schema: Mapping[str, Any], sampling: Sampling, structured: bool
) -> Request:
    """The request for one rubric; structured: whether the model is held to the schema."""
    return Request(
        messages=(Message("user", prompt),),
        role=brief.role,
        subject=brief.rubric.rubric_id,
        keys=frozenset(schema["required"]),
        schema=schema if structured else None,
        sampling=sampling,
        data=brief,
    )


def make(
    requests: Sequence[Request],
    backend: Backend,
    replies: Replies,
    check: Callable[[Request, Reply], Checked[Rubric]],
) -> dict[str, MadeRubric]:
    """Rubric id → what was made of it. A rubric that the store holds a reply for is not asked for again.

    InputError names a rubric for which there is no usable reply within the budget, and what was wrong with the last.
    """
    answers = ask_amending(requests, backend, replies, check, all_again(PROMPTS))
    return {answer.request.subject: _made_rubric(answer) for answer in answers}


def _made_rubric(answer: RequestOutcome[Rubric]) -> MadeRubric:
    rubric = usable(answer, answer.request.role, "write its criteria by hand", field="rubrics")
    return MadeRubric(rubric, tuple(as_call(attempt) for attempt in answer.attempts))

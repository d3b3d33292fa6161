"""Rubrics that a language model makes of others: criteria of a rubric's prose, and the same rubric in other words.

Induction is Rulers, phase I (section 3.2, appendices A.8 and B.1): traits, checklist items, anchors and evidence types
of the prose. What the model is free in is what needs reading; ids, ranges and the order of things are code's. Traits
that the author gave stay as they are.

Other presentations of a rubric are Rulers, section 4.5 and Table 10: ids, weights and numbers of levels stay.
`criteria_reversed` is code's. `levels_reversed` changes no rubric: it is `Protocol.levels_shown`. `paraphrased` takes a
model, or the rewording of tasks/grading/lock/offline.py.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from rubricflow.tasks.core.contracts.bundle import Anchor, Criterion, EvidenceType, Rubric, Trait
from rubricflow.tasks.core.contracts.settings.engine import Sampling
from rubricflow.tasks.core.contracts.settings.study import Induce
from rubricflow.tasks.core.llm.ask import Checked, all_again, artifact_in, as_call, ask_amending, usable
from rubricflow.tasks.core.llm.backend import Backend
from rubricflow.tasks.core.llm.reply_store import Replies
from rubricflow.tasks.core.llm.request import Reply, Request, contract_request
from rubricflow.tasks.core.llm.schema import JsonDict, JsonObject, compact, form, record, several, text
from rubricflow.tasks.core.text.templates import Templates
from rubricflow.tasks.grading.lock.lint import reversed_bands
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
    calls: tuple[JsonDict, ...] = ()


def make(
    requests: Sequence[Request],
    backend: Backend,
    replies: Replies,
    check: Callable[[Request, Reply], Checked[Rubric]],
) -> dict[str, MadeRubric]:
    """Rubric id → what was made of it. A rubric that the store holds a reply for is not asked for again.

    InputError names a rubric for which there is no usable reply within the budget, and what was wrong with the last.
    """
    made = {}
    for answer in ask_amending(requests, backend, replies, check, all_again(PROMPTS)):
        rubric = usable(answer, answer.request.role, "write its criteria by hand", field="rubrics")
        made[answer.request.subject] = MadeRubric(rubric, tuple(map(as_call, answer.attempts)))
    return made


# Induction.

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
    drawing = sampling.model_copy(update={"seed": plan.seed, "temperature": plan.temperature})
    about = f"\nIt is about answers to this question:\n{question}\n" if question else ""
    values = {
        "title": rubric.title or rubric.rubric_id,
        "rubric": rubric.text,
        "scale": f"{low:g} to {high:g} in steps of {step:g}",
        "material": about + (f"\nMaterial that belongs to the question:\n{context}\n" if context else ""),
        "traits": "\n".join(_trait_lines(rubric, descending)),
        "count": str(plan.criteria),
        "shape": form(contract),
    }
    brief = RubricBrief("induce", rubric, plan.criteria, plan.seed)
    return _request(brief, values, contract, drawing, _TOKENS + _TOKENS_PER_ITEM * plan.criteria, structured)


def _request(
    brief: RubricBrief, values: Mapping[str, str], contract: JsonObject, how: Sampling, longest: int, held: bool
) -> Request:
    content = PROMPTS.fill(brief.role, values)
    subject = brief.rubric.rubric_id
    return contract_request(content, contract, how, longest, held, role=brief.role, subject=subject, data=brief)


def _trait_lines(rubric: Rubric, descending: bool) -> Iterator[str]:
    if not rubric.traits:
        yield f"Name between one and {MOST_TRAITS} traits of quality that the rubric speaks of, each in a few words."
        yield "Describe for each what the lowest, the middle and the highest score look like, and what parts them."
    for trait in rubric.traits:
        yield f"- {trait.id}: {trait.name}, {trait.min:g} to {trait.max:g}"
        for anchor in reversed(trait.anchors) if descending else trait.anchors:
            yield f"  {anchor.score:g}: {anchor.text}"


def schema(rubric: Rubric, criteria: int) -> JsonDict:
    """The contract: every string bounded, every trait with at least one item, every item with three levels.

    `{"traits": {trait id: {"items": [{"text", "evidence", "levels": {"absent", "partial", "clear"}}]}}}` where the
    author gave traits; otherwise a list of `{"name", "anchors": {"lowest", "middle", "highest"}, "items"}`.
    """
    members = {
        "text": text(240, "statement"),
        "evidence": {"type": "string", "enum": list(TYPES)},
        "levels": record({name: text(160, "few words") for name in LEVELS}),
    }
    items = several(record(members), 1, criteria)
    if rubric.traits:
        return record({"traits": record({trait.id: record({"items": items}) for trait in rubric.traits})})
    anchors = record({name: text(240) for name in _anchored(rubric)})
    trait = record({"name": text(60, "name"), "anchors": anchors, "items": items})
    return record({"traits": several(trait, 1, MOST_TRAITS)})


def _anchored(rubric: Rubric) -> dict[str, float]:
    """The scores that a made trait's anchors describe."""
    scale = rubric.scale
    middle = {"middle": scale.min + scale.step * (scale.levels // 2)} if scale.levels > 2 else {}
    return {"lowest": scale.min, **middle, "highest": scale.max}


def check(request: Request, reply: Reply) -> Checked[Rubric]:
    """The rubric that a reply makes; violations where it breaks the contract or would be an unusable rubric."""
    brief: RubricBrief = request.data
    found = artifact_in(reply, schema(brief.rubric, 2 * brief.criteria))
    if found.value is None:
        return Checked(None, found.violations)
    rubric = _rubric(brief.rubric, found.value["traits"])
    if len(rubric.criteria) > 2 * brief.criteria:
        return Checked(None, (f"{len(rubric.criteria)} items; about {brief.criteria} were asked for",))
    problem = broken(rubric)
    for kind, said in (("items", [c.text for c in rubric.criteria]), ("traits", [t.name for t in rubric.traits])):
        (most, times), *_ = Counter(map(str.casefold, said)).most_common(1)
        if times > 1 and problem is None:
            problem = f"two {kind} read '{most[:60]}'"
    return Checked(None, (f"unusable: {problem}",)) if problem else Checked(rubric, ())


def _rubric(source: Rubric, artifact: Any) -> Rubric:
    """The source with the criteria, and without traits of its own the traits, of an artifact; without its examples,
    which label the author's criteria."""
    if source.traits:
        contents = [(trait, artifact[trait.id]) for trait in source.traits]
    else:
        contents = [(_trait(f"T{number}", source, content), content) for number, content in enumerate(artifact, 1)]
    # I01, I02, …, but never an id that the author used: people may have marked that criterion.
    used = {criterion.id for criterion in source.criteria}
    ids = (name for number in range(1, 1000) if (name := f"I{number:02d}") not in used)
    criteria = []
    for trait, content in contents:
        for item in content["items"]:
            statement = line(item["text"])
            levels = tuple(line(item["levels"][level]) for level in LEVELS)
            made = {"id": next(ids), "trait": trait.id, "text": statement, "levels": levels}
            criteria.append(Criterion(kind="checklist", evidence=item["evidence"], **made))
    traits = tuple(trait for trait, _ in contents)
    return source.model_copy(update={"traits": traits, "criteria": tuple(criteria), "examples": ()})


def _trait(name: str, source: Rubric, content: JsonObject) -> Trait:
    low, high, step = source.scale.bounds
    texts = content["anchors"]
    anchors = tuple(Anchor(score=score, text=texts[place]) for place, score in _anchored(source).items())
    return Trait(id=name, name=line(content["name"]), min=low, max=high, step=step, anchors=anchors)


# Presentations of the same rubric.

_TOKENS_OF_PARAPHRASE, _CHARACTERS_PER_TOKEN = 256, 2
"""What a paraphrase takes in addition to the rubric's own length."""


def prose_turned(rubric: Rubric) -> Rubric:
    """The rubric with the score bands of its prose in the reverse order."""
    return rubric.model_copy(update={"text": reversed_bands(rubric.text, rubric.scale)})


def order_turned(rubric: Rubric) -> Rubric:
    """The rubric with its criteria and its traits in the reverse order."""
    return rubric.model_copy(update={"traits": rubric.traits[::-1], "criteria": rubric.criteria[::-1]})


def paraphrase(rubric: Rubric, sampling: Sampling, structured: bool = True) -> Request:
    """The request that puts a rubric into other words."""
    wording = compact(words(rubric))
    brief = RubricBrief("paraphrase", rubric, 0, sampling.seed)
    longest = _TOKENS_OF_PARAPHRASE + len(wording) // _CHARACTERS_PER_TOKEN
    return _request(brief, {"rubric": wording}, paraphrase_schema(rubric), sampling, longest, structured)


def words(rubric: Rubric) -> JsonDict:
    """All that a rubric says, by where it says it: {"text", "traits": {id: {"name", "anchors"}}, "criteria": {id:
    {"text", "levels"}}}; without "text" where it has no prose."""
    prose = {"text": rubric.text} if rubric.text.strip() else {}
    traits, criteria = {}, {}
    for trait in rubric.traits:
        traits[trait.id] = {"name": trait.name, "anchors": [anchor.text for anchor in trait.anchors]}
    for criterion in rubric.criteria:
        criteria[criterion.id] = {"text": criterion.text, "levels": list(criterion.levels)}
    return {**prose, "traits": traits, "criteria": criteria}


def paraphrase_schema(rubric: Rubric) -> JsonDict:
    """The contract: the shape of `words`, with lists of the same lengths; a string may grow by half and 60 more."""

    def like(old: Any) -> JsonDict:
        if isinstance(old, dict):
            return record({name: like(member) for name, member in old.items()})
        if isinstance(old, list):
            return several(like(max(old, key=len, default="")), len(old), len(old))
        return text(60 + len(old) * 3 // 2)

    return like(words(rubric))


def check_paraphrase(request: Request, reply: Reply) -> Checked[Rubric]:
    """The rubric in the reply's words; violations where something is missing, added, unusable, or as it was."""
    source: Rubric = request.data.rubric
    found = artifact_in(reply, paraphrase_schema(source))
    if found.value is None:
        return Checked(None, found.violations)
    traits, criteria = [], []
    for trait in source.traits:
        new = found.value["traits"][trait.id]
        pairs = zip(trait.anchors, new["anchors"], strict=True)
        anchors = tuple(anchor.model_copy(update={"text": line(words)}) for anchor, words in pairs)
        traits.append(trait.model_copy(update={"name": line(new["name"]), "anchors": anchors}))
    for criterion in source.criteria:
        new = found.value["criteria"][criterion.id]
        reworded = {"text": line(new["text"]), "levels": tuple(map(line, new["levels"]))}
        criteria.append(criterion.model_copy(update=reworded))
    prose = found.value.get("text", source.text)
    rubric = source.model_copy(update={"text": prose, "traits": tuple(traits), "criteria": tuple(criteria)})
    problem = broken(rubric) if source.criteria else None
    if problem:
        return Checked(None, (f"unusable: {problem}",))
    texts = [(old.text, new.text) for old, new in zip(source.criteria, rubric.criteria, strict=True)]
    same = [old for old, new in texts or [(source.text, rubric.text)] if old == new]
    return Checked(None if same else rubric, tuple(f"not in other words: '{old[:60]}'" for old in same[:5]))


def line(text: str) -> str:
    """A text on one line."""
    return " ".join(text.split())

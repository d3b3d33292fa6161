"""The same rubric in another presentation (Rulers, section 4.5 and Table 10): ids, weights and numbers of levels stay.

`criteria_reversed` is code's. `levels_reversed` changes no rubric: it is `Protocol.levels_shown`. `paraphrased` takes a
model, or the rewording of tasks/grading/lock/offline.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rubricflow.tasks.core.contracts.bundle import Criterion, Rubric, Trait
from rubricflow.tasks.core.contracts.settings.engine import Sampling
from rubricflow.tasks.core.llm.ask import Checked
from rubricflow.tasks.core.llm.extract import extract
from rubricflow.tasks.core.llm.request import Reply, Request
from rubricflow.tasks.core.llm.schema import compact, record, several, text
from rubricflow.tasks.grading.lock.induce import PROMPTS, RubricBrief, request
from rubricflow.tasks.grading.lock.lint import reversed_bands
from rubricflow.tasks.grading.lock.rubric import broken

_TOKENS, _CHARACTERS_PER_TOKEN = 256, 2
"""What a paraphrase takes beside the rubric's own length."""


def prose_turned(rubric: Rubric) -> Rubric:
    """The rubric with the score bands of its prose in the reverse order."""
    return rubric.model_copy(update={"text": reversed_bands(rubric.text, rubric.scale)})


def order_turned(rubric: Rubric) -> Rubric:
    """The rubric with its criteria and its traits in the reverse order."""
    return rubric.model_copy(update={"traits": rubric.traits[::-1], "criteria": rubric.criteria[::-1]})


def paraphrase(rubric: Rubric, sampling: Sampling, structured: bool = True) -> Request:
    """The request that puts a rubric into other words."""
    wording = compact(words(rubric))
    room = max(sampling.longest, _TOKENS + len(wording) // _CHARACTERS_PER_TOKEN)
    brief = RubricBrief("paraphrase", rubric, 0, sampling.seed)
    longer = sampling.model_copy(update={"max_tokens": room})
    return request(brief, PROMPTS.fill("paraphrase", {"rubric": wording}), schema(rubric), longer, structured)


def words(rubric: Rubric) -> dict[str, Any]:
    """All that a rubric says, by where it says it: {"text", "traits": {id: {"name", "anchors"}}, "criteria": {id:
    {"text", "levels"}}}; without "text" where it has no prose."""
    prose = {"text": rubric.text} if rubric.text.strip() else {}
    traits = {trait.id: {"name": trait.name, "anchors": _anchor_texts(trait)} for trait in rubric.traits}
    criteria = {}
    for criterion in rubric.criteria:
        criteria[criterion.id] = {"text": criterion.text, "levels": list(criterion.levels)}
    return {**prose, "traits": traits, "criteria": criteria}


def _anchor_texts(trait: Trait) -> list[str]:
    return [anchor.text for anchor in trait.anchors]


def schema(rubric: Rubric) -> dict[str, Any]:
    """The contract: the shape of `words`, with lists of the same lengths; a string may grow by half and 60 more."""
    prose = {"text": _like(rubric.text)} if rubric.text.strip() else {}
    traits = {}
    for trait in rubric.traits:
        traits[trait.id] = record({"name": _like(trait.name), "anchors": _each(_anchor_texts(trait))})
    criteria = {}
    for criterion in rubric.criteria:
        criteria[criterion.id] = record({"text": _like(criterion.text), "levels": _each(criterion.levels)})
    return record({**prose, "traits": record(traits), "criteria": record(criteria)})


def check(request: Request, reply: Reply) -> Checked[Rubric]:
    """The rubric in the reply's words; violations where something is missing, added, unusable, or as it was."""
    source: Rubric = request.data.rubric
    artifact, note = extract(reply.text, request.keys)
    if artifact is None:
        return Checked(None, (f"unreadable:{note}",))
    wrong = tuple(_differences(words(source), artifact, ()))
    if wrong:
        return Checked(None, wrong[:5])
    rubric = _reworded(source, artifact)
    problem = broken(rubric) if source.criteria else None
    if problem:
        return Checked(None, (f"unusable: {problem}",))
    texts = [(old.text, new.text) for old, new in zip(source.criteria, rubric.criteria, strict=True)]
    same = [old for old, new in texts or [(source.text, rubric.text)] if old == new]
    if same:
        return Checked(None, tuple(f"not in other words: '{old[:60]}'" for old in same[:5]))
    return Checked(rubric, ())


def _like(old: str) -> dict[str, Any]:
    return text(60 + len(old) * 3 // 2)


def _each(old: tuple[str, ...] | list[str]) -> dict[str, Any]:
    longest = max(old, key=len, default="")
    return several(_like(longest), len(old), len(old))


def _differences(old: Any, new: Any, path: tuple[str, ...]) -> Iterator[str]:
    """Where two values do not have the same shape, in words."""
    place = ".".join(path) or "the object"
    if isinstance(old, dict):
        if not isinstance(new, dict) or set(old) != set(new):
            yield f"{place} does not have the keys {', '.join(old)}"
            return
        for key in old:
            yield from _differences(old[key], new[key], (*path, key))
    elif isinstance(old, list):
        if not isinstance(new, list) or len(old) != len(new):
            yield f"{place} is no list of {len(old)}"
            return
        for number, item in enumerate(old):
            yield from _differences(item, new[number], (*path, str(number)))
    elif not (isinstance(new, str) and new.strip()):
        yield f"{place} is no text"


def _reworded(source: Rubric, new: dict[str, Any]) -> Rubric:
    traits = tuple(_trait(trait, new["traits"][trait.id]) for trait in source.traits)
    criteria = tuple(_criterion(criterion, new["criteria"][criterion.id]) for criterion in source.criteria)
    return source.model_copy(update={"text": new.get("text", source.text), "traits": traits, "criteria": criteria})


def _trait(trait: Trait, new: dict[str, Any]) -> Trait:
    pairs = zip(trait.anchors, new["anchors"], strict=True)
    anchors = tuple(anchor.model_copy(update={"text": _line(text)}) for anchor, text in pairs)
    return trait.model_copy(update={"name": _line(new["name"]), "anchors": anchors})


def _criterion(criterion: Criterion, new: dict[str, Any]) -> Criterion:
    levels = tuple(map(_line, new["levels"]))
    return criterion.model_copy(update={"text": _line(new["text"]), "levels": levels})


def _line(words: str) -> str:
    return " ".join(words.split())

"""The same rubric in another presentation (Rulers, section 4.5 and Table 10): ids, weights and numbers of levels stay.

`criteria_reversed` is code's. `levels_reversed` changes no rubric: it is `Protocol.levels_shown`. `paraphrased` takes a
model, or the rewording of tasks/lock/offline.py.
"""

from __future__ import annotations

import json
from typing import Any

from tasks.contracts.bundle import Criterion, Rubric, Trait
from tasks.contracts.settings.engine import Sampling
from tasks.llm.ask import Checked
from tasks.llm.extract import extract
from tasks.llm.request import Reply, Request
from tasks.llm.schema import record, several, text
from tasks.lock.bands import reversed_bands
from tasks.lock.contract import PROMPTS, RubricBrief, request
from tasks.lock.rubric import broken

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
    wording = json.dumps(words(rubric), ensure_ascii=False)
    room = max(sampling.longest, _TOKENS + len(wording) // _CHARACTERS_PER_TOKEN)
    wanted = RubricBrief("paraphrase", rubric, 0, sampling.seed)
    drawn = sampling.model_copy(update={"max_tokens": room})
    return request(wanted, PROMPTS.fill("paraphrase", {"rubric": wording}), schema(rubric), drawn, structured)


def words(rubric: Rubric) -> dict[str, Any]:
    """All that a rubric says, by where it says it: {"text", "traits": {id: {"name", "anchors"}}, "criteria": {id:
    {"text", "levels"}}}; without "text" where it has no prose."""
    prose = {"text": rubric.text} if rubric.text.strip() else {}
    traits = {t.id: {"name": t.name, "anchors": [anchor.text for anchor in t.anchors]} for t in rubric.traits}
    criteria = {c.id: {"text": c.text, "levels": list(c.levels)} for c in rubric.criteria}
    return {**prose, "traits": traits, "criteria": criteria}


def schema(rubric: Rubric) -> dict[str, Any]:
    """The contract: the shape of `words`, with lists of the same lengths; a string may grow by half and 60 more."""
    prose = {"text": _like(rubric.text)} if rubric.text.strip() else {}
    traits = {
        t.id: record({"name": _like(t.name), "anchors": _each([a.text for a in t.anchors])}) for t in rubric.traits
    }
    criteria = {c.id: record({"text": _like(c.text), "levels": _each(c.levels)}) for c in rubric.criteria}
    return record({**prose, "traits": record(traits), "criteria": record(criteria)})


def check(asked: Request, reply: Reply) -> Checked[Rubric]:
    """The rubric in the reply's words; violations where something is missing, added, unusable, or as it was."""
    source: Rubric = asked.data.rubric
    artifact, note = extract(reply.text, asked.keys)
    if artifact is None:
        return Checked(None, (f"unreadable:{note}",))
    wrong = tuple(_differences(words(source), artifact, ()))
    if wrong:
        return Checked(None, wrong[:5])
    made = _reworded(source, artifact)
    problem = broken(made) if source.criteria else None
    if problem:
        return Checked(None, (f"unusable: {problem}",))
    told = [(c.text, new.text) for c, new in zip(source.criteria, made.criteria, strict=True)]
    same = [old for old, new in told or [(source.text, made.text)] if old == new]
    return Checked(None, tuple(f"not in other words: '{old[:60]}'" for old in same[:5])) if same else Checked(made, ())


def _like(old: str) -> dict[str, Any]:
    return text(60 + len(old) * 3 // 2)


def _each(old: tuple[str, ...] | list[str]) -> dict[str, Any]:
    longest = max(old, key=len, default="")
    return several(_like(longest), len(old), len(old))


def _differences(old: Any, new: Any, at: tuple[str, ...]) -> list[str]:
    """Where two values do not have the same shape, in words."""
    place = ".".join(at) or "the object"
    if isinstance(old, dict):
        if not isinstance(new, dict) or set(old) != set(new):
            return [f"{place} does not have the keys {', '.join(old)}"]
        return [found for key in old for found in _differences(old[key], new[key], (*at, key))]
    if isinstance(old, list):
        if not isinstance(new, list) or len(old) != len(new):
            return [f"{place} is no list of {len(old)}"]
        return [found for n, item in enumerate(old) for found in _differences(item, new[n], (*at, str(n)))]
    return [] if isinstance(new, str) and new.strip() else [f"{place} is no text"]


def _reworded(source: Rubric, new: dict[str, Any]) -> Rubric:
    return source.model_copy(
        update={
            "text": new.get("text", source.text),
            "traits": tuple(_trait(trait, new["traits"][trait.id]) for trait in source.traits),
            "criteria": tuple(_criterion(one, new["criteria"][one.id]) for one in source.criteria),
        }
    )


def _trait(trait: Trait, new: dict[str, Any]) -> Trait:
    pairs = zip(trait.anchors, new["anchors"], strict=True)
    anchors = tuple(anchor.model_copy(update={"text": _line(told)}) for anchor, told in pairs)
    return trait.model_copy(update={"name": _line(new["name"]), "anchors": anchors})


def _criterion(criterion: Criterion, new: dict[str, Any]) -> Criterion:
    levels = tuple(map(_line, new["levels"]))
    return criterion.model_copy(update={"text": _line(new["text"]), "levels": levels})


def _line(told: str) -> str:
    return " ".join(told.split())

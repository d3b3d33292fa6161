"""The judging contract as JSON Schema, generated from the bundle.

Shapes: a checklist `{"decisions": {criterion: {"diagnostic", "level", "evidence": [{"unit", "quote"}]}}}`, in which
every criterion asked for stands exactly once, with a quote where its level needs one; in the same way answers
`{"answers": {criterion: "yes" or "no"}}`, components `{"components": {criterion: text or null}}` and traits
`{"traits": {trait: {"score", "evidence"}}}`; and one stated score `{"rationale", "score"}`. Strings are bounded, so
that a model that is held to the schema ends.

What a quote may cite stands once in a schema, under `$defs`: `citing` lists there the units of one response, so that a
model that is held to it cannot cite another one.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from rubricflow.tasks.core.contracts.bundle import Bundle, Criterion, EvidenceType, Scale, Trait
from rubricflow.tasks.core.llm.request import cached_by_identity
from rubricflow.tasks.core.llm.schema import JsonDict, JsonObject, compact, form, record, several, text
from rubricflow.tasks.core.text.fold import folded
from rubricflow.tasks.core.text.tokens import words
from rubricflow.tasks.core.text.traces import of_trace
from rubricflow.tasks.core.text.units import Unit

MAX_QUOTE = 400
MAX_QUOTES = 4
MAX_PROSE = 1_200
"""Characters; two long sentences take a third of it, so that only who rambles is cut."""
YES, NO = "yes", "no"

MAX_NAME = 40
MOST_LISTED = 500
"""Of a kind with more units the schema says only how they are called: a list of many thousands would be the grammar."""

WORDS = "exact words"
"""What a form shows in place of a quote."""
EXAMPLE = ("There is chlorophyll inside the leaf.", "Plants need it to grow.")
"""The sentences of the response in the worked examples of prompts."""
_COPIED = tuple(words(folded(copied)) for copied in (*EXAMPLE, WORDS))

PROSE = {"type": "string", "maxLength": MAX_PROSE, "description": "two sentences at most"}
QUOTE = text(MAX_QUOTE, WORDS)
_DIAGNOSTIC = text(MAX_PROSE, "what shows it in the whole response")
_UNNAMED = {"type": "string", "minLength": 1, "maxLength": MAX_NAME}


def checklist(criteria: Sequence[Criterion]) -> JsonDict:
    """Schema of the decisions on these criteria, in their order."""
    cited = {_cites(criterion.evidence) for criterion in criteria if "evidence" in fields(criterion)}
    return _open(record({"decisions": record({c.id: _decision(c) for c in criteria})}), cited)


def stated(scale: Scale) -> JsonDict:
    """Schema of one score on a scale with its rationale."""
    numbers = steps(scale)
    if isinstance(numbers[0], int):
        score: JsonDict = {"type": "integer", "minimum": scale.min, "maximum": scale.max}
    else:
        score = {"type": "number", "enum": numbers}
    return record({"rationale": PROSE, "score": score})


def answers(criteria: Sequence[Criterion]) -> JsonDict:
    """Schema of yes or no to each of these criteria."""
    answer = {"type": "string", "enum": [YES, NO]}
    return record({"answers": record({criterion.id: answer for criterion in criteria})})


def components(criteria: Sequence[Criterion]) -> JsonDict:
    """Schema of what is found in a response for each of these criteria; null for nothing."""
    text_or_nothing = {"anyOf": [text(MAX_QUOTE, "words of the response"), {"type": "null"}]}
    return record({"components": record({criterion.id: text_or_nothing for criterion in criteria})})


def traits(judged: Sequence[Trait]) -> JsonDict:
    """Schema of a score with its quotes for each of these traits; a score above the lowest has one."""
    scored = {trait.id: _supported("score", steps(trait), "unit") for trait in judged}
    return _open(record({"traits": record(scored)}), {"unit"} if judged else set())


def shown(schema: JsonObject, names: UnitNames) -> str:
    """The form of a contract, as a prompt shows it."""
    return form(schema, dict.fromkeys(schema.get("$defs", ()), names.forms()))


def example_prefix(bundle: Bundle) -> str:
    """What the ids in a worked example begin with: with what no id of the rubric begins, so that an example that is
    repeated decides nothing."""
    criteria = (*bundle.criteria, *bundle.composites)
    prefix = "LEAF"
    ids = [name.casefold() for name in (*(c.id for c in criteria), *(t.id for t in bundle.traits))]
    while any(name.startswith(prefix.casefold()) for name in ids):
        prefix = f"_{prefix}"
    return prefix


def example(prefix: str, levels: Sequence[int], names: UnitNames) -> str:
    """The answer of a worked example: these levels, those above 0 each with a sentence of `EXAMPLE`."""
    quotes = iter(enumerate(EXAMPLE, 1))
    decisions = {}
    for number, level in enumerate(levels, 1):
        cited = [next(quotes)] if level else []
        evidence = [{"unit": names.name(f"{names.first}{place}"), "quote": quote} for place, quote in cited]
        decisions[f"{prefix}{number}"] = {"level": level, "evidence": evidence}
    return compact({"decisions": decisions})


def repeats_example(artifact: object, response: str) -> bool:
    """Whether an artifact holds words of a worked example or of a form that the response does not hold: who quotes the
    prompt in place of the response has not judged it."""
    if isinstance(artifact, str):
        said = words(folded(artifact))
        return any(_holds(copied, said) for copied in _COPIED) and not _holds(words(folded(response)), said)
    parts = artifact.values() if isinstance(artifact, dict) else artifact if isinstance(artifact, list) else ()
    return any(repeats_example(part, response) for part in parts)


def _holds(text: Sequence[str], said: Sequence[str]) -> bool:
    """Whether words, two or more, stand in a text one after the other."""
    return len(said) > 1 and f" {' '.join(said)} " in f" {' '.join(text)} "


def citing(schema: JsonObject, units: Sequence[Unit], names: UnitNames) -> JsonObject:
    """The schema of a contract for one response: what may be cited are its units, by their names.

    Responses with as many units have the same schema, which is made once. A schema that cites nothing, and one for a
    response without units, stays as it is.
    """
    if "$defs" not in schema or not units:
        return schema
    if turns := of_trace(units):
        unit: JsonDict = {"type": "string", "enum": [names.name(turn.unit_id) for turn in turns]}
        if len(turns) > MOST_LISTED:
            unit = {"type": "string", "pattern": f"^({names.turn}|{names.step}) [1-9][0-9]{{0,4}}$"}
        return {**schema, "$defs": dict.fromkeys(schema["$defs"], unit)}
    sentences = sum(unit.kind == "sentence" for unit in units)
    return _citing(schema, sentences, len(units) - sentences, names)


@cached_by_identity
def _citing(schema: JsonObject, sentences: int, paragraphs: int, names: UnitNames) -> JsonObject:
    kinds: list[JsonDict] = []
    for kind, count in (("s", sentences), ("p", paragraphs)):
        if count > MOST_LISTED:
            kinds.append({"type": "string", "pattern": f"^{names.name(f'{kind}1')[:-1]}[1-9][0-9]{{0,4}}$"})
        else:
            kinds.append({"type": "string", "enum": [names.name(f"{kind}{n}") for n in range(1, count + 1)]})
    sentence, paragraph = kinds
    unit: JsonDict = {"anyOf": kinds}
    if "enum" in sentence and "enum" in paragraph:
        unit = {"type": "string", "enum": [*sentence["enum"], *paragraph["enum"]]}
    listed = {"sentence": sentence, "unit": unit}
    return {**schema, "$defs": {name: listed[name] for name in schema["$defs"]}}


def _cites(evidence: EvidenceType) -> str:
    """What a quote of this type cites: a sentence, or a sentence or a paragraph."""
    return "sentence" if evidence == "local_quote" else "unit"


def _supported(name: str, numbers: Sequence[float], cited: str, is_diagnosed: bool = False) -> JsonDict:
    """Schema of one of these steps with its quotes, of which the lowest alone may have none, and of a diagnostic
    statement before it."""
    kind = "integer" if all(isinstance(step, int) for step in numbers) else "number"
    before = {"diagnostic": _DIAGNOSTIC} if is_diagnosed else {}
    kinds = []
    for of, least in ((numbers[:1], 0), (numbers[1:], 1)):
        kinds.append(record({**before, name: {"type": kind, "enum": [*of]}, "evidence": _quotes(cited, least)}))
    return {"anyOf": kinds}


def _quotes(cited: str, fewest: int) -> JsonDict:
    return several(record({"unit": {"$ref": f"#/$defs/{cited}"}, "quote": QUOTE}), fewest, MAX_QUOTES)


def _open(schema: JsonDict, cited: set[str]) -> JsonDict:
    """The schema before it is known what there is to cite."""
    return {**schema, "$defs": dict.fromkeys(sorted(cited), _UNNAMED)} if cited else schema


def fields(criterion: Criterion) -> list[str]:
    """What a decision on a criterion holds, in order; the level before its quotes: a small model that must quote first
    finds words for everything, and then holds what it quoted for met (tests/bench/README.md)."""
    diagnostic = ["diagnostic"] if criterion.evidence == "global_diagnostic" else []
    evidence = [] if criterion.evidence == "none" else ["evidence"]
    return [*diagnostic, "level", *evidence]


def _decision(criterion: Criterion) -> JsonDict:
    levels = range(len(criterion.levels))
    cited = _cites(criterion.evidence)
    if criterion.evidence in ("local_quote", "span_level", "global_diagnostic"):
        return _supported("level", levels, cited, criterion.evidence == "global_diagnostic")
    stated = {"level": {"type": "integer", "enum": [*levels]}}
    return record(stated if criterion.evidence == "none" else {**stated, "evidence": _quotes(cited, 0)})


def steps(scale: Scale) -> list[float]:
    """The scores of a scale, whole numbers where they are one apart."""
    # `multipleOf` counts from 0 and not from the lowest score, and 0.3 is no multiple of 0.1 in floating point.
    numbers = [round(scale.min + scale.step * i, 12) for i in range(scale.levels)]
    return [int(number) for number in numbers] if scale.step == 1 and scale.min.is_integer() else numbers


_ID = re.compile(r"([spta])([1-9][0-9]*)")
_CITED = re.compile(r"\W*(?:(?P<word>[^\W\d]+(?:\s[^\W\d]+)*)\W*)?0*(?P<number>[1-9][0-9]{0,4})\W*")
_SHORT = {"s": "s", "sentence": "s", "p": "p", "paragraph": "p"}
_SHORT_OF_TRACE = {"t": "t", "turn": "t", "a": "a", "step": "a"}


@dataclass(frozen=True)
class UnitNames:
    """The words that name the units of every response under a bundle."""

    sentence: str = "sentence"
    """Before the number of a sentence."""
    paragraph: str = "paragraph"
    """Before the number of a paragraph."""
    reserved: frozenset[str] = frozenset()
    """Folded ids of what is no unit."""
    turn: str = ""
    """Before the number of a turn; '' where the responses are no traces, and sentences and paragraphs are cited."""
    step: str = ""
    """Before the number of a step."""

    def name(self, unit_id: str) -> str:
        """The name of a unit; what is no unit's id stays as it is."""
        match = _ID.fullmatch(unit_id)
        if match is None:
            return unit_id
        words = {"s": self.sentence, "p": self.paragraph, "t": self.turn or "turn", "a": self.step or "step"}
        return f"{words[match[1]]} {match[2]}"

    def unit_id(self, cited: str, bare: str = "s") -> str:
        """The unit that a judge cites: by its name, by its id, in brackets or not, or by the number alone.

        bare: the letter of the kind that a number alone means, unless it is a turn of a trace. An id of a criterion
        becomes `criterion <id>`, which is no unit; what names nothing stays as it is.
        """
        return _unit_id(self, cited, bare)

    def forms(self) -> str:
        """The two names as a prompt tells them."""
        return f"{self.turn} N or {self.step} N" if self.turn else f"{self.sentence} N or {self.paragraph} N"

    @property
    def first(self) -> str:
        """The letter of what is cited most."""
        return "t" if self.turn else "s"


PLAIN = UnitNames()
"""Where no id is like them."""


@cached_by_identity
def names_of(bundle: Bundle) -> UnitNames:
    """The names of the units of responses that are judged under a bundle."""
    rubric = bundle
    ids = [criterion.id for criterion in (*rubric.criteria, *rubric.composites)]
    return names_beside([*ids, *(trait.id for trait in rubric.traits)], rubric.protocol.units == "turns")


def names_beside(ids: Iterable[str], of_traces: bool = False) -> UnitNames:
    """The names of units next to ids that mean something else; of_traces: whether turns and steps are cited."""
    reserved = frozenset(map(folded_id, ids)) - {""}
    named = [_free(word, reserved) for word in ("sentence", "paragraph", "turn", "step")]
    return UnitNames(named[0], named[1], reserved, *(named[2:] if of_traces else ()))


def folded_id(text: str) -> str:
    """Letters and digits of an id or a name, without case."""
    return "".join(filter(str.isalnum, unicodedata.normalize("NFKC", text).casefold()))


def cited_by_name(quotes: Iterable[Mapping[str, str]], names: UnitNames) -> list[dict[str, str]]:
    """Quotes whose `unit` is an id, in the words of the contract."""
    return [{**quote, "unit": names.name(quote["unit"])} for quote in quotes]


def _free(word: str, reserved: Collection[str]) -> str:
    """The word, told apart from ids that are the same word with a number."""
    while any(re.fullmatch(rf"{folded_id(word)}\d+", name) for name in reserved):
        word = f"response {word}"
    return word


@lru_cache(maxsize=16_384)
def _unit_id(names: UnitNames, cited: str, bare: str) -> str:
    if folded_id(cited) in names.reserved:
        return f"criterion {cited}"
    written = cited.partition(",")[0] if names.turn else cited  # a heading goes on with what the turn is
    match = _CITED.fullmatch(unicodedata.normalize("NFKC", written).casefold())
    if match is None:
        return cited
    letters = {**_SHORT, names.sentence: "s", names.paragraph: "p"}
    if names.turn:
        letters |= {**_SHORT_OF_TRACE, names.turn: "t", names.step: "a"}
        bare = "t"
    kind = letters.get(match["word"]) if match["word"] else bare
    return cited if kind is None else f"{kind}{match['number']}"


# Points and misconceptions by number, as memory, worked examples and GradeAgentOps' contract name them.


class Numbered(NamedTuple):
    """Gold points and misconceptions by number, and the judged traits."""

    points: dict[int, Criterion]
    misconceptions: dict[int, Criterion]
    traits: tuple[Trait, ...]


@cached_by_identity
def numbered(bundle: Bundle) -> Numbered:
    """The numbered points and misconceptions of a bundle."""
    points = [c for c in bundle.criteria if c.kind != "misconception"]
    banned = [c for c in bundle.criteria if c.kind == "misconception"]
    return Numbered(dict(enumerate(points, 1)), dict(enumerate(banned, 1)), bundle.judged)


def numbered_names(bundle: Bundle) -> dict[str, str]:
    """Criterion → what the contract calls it: `point 1`, `misconception 2`."""
    points, misconceptions, _ = numbered(bundle)
    names = {criterion.id: f"point {number}" for number, criterion in points.items()}
    return names | {criterion.id: f"misconception {number}" for number, criterion in misconceptions.items()}

"""What stands in for a language model where there is none: rubrics by rules of thumb, in the contracts of induction and
paraphrase.

It understands nothing. An induction cuts the prose into clauses, of a rubric with score bands those of the highest one,
and lets a seed decide which neighbours stay together, which are left out where there are too many, and how the levels
are worded: another seed is another checklist of the same prose. A paraphrase swaps words of a small list and otherwise
puts a phrase around the statement. Both serve to try out what a changed checklist or wording does to the pipeline; they
say nothing about what a model would make of a rubric.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator, Sequence
from typing import Any

from rubricflow.tasks.core.contracts.bundle import Rubric
from rubricflow.tasks.core.llm.request import Reply
from rubricflow.tasks.core.llm.schema import JsonDict
from rubricflow.tasks.core.text.clauses import statements as statements_of
from rubricflow.tasks.core.text.tokens import tokens
from rubricflow.tasks.core.text.units import units
from rubricflow.tasks.grading.lock.induce import RubricBrief, words
from rubricflow.tasks.grading.lock.lint import bands

MODEL = "offline-rubrics-1"
TOGETHER = 0.35
"""Share of neighbouring clauses of a sentence that stay one item."""
_WRAPPED = re.compile(r"(?:(?<![ \t])[ \t]++)?\n[ \t]*(?=[a-z(])")
_COSTS = re.compile(r"\b(?:marks? off|deduct|penal|subtract)", re.IGNORECASE)
_LEVELS = (
    ("not met", "met in part", "met"),
    ("nothing of it is there", "some of it is there", "all of it is there"),
    ("missing", "hinted at", "plain to see"),
    ("no sign of it", "an attempt at it", "done throughout"),
    ("left out", "touched on", "carried out"),
)
"""They go round with the seed, so that five seeds in a row are five checklists of however short a prose."""
_SIGNS = (
    (
        "weakly_groundable",
        {"engaging", "interesting", "creative", "creativity", "original", "originality", "insightful"},
    ),
    ("global_diagnostic", {"tone", "style", "voice", "flow", "fluent", "fluency", "overall", "whole", "throughout"}),
    (
        "span_level",
        {"organized", "organised", "organization", "organisation", "coherence", "coherent", "structure", "paragraph"}
        | {"paragraphs", "develops", "developed", "development", "order", "progression", "sequence", "transitions"},
    ),
)
"""Type of evidence → words that speak for it; a local quote where none does."""
_OTHER_WORDS = {
    "answer": "response", "response": "answer", "essay": "piece of writing", "student": "writer", "writer": "author",
    "says": "states", "said": "stated", "states": "says", "gives": "provides", "given": "provided", "names": "mentions",
    "named": "mentioned", "explains": "makes clear", "explained": "made clear", "describes": "tells of",
    "shows": "makes visible", "uses": "makes use of", "used": "made use of", "reason": "ground", "reasons": "grounds",
    "example": "instance", "examples": "instances", "clear": "plain", "clearly": "plainly", "good": "sound",
    "full": "complete", "complete": "full", "part": "portion", "partly": "to some degree", "absent": "missing",
    "missing": "absent", "present": "there", "none": "nothing", "correct": "right", "wrong": "mistaken",
    "idea": "thought", "ideas": "thoughts", "because": "since", "must": "has to", "only": "just", "also": "too",
    "many": "numerous", "few": "hardly any", "begins": "starts", "ends": "finishes", "large": "big", "small": "little",
    "organised": "ordered", "organized": "ordered", "evidence": "support", "support": "backing", "text": "passage",
    "details": "particulars", "detail": "particular", "errors": "mistakes", "error": "mistake", "mistake": "error",
    "throughout": "from beginning to end", "whole": "entire", "every": "each", "needs": "requires", "need": "require",
    "cannot": "can not", "vague": "imprecise", "vaguely": "imprecisely", "about": "concerning", "main": "chief",
}  # fmt: skip
_WORD = re.compile(r"[A-Za-z]+")


def answer(briefs: Sequence[RubricBrief]) -> list[Reply]:
    """One reply in the contract for each thing that is wanted of a rubric."""
    replies = []
    for brief in briefs:
        artifact = _induced(brief) if brief.role == "induce" else _each(words(brief.rubric))
        replies.append(Reply(text=json.dumps(artifact, ensure_ascii=False)))
    return replies


def statements(rubric: Rubric) -> list[list[str]]:
    """The clauses of the prose by sentence; of a rubric with score bands, of the highest one and of what is in none.

    Sentences that say what costs marks are left out: an item is something to reach.
    """
    text = rubric.text
    score_bands = bands(rubric.text, rubric.scale)
    if score_bands:
        top = max(score_bands, key=lambda band: band.score)
        text = "\n".join((text[: score_bands[0].start], text[top.body : top.end], text[score_bands[-1].end :]))
    prose = _WRAPPED.sub(" ", text)
    sentences = (prose[unit.start : unit.end] for unit in units(prose) if unit.kind == "sentence")
    return [statements_of(sentence) for sentence in sentences if not _COSTS.search(sentence)]


def reworded(text: str) -> str:
    """The text with words of a small list swapped; with a phrase before it where there is none of them."""
    swapped = _WORD.sub(_other, text)
    if swapped != text:
        return swapped
    return f"It holds that {text[:1].lower()}{text[1:]}" if text.rstrip().endswith(".") else f"that is to say: {text}"


def _induced(brief: RubricBrief) -> JsonDict:
    rubric = brief.rubric
    draw = random.Random(f"{brief.seed}\n{brief.rubric.text}")
    texts = list(dict.fromkeys(map(_statement, _together(statements(rubric), draw))))
    if len(texts) > brief.criteria:
        texts = [texts[number] for number in sorted(draw.sample(range(len(texts)), brief.criteria))]
    levels = dict(zip(("absent", "partial", "clear"), _LEVELS[brief.seed % len(_LEVELS)], strict=True))
    items = list[JsonDict]()
    for text in texts:
        text_words = set(tokens(text))
        evidence = next((kind for kind, signs in _SIGNS if text_words & signs), "local_quote")
        items.append({"text": text, "evidence": evidence, "levels": levels})
    if not rubric.traits:
        return {"traits": [{"name": "Quality", "anchors": _anchors(rubric), "items": items}]}
    words_of = {}
    items_of = dict[str, list[JsonDict]]()
    for trait in rubric.traits:
        words_of[trait.id] = set(tokens(" ".join([trait.name, *(anchor.text for anchor in trait.anchors)])))
        items_of[trait.id] = []
    for item in items:  # each with the trait whose words it shares most, of two alike the emptier
        item_words = set(tokens(item["text"]))
        best = max(items_of, key=lambda name: (len(item_words & words_of[name]), -len(items_of[name])))
        items_of[best].append(item)
    for trait in rubric.traits:
        naming = {"text": f"The rubric's demands on '{trait.name[:150]}' are met.", "evidence": "weakly_groundable"}
        items_of[trait.id] = items_of[trait.id] or [{**naming, "levels": levels}]
    return {"traits": {name: {"items": of_trait} for name, of_trait in items_of.items()}}


def _together(sentences: Sequence[Sequence[str]], draw: random.Random) -> Iterator[list[str]]:
    """Clauses, each alone or with neighbours that stay with it."""
    for clauses in sentences:
        neighbours = list(clauses[:1])
        for clause in clauses[1:]:
            if draw.random() >= TOGETHER:
                yield neighbours
                neighbours = []
            neighbours.append(clause)
        if neighbours:
            yield neighbours


def _statement(clauses: Sequence[str]) -> str:
    text = " ".join(", ".join(clauses).split())[:238].strip(" ,;:")
    return f"{text[:1].upper()}{text[1:]}".rstrip(".") + "."


def _anchors(rubric: Rubric) -> dict[str, str]:
    """What the lowest, middle and highest band say; without that many bands, words that say nothing more."""
    plain = {"lowest": "Nothing of what is asked for.", "highest": "All of what is asked for."}
    if rubric.scale.levels > 2:
        plain["middle"] = "About half of what is asked for."
    by_score = sorted(bands(rubric.text, rubric.scale), key=lambda band: band.score)
    if len(by_score) < len(plain):
        return plain
    chosen = {"lowest": by_score[0], "middle": by_score[len(by_score) // 2], "highest": by_score[-1]}
    return {place: " ".join(rubric.text[chosen[place].body : chosen[place].end].split())[:240] for place in plain}


def _each(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _each(item) for key, item in value.items()}
    if isinstance(value, list):
        changed = [reworded(item) for item in value]
        # Two levels must not come to read the same.
        return changed if len({text.casefold() for text in changed}) == len(value) else value
    return reworded(value)


def _other(match: re.Match[str]) -> str:
    word = match[0]
    other = _OTHER_WORDS.get(word.lower(), word)
    return other[:1].upper() + other[1:] if word[0].isupper() else other

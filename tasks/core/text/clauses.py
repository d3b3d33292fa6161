"""Statements in a sentence: where a second one begins, with a verb of its own. English alone; silent where not sure."""

from __future__ import annotations

import re

from rubricflow.tasks.core.text.tokens import tokens

_FINITE = r"(?:is|are|was|were|has|have|had|does|do|did|can|cannot|could|will|would|may|might|should|must)(?:n['’]t)?\b"
_ADVERB = r"(?:(?:then|so|also|therefore|thus|not|never|always|only|later|finally|usually|often)\s+)*"
_OBJECT = r"(?:a|an|the|it|its|them|him|her|his|their|each|every|all|only|how|what)\b"
_PARTICLE = r"(?:over|out|up|away|off)\b"
_NO_VERB = (
    r"(?!(?:of|to|in|on|at|for|from|by|with|without|within|into|onto|about|over|under|between|through|as|than|that|"
    r"what|why|how|when|where|whether|who|which|if|because|since|like|both|all|also|its|their|his|her|the|a|an|more|"
    r"most|less|least|so|not|even|such|some|any|no|only|just|then|before|after|until|across|around|against)\b)"
)
_VERB = rf"{_NO_VERB}[a-z]+\s+(?:{_OBJECT}|{_PARTICLE})"
_CLAUSE = re.compile(rf"\s*{_ADVERB}(?:{_FINITE}|{_VERB})", re.I)
_SUBJECT = re.compile(
    rf"\s*{_ADVERB}(?:(?:it|they|he|she|this|these|those|we|you)\b|"
    r"(?:the|a|an|its|their|his|her|no|some)\s+(?:\w+\s+){1,4}?)"
    rf"(?=.*?(?:\b{_FINITE}|\b{_VERB}))",
    re.I,
)
_HAS_VERB = re.compile(
    rf"\b{_FINITE}|\b[a-z]+\s+(?:it|them)\b|\b{_NO_VERB}[a-z]+(?:s|ed|es)\s+(?:{_OBJECT}|{_PARTICLE}|[a-z]+\b)", re.I
)
_JOINT = re.compile(r"\s*;\s*|(?P<comma>,)?\s+(?:and|but)\s+(?P<then>then\b)?", re.I)
_AGAIN = re.compile(r"(?:that is|i\.e\.|in other words|namely)\b", re.I)
_BOUNDARY = re.compile(
    r"\b(?:is|are|counts?(?: as| for)?|suffices?|do(?:es)?)\s+(?:none|nothing|no|not)\b(?:\s+(?:\w+\s*){0,2})?$|"
    r"\b(?:enough|suffices?|counts?(?:,? too)?)$",
    re.I,
)
"""What a criterion says of its own limits, as in `…; a longer time is none`."""
_CONTRAST = re.compile(r",?\s+(?:whereas|while)\s+", re.I)


def has_verb(text: str) -> bool:
    """Whether a verb is to be seen, whose form or object tells it: `is`, `drops the half`."""
    return _HAS_VERB.search(text) is not None


def second_statement(text: str) -> tuple[int, int] | None:
    """Where the first statement of a sentence ends and a second begins; None where it makes one, as far as can be seen:
    `Grammar and spelling hold up` is one verb of two nouns, and an `or` asks for one of two."""
    for joint in _JOINT.finditer(text):
        left = text[: joint.start()]
        right = text[joint.end() :]
        follows = re.split(r"[;.]", right)[0]
        if joint.group().strip() == ";":
            is_more = not (_AGAIN.match(follows) or _BOUNDARY.search(follows.strip()))
            if is_more and len(tokens(left)) > 2 and len(tokens(follows)) > 2:
                return joint.span()
            continue
        if not has_verb(left.rpartition(";")[2]) or _BOUNDARY.search(follows.strip()):
            continue
        is_own = joint["comma"] or joint["then"]
        if _CLAUSE.match(follows) or (is_own and _SUBJECT.match(follows)):
            return joint.span()
    return None


def statements(text: str) -> list[str]:
    """The statements of a sentence, those that `whereas` or `while` sets against each other among them."""
    cut = second_statement(text)
    contrast = None if cut else _CONTRAST.search(text)
    if contrast and min(len(tokens(part)) for part in (text[: contrast.start()], text[contrast.end() :])) > 2:
        cut = contrast.span()
    if cut is None:
        return [text.strip(" ,;.")]
    return [text[: cut[0]].strip(" ,;."), *statements(text[cut[1] :])]

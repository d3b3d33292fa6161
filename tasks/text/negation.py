"""Words that turn a statement into its opposite, in the languages that answers are most often written in.

A list, not an understanding: it is used where leaving such a word out, or gluing it to another, would make a quote say
what its author did not.
"""

from __future__ import annotations

import re

_AUXILIARY = r"(?:ai|are|is|was|were|do|does|dos|dose|did|has|have|had|wo|would|could|should|ca|must|need|might|sha) ?n"
_ENGLISH = (
    r"not|no|nor|never|none|neither|without|can ?not|no ?(?:body|thing|one|where)|cant|wont|"
    rf"{_AUXILIARY}[ '’´`]?t|hardly|barely|scarcely|seldom|rarely|unless|except|instead|false(?:ly)?|wrong(?:ly)?|"
    r"incorrect(?:ly)?|untrue|fail(?:s|ed|ing)?|lack(?:s|ed|ing)?|den(?:y|ies|ied|ying)"
)
_OTHER = (
    r"não|nunca|jamais|nem|sem|nenhuma?|nada|ninguém|tampouco|"  # Portuguese
    r"sin|ni|tampoco|ningun[oa]?|ningún|nadie|"  # Spanish
    r"ne|n['’]|pas|sans|aucune?|rien|personne|"  # French
    r"nicht|nichts|kein(?:e|en|em|er|es)?|nie|niemals|ohne|weder|noch nie|"  # German
    r"non|mai|senza|nessun[oa]?|niet|geen|nooit|zonder|"  # Italian, Dutch
    r"нет|не|никогда|без|ни|ikke|inte|aldrig|ingen"  # Russian, Scandinavian
)
_GLUED = r"[不没沒無无非未]|ない|ません|なかった|않|아니|없"
"""Chinese, Japanese and Korean, which write them inside longer runs."""
_NEGATION = re.compile(rf"(?<![^\W_])(?:{_ENGLISH}|{_OTHER})(?![^\W_])|[^\W_]++n['’]t(?![^\W_])|{_GLUED}")


def negations(folded: str) -> list[tuple[int, int]]:
    """Where words of negation begin and end in a folded text."""
    return [match.span() for match in _NEGATION.finditer(folded)]


def is_negated(folded: str) -> bool:
    """Whether a folded text holds a word of negation."""
    return _NEGATION.search(folded) is not None

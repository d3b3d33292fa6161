"""What is known of a language: its words, and those that turn a statement into its opposite.

Known are the languages whose negations stand here and whose words stand in the dictionaries of pyspellchecker, and
Chinese, Japanese and Korean by their scripts. Of every other language nothing is known, and what takes knowledge (to
leave words out, to write two words as one) is not done. A list and a dictionary are no understanding.
"""

from __future__ import annotations

import re
from collections import Counter
from functools import lru_cache

from spellchecker import SpellChecker

from rubricflow.tasks.core.text.tokens import SIGN

_EVERYDAY = {
    "en": "the and of is are was were that this they it with for from because which have has would will there be to in",
    "de": "der die das und ist sind ein eine nicht mit von für auf dass sich wird werden auch weil wenn im den zu",
    "es": "el los las que y es son una para por con como pero porque más del muy está cuando lo se de la en",
    "fr": "le les des et est sont une que qui pour dans avec sur plus par pas ce cette du parce il de la en",
    "it": "il che e è sono una per con come ma perché più della del di gli questo anche nel alla si la",
    "nl": "het een en van is zijn dat niet met voor op aan omdat ook wordt worden door als deze de in",
    "pt": "o os as que e é são uma para por com como mas porque mais do da dos não em no na se um de",
    "ru": "и в не на что это как для с по из или если был были его они она который потому также чтобы от к",
}
"""Words that any text of a language has many of: they say which dictionary is asked."""
_LANGUAGES_OF = {
    word: [language for language, words in _EVERYDAY.items() if word in words.split()]
    for word in " ".join(_EVERYDAY.values()).split()
}
_AUXILIARY = r"(?:ai|are|is|was|were|do|does|dos|dose|did|has|have|had|wo|would|could|should|ca|must|need|might|sha) ?n"
_ENGLISH = (
    r"not|no|nor|never|none|neither|without|can ?not|no ?(?:body|thing|one|where)|cant|wont|"
    rf"{_AUXILIARY}[ '’´`]?t|hardly|barely|scarcely|seldom|rarely|unless|except|instead|false(?:ly)?|wrong(?:ly)?|"
    r"incorrect(?:ly)?|untrue|fail(?:s|ed|ing)?|lack(?:s|ed|ing)?|den(?:y|ies|ied|ying)"
)
_OTHER = (
    r"não|nunca|jamais|nem|sem|nenhuma?|nada|ninguém|tampouco|"  # Portuguese
    r"sin|ni|tampoco|ningun[oa]?|ningún|nadie|jamás|"  # Spanish
    r"ne|n['’]|pas|sans|aucune?|rien|personne|guère|"  # French
    r"nicht|nichts|kein(?:e|en|em|er|es)?|nie|niemals|niemand(?:en|em)?|ohne|weder|noch nie|kaum|"  # German
    r"non|mai|senza|nessun[oa]?|niente|nulla|né|neanche|nemmeno|neppure|"  # Italian
    r"niet|geen|nooit|zonder|niets|nergens|"  # Dutch
    r"нет|не|никогда|без|ни|нельзя|ничего|никто|нигде|никак|"  # Russian
    r"ikke|inte|aldrig|ingen"  # Scandinavian
)
_GLUED = r"[不没沒無无非未别別勿莫唔冇≠¬∉∄✗✘❌]|ない|ません|なかった|なく|ぬ|ず|않|아니|없|못|안 "
"""Chinese, Japanese and Korean, which write them inside longer runs, and signs."""
_NEGATION = re.compile(rf"(?<![^\W_])(?:{_ENGLISH}|{_OTHER})(?![^\W_])|[^\W_]++n['’]t(?![^\W_])|{_GLUED}")
_WORD = re.compile(r"(?:(?!\d)[^\W_])+(?:['’](?:(?!\d)[^\W_])+)*")
_MEASURED = re.compile(r"\d[^\W_]*")
_OF_SCRIPT = re.compile(rf"{SIGN}|[\u1100-\u11ff\uac00-\ud7af]")
_MOST_UNKNOWN = 0.3
"""Share of a text's words that its dictionary need not know: names, terms and what is misspelled."""


def negations(folded: str) -> list[tuple[int, int]]:
    """Where words of negation begin and end in a folded text."""
    return [match.span() for match in _NEGATION.finditer(folded)]


def is_negated(folded: str) -> bool:
    """Whether a folded text holds a word of negation."""
    return _NEGATION.search(folded) is not None


def language_of(folded: str) -> str | None:
    """The language of a folded text, as its code; None where it is none whose words are known."""
    words = _WORD.findall(folded)
    votes = Counter(language for word in words for language in _LANGUAGES_OF.get(word, ()))
    likely = [language for language, _ in votes.most_common(2)]
    return next((one for one in [*likely, "en"] if words and _share_unknown(words, one) <= _MOST_UNKNOWN), None)


def is_known(word: str, language: str) -> bool:
    """Whether a folded word stands in the dictionary of a language, or of English, which is quoted in all."""
    word = word.replace("’", "'")
    return word in _dictionary(language) or word in _dictionary("en")


def is_without_negation(gap: str, passage: str, language: str | None) -> bool:
    """Whether what is left out of a folded passage is known to hold no negation: none stands in it, and most of its
    words and of the passage's are of the language around them, or in a script that tells theirs."""
    if is_negated(gap):
        return False
    left_out, all_words = (
        [word for word in _WORD.findall(_MEASURED.sub(" ", piece)) if not _OF_SCRIPT.search(word)]
        for piece in (gap, passage)
    )
    if not left_out or language is None:
        return not left_out
    return _share_unknown(left_out, language) <= 1 / 2 and _share_unknown(all_words, language) <= _MOST_UNKNOWN + 0.1


def _share_unknown(words: list[str], language: str) -> float:
    known = _dictionary(language)
    return sum(word.replace("’", "'") not in known for word in words) / max(1, len(words))


@lru_cache
def _dictionary(language: str) -> frozenset[str]:
    """The words of a language; of one and two letters only frequent ones, for the rest are abbreviations."""
    counts = SpellChecker(language=language).word_frequency
    rare = counts.total_words / 10_000
    return frozenset(word for word, count in counts.items() if len(word) > 2 or count > rare)

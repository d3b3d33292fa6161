"""What the wording of criteria shares and what it hints at: content words weighted by rarity, and cues of a few
languages. It knows words, not what they mean."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from functools import cache
from itertools import chain, pairwise

import numpy as np

from tasks.text.tokens import SIGN, tokens

_SIGN = re.compile(SIGN)
_STEM = 6
"""Letters by which words are told apart, so that 'recommends' and 'recommendation' are one."""
_SHORTEST = 4
"""Letters of the shortest content word; numbers of two digits count, too."""
_ASKED_FOR = 0.5
"""What a word that the query itself uses weighs beside another one: it is what all criteria are about."""
_IN_COMMON = 2
"""Content words that a part and a text must share."""
_FUNCTION_WORDS = """
    about acknowledges advise advises also answer answers appropriate appropriately asked asking asks assess assesses
    assistant been being both clear clearly correct correctly could describe describes does doing done each
    effectively either ensure ensures evaluate evaluates every explain explains from give given gives have having
    include includes including inform informs into just like list lists mention mentions model more most must note
    notes only other over provide provides recommend recommends response responses same seek seeks should some state
    states such suggest suggests than that their them then there these they this those under upon user users very well
    were what when where whether which while whom whose will with without would your
    aber auch dass diese dieser eine einen einer eines haben ihre kann nicht oder sich sind soll sollte wenn werden
    wird
    como deve devem entre essa esse esta este está isso mais para pela pelo pode quando sobre também texto
"""
_EMPTY = frozenset(_FUNCTION_WORDS.split())
"""Words that carry no content of a criterion: function words, and what rubrics ask responses to do."""
_CONDITION = re.compile(
    r"\W*(?:if|when|whenever|where|unless|in case|in the case|in cases|assuming|given that|provided that|should the|"
    r"for (?:users|patients|people|those|readers|students|cases|responses) (?:who|whose|with|that|in|under|over)|"
    r"the (?:user|patient|query|question|conversation|prompt|task|case) (?:is|are|has|have|asks|wants|involves)|"
    r"wenn|falls|sofern|sobald|im falle?|se o|se a|se for|se houver|quando|caso|no caso|"
    r"如果|若(?!干)|假如|倘若|当.{1,20}时|在.{1,20}情况下)(?![a-zß-ÿ])",
    re.IGNORECASE,
)
"""How a criterion begins that states a condition."""
_OPTIONAL = re.compile(
    r"\A\W*(?:additionally|ideally|zusätzlich|idealerweise|nach möglichkeit|adicionalmente|idealmente|se possível|"
    r"最好|此外|如有可能)|"
    r"\b(?:optional(?:ly)?|optionale?s?|bonus(?: points?)?|bonuspunkte?|extra (?:credit|points?)|nice to have|"
    r"wünschenswert|opcional(?:mente)?|bônus|ponto extra)\b|可选|加分项|额外加分",
    re.IGNORECASE,
)
"""How one begins, or what stands in one, that asks for what may be lacking."""
_CLAUSE_END = re.compile(r"[,，;；:：。]")


def is_condition(text: str) -> bool:
    """Whether a criterion is a condition and, as far as a first clause tells, demands nothing beside it."""
    return states_condition(text) and not any(part.strip(" .") for part in _CLAUSE_END.split(text)[1:])


def states_condition(text: str) -> bool:
    """Whether a criterion begins as conditions do in English, German, Portuguese or Chinese."""
    return _CONDITION.match(text) is not None


def is_optional(text: str) -> bool:
    """Whether a criterion says that it is an extra."""
    return _OPTIONAL.search(text) is not None


def condition(text: str) -> str:
    """The part of a criterion that is its condition: up to the first comma or the like; all of it without one."""
    return _CLAUSE_END.split(text, maxsplit=1)[0] if states_condition(text) else text


def is_signs(text: str) -> bool:
    """Whether a text is Chinese or Japanese for a third or more of its tokens, which the small encoder cannot read."""
    all_tokens = tokens(text)
    return 3 * sum(_SIGN.fullmatch(token) is not None for token in all_tokens) > len(all_tokens)


def coverage(parts: Sequence[str], texts: Sequence[str], query: str) -> np.ndarray:
    """Share of the content of each part that a text holds, (parts, texts), in [0, 1].

    Content are word stems, and pairs of neighbouring characters in Chinese and Japanese. Each weighs log((n + 1) / df)
    over the n texts, half of it where the query has it, and nothing where more than half of the texts (and more than
    three) have it. To have fewer than two of them in common is chance, and 0. parts: the texts, or pieces of them.
    """
    contents = [content(text) for text in texts]
    counts = Counter(chain.from_iterable(contents))
    of_query = content(query)
    telling = [word for word, count in counts.items() if count <= max(3, len(texts) / 2)]
    place = {word: index for index, word in enumerate(telling)}
    weight = np.array([np.log((len(texts) + 1) / counts[w]) * (_ASKED_FOR if w in of_query else 1) for w in telling])
    of_parts, of_texts = _rows(list(map(content, parts)), place), _rows(contents, place)
    mass = of_parts @ weight
    share = ((of_parts * weight) @ of_texts.T) / np.where(mass > 0, mass, 1.0)[:, None]
    covered: np.ndarray = np.where(of_parts @ of_texts.T >= _IN_COMMON, share, 0.0)
    return covered


@cache
def content(text: str) -> frozenset[str]:
    """What a text is about, as far as single words tell."""
    all_tokens = tokens(text)
    signs = [_SIGN.fullmatch(token) is not None for token in all_tokens]
    marked = list(zip(all_tokens, signs, strict=True))
    pairs = {a + b for (a, a_is_sign), (b, b_is_sign) in pairwise(marked) if a_is_sign and b_is_sign}
    words = (token for token, sign in marked if not sign and token not in _EMPTY)
    stems = {word[:_STEM] for word in words if len(word) >= (2 if word.isdigit() else _SHORTEST)}
    return frozenset(stems | pairs)


def _rows(words: Sequence[frozenset[str]], place: dict[str, int]) -> np.ndarray:
    rows = np.zeros((len(words), len(place)))
    for index, content_words in enumerate(words):
        rows[index, [place[word] for word in content_words if word in place]] = 1.0
    return rows

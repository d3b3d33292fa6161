"""What words tell: two facts in a sentence, sentences that exclude each other or say the same, levels of any criterion,
and what a guide counts and leaves open. English alone; silent where it is not sure."""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from typing import NamedTuple

from rubricflow.tasks.core.text.clauses import second_statement
from rubricflow.tasks.core.text.tokens import tokens

# Two facts in a sentence.

OR = " — or: "
"""Between answers each as good, of which one criterion is made."""
AND_OR = re.compile(r"\band/or\b", re.I)
_ASK = re.compile(r"\band\s+(?:for\s+)?(?:how|why|when|where|what|which|whether|who)\b", re.I)


def joins_two(text: str) -> str | None:
    """The second fact of a criterion's text; None where it states one, as far as can be seen."""
    if asked := _ASK.search(text):
        before = text[: asked.start()]
        if re.search(r"\b(?:how|why|when|where|what|which|whether|who)\b", before, re.I):
            return text[asked.start() :].strip(" .")
    cut = second_statement(text)
    return re.split(r"[;.]", text[cut[1] :])[0].strip(" .") if cut else None


# Two sentences: whether both can hold, and whether they say the same.

_EXCLUSIVE = tuple(
    frozenset(words.split())
    for words in (
        "white black gray grey red blue green yellow brown orange",
        "more less fewer",
        "increase decrease",
        "increases decreases",
        "rise fall",
        "rises falls",
        "higher lower",
        "high low",
        "warmer cooler colder",
        "faster slower",
        "agree disagree",
        "agrees disagrees",
        "true false",
        "for against",
        "yes no",
        "always never",
        "left right",
        "up down",
        "alike differ different",
        "similar differ different",
        "same different",
    )
)
_FEWEST_SHARED = 3


def apart(first: str, second: str) -> tuple[str, str] | None:
    """The words by which two texts exclude each other; None where they do not. Both begin with the same three words and
    go on with words that cannot both hold, or with the same two and one of them with a `not`."""
    a, b = tokens(first), tokens(second)
    shared = next((n for n, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
    if shared < 2 or shared in (len(a), len(b)):
        return None
    x = a[shared]
    y = b[shared]
    if shared >= _FEWEST_SHARED and any({x, y} <= words for words in _EXCLUSIVE):
        return x, y
    if "not" in (x, y) and (a[shared + 1 :][:2] == b[shared:][:2] or a[shared:][:2] == b[shared + 1 :][:2]):
        return x, y
    return None


def opposed(first: str, second: str) -> bool:
    """Whether each of two texts has a word that excludes one of the other's, which it has not itself."""
    a = set(tokens(first))
    b = set(tokens(second))
    return any((a - b) & words and (b - a) & words for words in _EXCLUSIVE)


def one_pattern(first: str, second: str) -> bool:
    """Whether two texts are one sentence with other words in some places: `the first law …` and `the second law …`, or
    `when less is used …` and `when more is used …`, are alike in letters and not in meaning."""
    a, b = tokens(first), tokens(second)
    return len(a) == len(b) and 0 < sum(x != y for x, y in zip(a, b, strict=True)) <= len(a) / 2


_GRAM = 4


def grams(text: str) -> Counter[str]:
    """The n-grams of four characters of a text's words, with a blank before and behind each word."""
    line = f" {' '.join(tokens(text))} "
    return Counter(line[n : n + _GRAM] for n in range(max(1, len(line) - _GRAM + 1)))


def likeness(first: Counter[str], second: Counter[str]) -> float:
    """Cosine of two bags of n-grams, 0 to 1."""
    dot = sum(count * second[gram] for gram, count in first.items())
    lengths = math.prod(math.sqrt(sum(count * count for count in bag.values())) for bag in (first, second))
    return dot / lengths if lengths else 0.0


# Levels.

VAGUE_LEVEL = re.compile(
    r"(?:said |met |present |named |shown |done )?(?:hinted at|in part|partly|partial|partially|somewhat|touched on|"
    r"vague|vaguely|unclear|half|a little|sometimes|some|medium|middle|\d+(?:\.\d+)?)"
    r"(?: or (?:vaguely|partly|hinted at|in part))?"
)

# What a guide counts.

_NUMBERS = {"one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8}
_NUMBER = rf"(?:{'|'.join(_NUMBERS)}|[1-9])"
_THINGS = (
    r"ways|elements|processes|pieces|reasons|examples|details|steps|facts|"
    r"causes|effects|differences|similarities|traits|features|changes|improvements|factors|methods|arguments|ideas"
)
_SINGULAR = re.compile(r"(?<=s)es$|s$")
_GUIDE_LINE = re.compile(
    r"^\W*(?:(?P<before>\d+(?:\.\d+)?)\s*(?:-\s*)?points?|(?:score|level)\s+(?:of\s+)?(?P<after>\d+(?:\.\d+)?))\s*[:=–—-]",
    re.I | re.M,
)
_ASKED = re.compile(
    rf"\b(?P<low>{_NUMBER})(?:\s+(?:or|to)\s+(?P<high>{_NUMBER}))?\s+(?:(?:additional|different|correct|valid|key|"
    rf"relevant|specific|other|more|main|further|possible)\s+)*(?P<thing>{_THINGS}|"
    rf"{'|'.join(_SINGULAR.sub('', thing) for thing in _THINGS.split('|'))})\b",
    re.I,
)


class GuideCount(NamedTuple):
    """What a guide gives for numbers of things of one kind."""

    thing: str
    most: int
    """As many as it asks for at the most."""
    scores: dict[int, float]
    """Number of things → the one score at which it is named; those of several scores are left out."""


def guide_counts(text: str) -> list[GuideCount]:
    """What the lines of a guide that begin with their score (`Score 2: …`, `2 points: …`) ask for by number: each kind
    of thing that is named with at least two different numbers, or with more than one."""
    marks = list(_GUIDE_LINE.finditer(text))
    ends = [*(mark.start() for mark in marks[1:]), len(text)][: len(marks)]
    named: dict[str, dict[int, set[float]]] = defaultdict(lambda: defaultdict(set))
    for mark, end in zip(marks, ends, strict=True):
        line = text[mark.end() : end].split("\n\n")[0]
        for asked in _ASKED.finditer(line):
            low = _number(asked["low"])
            for number in range(low, _number(asked["high"] or asked["low"]) + 1):
                thing = _SINGULAR.sub("", asked["thing"].lower())
                named[thing][number].add(float(mark["before"] or mark["after"]))
    counts = []
    for thing, numbers in named.items():
        if max(numbers) > 1:
            alone = {number: min(scores) for number, scores in sorted(numbers.items()) if len(scores) == 1}
            counts.append(GuideCount(thing, max(numbers), alone))
    return counts


def _number(word: str) -> int:
    return _NUMBERS.get(word.lower()) or int(word)


# What a guide leaves open.

_OTHER = re.compile(
    r"\b(?:(?:any|all)\s+)?other\s+(?:acceptable|reasonable|valid|appropriate|relevant|correct|plausible|suitable|logical)"
    r"[ \t]+(?:\w+[ \t]+)??"
    r"(?:responses?|answers?|conclusions?|reasons?|explanations?|examples?|improvements?|ideas?|points?)\b",
    re.I,
)
_IS_CATCH_ALL = re.compile(
    r"^(?:\w+\s+){0,2}?(?:another|any other|some other|other|a further|a different)\b|"
    r"\b(?:other|another|different|any|further)\b.*\b(?:acceptable|reasonable|valid|appropriate|relevant|correct|"
    r"plausible|suitable|logical|support(?:s|ed)?|holds)\b",
    re.I,
)


class CatchAll(NamedTuple):
    """A catch-all of a guide."""

    words: str
    """As the guide has it."""
    before: str
    """The heading and lines in front of it, by which one sees what it is another of."""


def catch_alls(text: str) -> list[CatchAll]:
    """The catch-alls of a guide, in its order."""
    asked, end = list[CatchAll](), 0
    for other in _OTHER.finditer(text):
        heading = re.findall(r"^[^\n]*:[ \t]*$", text[: other.start()], re.M)
        asked.append(CatchAll(other.group(), (heading[-1] if heading else text[end : other.start()])[-300:]))
        end = other.end()
    return asked


def is_catch_all(text: str) -> bool:
    """Whether a criterion takes up what no other one names."""
    return _IS_CATCH_ALL.search(text) is not None

"""What the units of a response are called where a judge sees and cites them: `sentence 3`, `paragraph 1`.

Tables call the same units s3 and p1. Models take such short ids for those of criteria (P1, M2), so they see words, and
longer ones where an author called a criterion "sentence 2". A name never folds to the id of a criterion or trait, and
what folds to such an id names no unit. Texts fold to the same where they have the same letters and digits, whatever
their case, marks and spaces.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache

from rubricflow.tasks.core.contracts.bundle import Bundle
from rubricflow.tasks.core.llm.request import IdentityKey

_ID = re.compile(r"([sp])([1-9][0-9]*)")
_CITED = re.compile(r"\W*(?:(?P<word>[^\W\d]+(?:\s[^\W\d]+)*)\W*)?0*(?P<number>[1-9][0-9]{0,4})\W*")
_SHORT = {"s": "s", "sentence": "s", "p": "p", "paragraph": "p"}


@dataclass(frozen=True)
class UnitNames:
    """The words that name the units of every response under a bundle."""

    sentence: str = "sentence"
    """Before the number of a sentence."""
    paragraph: str = "paragraph"
    """Before the number of a paragraph."""
    reserved: frozenset[str] = frozenset()
    """Folded ids of what is no unit."""

    def name(self, unit_id: str) -> str:
        """The name of a unit; what is no unit's id stays as it is."""
        match = _ID.fullmatch(unit_id)
        if match is None:
            return unit_id
        return f"{self.sentence if match[1] == 's' else self.paragraph} {match[2]}"

    def unit_id(self, cited: str, bare: str = "s") -> str:
        """The unit that a judge cites: by its name, by its id, in brackets or not, or by the number alone.

        bare: the letter of the kind that a number alone means. An id of a criterion becomes `criterion <id>`, which is
        no unit; what names nothing stays as it is.
        """
        return _unit_id(self, cited, bare)

    def forms(self) -> str:
        """The two names as a prompt tells them."""
        return f"{self.sentence} N or {self.paragraph} N"


PLAIN = UnitNames()
"""Where no id is like them."""


@lru_cache(maxsize=1024)
def names_of(bundle: IdentityKey[Bundle]) -> UnitNames:
    """The names of the units of responses that are judged under a bundle."""
    rubric = bundle.value
    ids = [criterion.id for criterion in (*rubric.criteria, *rubric.composites)]
    return names_beside([*ids, *(trait.id for trait in rubric.traits)])


def names_beside(ids: Iterable[str]) -> UnitNames:
    """The names of units beside ids that mean something else."""
    reserved = frozenset(map(folded_id, ids)) - {""}
    return UnitNames(_free("sentence", reserved), _free("paragraph", reserved), reserved)


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
    match = _CITED.fullmatch(unicodedata.normalize("NFKC", cited).casefold())
    if match is None:
        return cited
    letters = {**_SHORT, names.sentence: "s", names.paragraph: "p"}
    kind = letters.get(match["word"]) if match["word"] else bare
    return cited if kind is None else f"{kind}{match['number']}"

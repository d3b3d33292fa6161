"""Languages: what is known is told by its words, and nothing is told of what is not."""

from __future__ import annotations

import pytest

from rubricflow.tasks.core.text.languages import is_known, is_without_negation, language_of
from tests.attacks.quote_kinds import FOREIGN_NEGATIONS

SENTENCES = {
    "en": "the water goes through the wall because there is more salt in it",
    "de": "das wasser geht durch die wand, weil dort mehr salz ist und es sich verteilt",
    "es": "el agua pasa por la pared porque hay más sal en la otra parte",
    "fr": "l’eau passe par la paroi parce que le sel est plus concentré dans la cellule",
    "it": "l'acqua passa per la parete perché il sale è più concentrato nella cellula",
    "nl": "het water gaat door de wand omdat er meer zout in de cel is",
    "pt": "a água passa pela parede porque há mais sal do outro lado e não volta",
    "ru": "вода проходит через стену, потому что в ней больше соли, и это как раз то, что нужно",
}


@pytest.mark.parametrize(("language", "sentence"), SENTENCES.items())
def test_a_known_language_is_told(language: str, sentence: str) -> None:
    assert language_of(sentence) == language


@pytest.mark.parametrize("sentence", FOREIGN_NEGATIONS)
def test_nothing_is_left_out_of_a_language_that_is_not_known(sentence: str) -> None:
    first, gap, last = sentence.split("|")
    assert language_of(sentence.replace("|", " ")) is None
    for language in (None, "en", "pt"):
        assert not is_without_negation(gap, f"{first}{gap}{last}", language)


@pytest.mark.parametrize(
    ("gap", "language", "may_go"),
    [
        ("of the water", "en", True),
        ("of the wtr", "en", True),
        ("wtr 5mm", "en", False),
        ("5mm (12)", None, True),
        ("of the water", None, False),
        ("never", "en", False),
        ("光合作用", None, True),
        ("并不", None, False),
        ("ひかりが", None, True),
        ("≠", None, False),
    ],
)
def test_what_may_be_left_out(gap: str, language: str | None, may_go: bool) -> None:
    passage = gap if language is None else f"{SENTENCES[language]} {gap}"
    assert is_without_negation(gap, passage, language) is may_go


@pytest.mark.parametrize(
    ("word", "known"),
    [("we're", True), ("we’re", True), ("infamous", True), ("alot", False), ("t", False), ("a", True)],
)
def test_words_stand_in_the_dictionary(word: str, known: bool) -> None:
    assert is_known(word, "en") is known

"""Grounding: what is found of a quote in the response that it cites, and whether it proves anything.

A quote that cites no unit is looked for in the whole response, one that cites an unknown unit is misattributed at best.
Where a criterion lets evidence come from the context too, a quote found there holds, whatever unit it cites. A quote
that repeats the question or the rubric (`tasks.grading.judge.doubted_quotes`) is an echo and does not hold, wherever it
stands.
In a trace a quote stands within one turn or step, and holds only in one of the kind that its criterion asks for; where
it asks for none, in any but what the assistant was told before it began.
Where the protocol lets meaning count, a quote whose words stand nowhere may hold by the span, in the unit that it
cites, that an encoder finds; that one must not be an echo either.

Of a foreign judge's explanation the words that it puts in quotation marks are looked for in the same way.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import numpy as np

from rubricflow.tasks.core.contracts.bundle import Criterion
from rubricflow.tasks.core.contracts.settings.judge import Foreign
from rubricflow.tasks.core.llm.encoder import Encoder, minilm
from rubricflow.tasks.core.llm.foreign import foreign_rows
from rubricflow.tasks.core.llm.schema import JsonDict
from rubricflow.tasks.core.text.fold import fold, folded
from rubricflow.tasks.core.text.languages import is_negated
from rubricflow.tasks.core.text.quotes import (
    Match,
    Span,
    Spelling,
    find_folded,
    fragments,
    is_whole,
    shortened,
    spelled,
    unquoted,
)
from rubricflow.tasks.core.text.tokens import counts, has_two_words, is_single_word, tokens
from rubricflow.tasks.core.text.traces import of_trace
from rubricflow.tasks.core.text.units import Unit
from rubricflow.tasks.grading.judge.doubted_quotes import Wording, wording
from rubricflow.tasks.grading.judge.protocol import Question
from rubricflow.tasks.grading.judge.rows import Case, Decision, Graded
from rubricflow.tasks.grading.judge.schema import MAX_QUOTE, PLAIN, UnitNames, names_of

THRESHOLD = 0.75
"""Chosen by figures (tests/studies/semantic.py): of 400 quotes of a real judge, of four words or more, that stand
nowhere in the answer, it accepts 50 % in that answer and 2 % in another student's answer to the same question,
who may have said the same. At 0.7 it is 59 % and 7 %, at 0.8 39 % and 1 %."""
WINDOW = 30
"""A longer sentence is read in windows of at most so many words."""
_PIECE = re.compile(r"\S+")


class Matcher:
    """Finds the span of one response that is closest in meaning to a quote: a sentence, or a window of a long one.

    A span is found where its cosine to the quote is at least `threshold`, both hold the same numbers, and both have
    words of negation or neither has: encoders are nearly blind to what these change. What a text means to the
    encoder is all that is known: the two may still differ in who does what.
    """

    def __init__(self, text: str, units: Sequence[Unit], encode: Encoder, threshold: float = THRESHOLD) -> None:
        self.threshold = threshold
        self._text, self._encode = text, encode
        sentences = [unit for unit in units if unit.kind == "sentence"]
        self.spans = list(chain.from_iterable(_windows(text, sentence) for sentence in sentences))

    @cached_property
    def _vectors(self) -> np.ndarray:
        """(spans, n)."""
        return self._encode([self._text[span.start : span.end] for span in self.spans])

    def find(self, quote: str, low: int, high: int) -> Span | None:
        """The closest span within the characters [low, high) of the response, or None."""
        places = []
        for place, span in enumerate(self.spans):
            if low <= span.start and span.end <= high and _agree(quote, self._text[span.start : span.end]):
                places.append(place)
        if not places:
            return None
        cosine = self._vectors[places] @ self._encode([quote])[0]
        best = int(cosine.argmax())
        return self.spans[places[best]] if cosine[best] >= self.threshold else None


INVALID = frozenset({"fabricated", "misattributed", "too_short", "echo", "shared", "irrelevant", "other_kind"})
HOLDS = frozenset({"verified", "context", "semantic"})
RARE = 100
"""One word alone proves something where at most one word in so many is it."""


@dataclass(frozen=True)
class Subject:
    """What is judged: the response's text with its units, and the item's context where evidence may come from it."""

    text: str
    units: Sequence[Unit]
    context: str | None = None
    wording: Wording | None = None
    """What is no evidence when it is repeated; None where nothing is known of it."""
    apart: Wording | None = None
    """The same without the context, for criteria that take evidence from it."""
    match: Matcher | None = None
    """Who finds what a quote means where its words stand nowhere; None where only words count."""
    names: UnitNames = PLAIN
    """What the units are called where they are cited."""

    @cached_property
    def by_id(self) -> dict[str, Unit]:
        """The units by id; turns and steps, which are numbered together, by either letter."""
        turns = {f"{letter}{turn.unit_id[1:]}": turn for turn in self.turns for letter in "ta"}
        return turns | {unit.unit_id: unit for unit in self.units}

    @cached_property
    def turns(self) -> list[Unit]:
        """The turns and steps; none where the response is no trace."""
        return of_trace(self.units)

    @property
    def wholes(self) -> list[tuple[int, int]]:
        """Where all that there is stands: the response, or each of its turns and steps."""
        return [(turn.start, turn.end) for turn in self.turns] or [(0, len(self.text))]

    def find(self, needle: str, low: int, high: int, criterion: Criterion) -> tuple[Match | None, bool]:
        """Where a quote, unquoted and folded, stands within the characters [low, high), and whether that is a place
        that the criterion asks for. In a trace it stands within one turn or step, of the kind asked for if it can."""
        if not self.turns:
            return find_folded(needle, fold(self.text[low:high]), low), True
        elsewhere = None
        for turn in self.turns:
            start = max(low, turn.start)
            end = min(high, turn.end)
            if start < end and (match := find_folded(needle, fold(self.text[start:end]), start)):
                if turn.kind == criterion.evidence_kind or (not criterion.evidence_kind and turn.kind != "system"):
                    return match, True
                elsewhere = elsewhere or match
        return elsewhere, False

    def is_rare(self, word: str) -> bool:
        """Whether a word, with what hangs on it (doesn't), stands in the response once, or once in `RARE` words."""
        token = max(tokens(word), key=len)
        return self._words[token] * RARE <= max(RARE, self._words.total())

    @cached_property
    def _words(self) -> Counter[str]:
        return Counter(tokens(folded(self.text)))

    def paragraph(self, unit: Unit) -> Unit:
        """The paragraph that holds a unit; the unit itself where there is none."""
        paragraphs = (other for other in self.units if other.kind == "paragraph")
        return next((other for other in paragraphs if other.start <= unit.start < other.end), unit)


def subject_of(question: Question | Case) -> Subject:
    """What is asked about, with all that the bundle's protocol lets count as evidence.

    BackendError where that takes the sentence encoder and it is not installed.
    """
    bundle = question.bundle
    apart = wording(bundle, question.question, None)
    semantic = bundle.protocol.evidence_match == "semantic"
    return Subject(
        text=question.text,
        units=question.units,
        context=question.context,
        wording=wording(bundle, question.question, question.context) if question.context else apart,
        apart=apart,
        match=Matcher(question.text, question.units, minilm()) if semantic else None,
        names=names_of(bundle),
    )


class Ground(NamedTuple):
    """What is found of a quote: see `Evidence.status`; where it stands in the response; how it is written there."""

    status: str
    span: Span | None = None
    spelling: Spelling = "exact"


DUPLICATE = Ground("duplicate")


def grounded(
    offered: Iterable[tuple[str | None, str]], criterion: Criterion, subject: Subject, signals: list[str]
) -> tuple[tuple[JsonDict, ...], bool]:
    """Quotes as rows of the contract `Evidence`, and whether one of them holds.

    offered: (unit cited or None, quote); signals: takes what was found. A quote is a duplicate where the same words, or
    the same place of the response, held before; one that holds by its meaning stands for the words that it means.
    """
    rows = []
    holding = set()
    failed = set()
    for unit_id, quote in offered:
        words = folded(quote)
        # A quote that failed where it was first cited may still hold where it is cited next.
        repeated = words in holding or (unit_id, words) in failed
        status, span, spelling = DUPLICATE if repeated else ground(quote, unit_id, criterion, subject)
        meant = folded(subject.text[span.start : span.end]) if status == "semantic" and span else words
        if status in HOLDS and (span in holding or meant in holding):
            status, span, spelling = DUPLICATE
        elif status in HOLDS:
            holding |= {words, meant} | ({span} if span else set())
        else:
            failed.add((unit_id, words))
        start, end = span or (None, None)
        rows.append({"unit_id": unit_id, "quote": quote, "start": start, "end": end, "status": status})
        signals += ("quotes", status)
        if status in INVALID:
            signals.append("invalid_evidence")
        if spelling != "exact":
            signals.append(f"quote_{spelling}")
    return tuple(rows), bool(holding)


def why_unsupported(rows: Iterable[Mapping[str, object]]) -> str:
    """The violation of a decision that needs support and has none: what is the matter with the quote that came closest,
    `no_diagnostic` where one holds all the same, `evidence_failed` where none was given or stands anywhere."""
    found = {row["status"] for row in rows}
    if found & HOLDS:
        return "no_diagnostic"
    came_close = ("other_kind", "echo", "misattributed", "too_short")
    return next((status for status in came_close if status in found), "evidence_failed")


def ground(quote: str, unit_id: str | None, criterion: Criterion, subject: Subject) -> Ground:
    """What is found of a quote that cites a unit; never a duplicate."""
    # The contract allows no longer quote: a model that was stopped there was stopped inside a word.
    unmarked = unquoted(quote if len(quote) < MAX_QUOTE else shortened(quote, MAX_QUOTE - 1))
    needle = folded(unmarked)
    if not proves(needle, subject):
        return Ground("too_short")
    takes_context = criterion.evidence_from == "response_and_context"
    wording = subject.apart if takes_context else subject.wording
    if criterion.evidence_kind in ("user", "result"):
        wording = None  # nobody whose work is judged has written it
    # It must be in its unit; for a span-level criterion in the whole paragraph; nowhere where the unit is unknown.
    low = 0
    high = len(subject.text)
    unit = subject.by_id.get(unit_id or "")
    if unit is not None and criterion.evidence == "span_level":
        unit = subject.paragraph(unit)
    if unit_id is not None:
        low, high = (unit.start, unit.end) if unit else (0, 0)
    match, is_asked_for = subject.find(needle, low, high, criterion)
    if match:
        span, stored = match.span, needle
        if match.spelling != "exact":
            stored = _as_stored(match, subject.text)
            if not proves(stored, subject):
                return Ground("too_short")
        status = "echo" if wording and wording.is_in(stored, subject.text, span) else "verified"
        return Ground(status if is_asked_for else "other_kind", span, spelled(unmarked, match, subject.text))
    context = subject.context if takes_context else None
    if context and (match := find_folded(needle, fold(context))):
        status = "echo" if wording and wording.is_in(_as_stored(match, context)) else "context"
        return Ground(status, None, spelled(unmarked, match, context))
    if subject.match and not (wording and wording.is_in(needle)):
        meant = subject.match.find(unmarked, low, high)
        stored = folded(subject.text[meant.start : meant.end]) if meant else ""
        if meant and subject.turns:  # what stands where it may, word for word, is all that it may mean
            meant = meant if subject.find(stored, *meant, criterion)[1] else None
        if meant and proves(stored, subject) and not (wording and wording.is_in(stored, subject.text, meant)):
            return Ground("semantic", meant)
    if unit_id is not None and (match := subject.find(needle, 0, len(subject.text), criterion)[0]):
        return Ground("misattributed", match.span)
    return Ground("fabricated")


def proves(needle: str, subject: Subject) -> bool:
    """Whether a quote, unquoted, is long enough to prove anything: two whole words, a long one that is rare in the
    response, or all that there is of the response, or of a turn or step."""
    pieces = fragments(needle)
    if not pieces and has_two_words(needle):
        return True
    if any(counts(piece) and (not is_single_word(piece) or subject.is_rare(piece)) for piece in pieces or [needle]):
        return True
    return any(is_whole(needle, subject.text[low:high]) for low, high in subject.wholes)


def _as_stored(match: Match, text: str) -> str:
    """A quote in the words of the text that it was found in, folded: no spelling hides an echo."""
    return " … ".join(folded(text[span.start : span.end]) for span in match.pieces)


# Evidence by meaning: the span of a response that says what a quote says in other words.


def _agree(quote: str, span: str) -> bool:
    """Whether two texts hold the same numbers and the same yes or no."""
    first = set(tokens(quote))
    second = set(tokens(span))
    same_numbers = {word for word in first if word.isdigit()} == {word for word in second if word.isdigit()}
    return same_numbers and is_negated(folded(quote)) == is_negated(folded(span))


def _windows(text: str, unit: Unit) -> list[Span]:
    """A sentence, or its windows of even size; what is too short to count or longer than a quote may be is left out."""
    words = [match.span() for match in _PIECE.finditer(text, unit.start, unit.end)]
    size = -(-len(words) // -(-len(words) // WINDOW)) if words else 1
    windows = [words[start : start + size] for start in range(0, len(words), size)]
    spans = [Span(window[0][0], window[-1][1]) for window in windows]
    return [span for span in spans if span.end - span.start <= MAX_QUOTE and counts(text[span.start : span.end])]


_PAIRS = (('"', '"'), ("“", "”"), ("„", "“"), ("«", "»"), ("»", "«"), ("「", "」"), ("`", "`"))
_MARKED = re.compile(
    "|".join(
        rf"{re.escape(opening)}([^{re.escape(opening + closing)}\n]{{2,600}}){closing}" for opening, closing in _PAIRS
    )
    + r"|(?<![\w'])['‘](?=\w)([^'‘’\n]*(?:['’]\w[^'‘’\n]*)*\s[^'‘’\n]*(?:['’]\w[^'‘’\n]*)*)['’](?!\w)"
)
"""Words in quotation marks; in single ones, which are apostrophes too, two words at least."""


def quotes_in(explanation: str) -> list[str]:
    """The words in quotation marks, in order, each once."""
    found = (next(group for group in match.groups() if group is not None) for match in _MARKED.finditer(explanation))
    return [*dict.fromkeys(words.strip() for words in found if words.strip())]


def explanations(foreign: Foreign, base: Path) -> dict[tuple[str, int], str]:
    """Response and number of the repetition → what the judge said."""
    said = {}
    numbers = Counter[str]()
    for row in foreign_rows(foreign, base):
        if row["explanation"] is not None:
            said[row["response_id"], numbers[row["response_id"]]] = row["explanation"]
        numbers[row["response_id"]] += 1
    return said


def cite_explanations(graded: Iterable[Graded], explained: Mapping[tuple[str, int], str]) -> None:
    """Give every scored response of a bundle with one criterion the decision that its score stands for, credited from
    the middle of the scale on, with the quotes of the explanation as evidence; a quote that does not stand is counted
    and changes no score. The signals count quotes as `verify` does."""
    for sample in graded:
        for place, grading in enumerate(sample.gradings):
            case, score = grading.case, grading.scored.score
            if len(case.bundle.criteria) != 1:
                continue
            criterion = case.bundle.criteria[0]
            scale = case.bundle.scale
            signals = list[str]()
            if score is None:
                decision = Decision(criterion.id, None, reason=grading.reason)
            else:
                level = int(score >= (scale.min + scale.max) / 2 - 1e-9)
                quotes = (
                    quotes_in(explained.get((case.response_id, sample.rater.sample), "")) if case.text.strip() else []
                )
                offered = [(None, quote) for quote in quotes]
                evidence, holds = grounded(offered, criterion, subject_of(case), signals) if offered else ((), False)
                failed = level > 0 and bool(offered) and not holds
                decision = Decision(
                    criterion.id,
                    level,
                    level,
                    evidence=evidence,
                    verified=holds if offered and level else None,
                    action="counted" if failed else "none",
                )
            grading.signals |= {name: float(count) for name, count in Counter(signals).items()}
            sample.judged[place] = sample.judged[place]._replace(decisions=[decision])

"""A small board that tests of the review page share: invented responses, one of them hostile."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np

from rubricflow.tasks.core.contracts import Record
from rubricflow.tasks.core.contracts.bundle import Criterion, Scale
from rubricflow.tasks.people.review.board import Board, GraderHead, QueuedCase
from rubricflow.tasks.people.review.ledger import SubjectKind, digest
from rubricflow.tasks.people.review.sheet import ReviewQuestion

PORT = 8765
"""Where the page is thought to be, where nothing really listens."""
QUESTION = "A potato strip lies in strong salt water for an hour and becomes short and soft. Explain why."
PLAIN = "The water comes out of the potato because of osmosis. There is more salt outside, so it goes there."
HOSTILE = (
    "</p></script><script>window.ran = 1</script><img src=x onerror='window.ran = 2'>\n"
    '"><svg onload=alert(1)> {{ 7 * 7 }} \u202egnp.exe\u202c \x1b[31m \ud800 the salt sucks & it shrinks'
)
CRITERIA = (
    Criterion(id="C1", trait="t", text="Water leaves the cells", levels=("no", "moves somewhere", "leaves the cells")),
    Criterion(id="C2", trait="t", text="Osmosis, and the membrane", levels=("neither", "one of them", "both")),
    Criterion(id="C3", trait="t", text="Direction is given a reason", levels=("none", "loose", "exact")),
)
HEAD = GraderHead(
    criteria=("C1", "C2", "C3"),
    tops=(2, 2, 2),
    correction=((0.75, 0.08, 0.06), (0.05, 0.80, 0.02), (0.07, 0.03, 0.69)),
    weights=((-5.2, -3.8, -5.6), (-2.6, -1.9, -2.8), (0.0, 0.1, 0.0), (2.6, 1.8, 2.8), (5.1, 3.8, 5.7)),
    bias=(6.8, 5.6, 2.2, -2.4, -7.2),
    scores=(0.0, 1.0, 2.0, 3.0, 4.0),
    temperature=1.3,
)


def quote(words: str, status: str, start: int | None = None, end: int | None = None) -> Record:
    """A quote as table `judgments` keeps it."""
    return {"quote": words, "status": status, "start": start, "end": end}


def span(text: str, words: str, status: str = "verified") -> Record:
    """A quote where it stands in a text."""
    return quote(words, status, text.index(words), text.index(words) + len(words))


def machine_label(
    rater: str,
    level: int | None,
    probability: float | None = None,
    quotes: tuple[Record, ...] = (),
    reason: str | None = None,
    stated: int | None = None,
    action: str = "none",
) -> tuple[str, Record]:
    """A rater's name and its row of `judgments`, whose other levels have no probability."""
    likely = None if level is None or probability is None else [*[0.0] * level, probability]
    row = {"decision": level, "level_probabilities": likely, "evidence": quotes, "unscored_reason": reason}
    return rater, {**row, "stated": stated, "action": action}


def case(response_id: str, why: str = "Annotators 2 levels apart on C3", text: str = PLAIN) -> QueuedCase:
    return QueuedCase(
        response_id, "label", "r", why, text, QUESTION, reference="Water leaves by osmosis.", doubtful=("C3",)
    )


def scene(cases: tuple[QueuedCase, ...] | None = None) -> Board:
    """Three cases about labels, the second hostile, and one about a score."""
    if cases is None:
        score = replace(case("R-0618", "Judge 4, teacher 2"), subject_kind="score")
        cases = (case("R-0412"), case("R-0093", "Quote not in the text on C2", HOSTILE), case("R-0276"), score)
    machine = {
        ("R-0412", "C1"): (
            machine_label("annotator-a", 2, 0.93, (span(PLAIN, "water comes out of the potato"),)),
            machine_label("annotator-b", 1, None, (span(PLAIN, "comes out of the potato because"),)),
        ),
        ("R-0412", "C2"): (machine_label("annotator-a", 1, 0.88, (quote("partially permeable", "fabricated"),)),),
        ("R-0412", "C3"): (machine_label("annotator-a", None, reason="invalid_reply"),),
        ("R-0093", "C1"): (machine_label("<b>judge</b>", 1, 0.41, (span(HOSTILE, "salt sucks & it"),)),),
        ("R-0618", "C1"): (machine_label("judge", 2, 0.7, (span(PLAIN, "because of osmosis"),)),),
        ("R-0618", None): (machine_label("judge", 4, 0.6),),
    }
    shares = {"R-0412": (0.95, 0.5, 0.25), "R-0093": (0.5, 0.15, 0.2), "R-0276": (1.0, 0.9, 0.7)}
    estimates = {response: dict(zip(HEAD.criteria, given, strict=True)) for response, given in shares.items()}
    scale = {"r": Scale(min=0, max=4)}
    return Board("science", "Year 9 science", cases, {"r": CRITERIA}, scale, machine, HEAD, estimates)


def logits(shares: list[float]) -> np.ndarray:
    """W·A·s̃ + b by numpy."""
    head = json.loads(HEAD.model_dump_json())
    return np.array(head["weights"]) @ (np.array(head["correction"]) @ np.array(shares)) + np.array(head["bias"])


def question(
    response_id: str, criterion: str | None, rank: int, response: str, concept: str, levels: tuple[str, ...]
) -> ReviewQuestion:
    """A question of the queue without a board: a criterion's levels, or the score's."""
    kind: SubjectKind = "score" if criterion is None else "label"
    options = [{"value": str(n) if criterion else text, "key": None, "text": text} for n, text in enumerate(levels)]
    ballot = {"criterion_id": criterion, "text": concept, "options": options, "needed": True}
    ballot["digest"] = digest(response, "" if criterion is None else concept, levels)
    return ReviewQuestion(rank, QueuedCase(response_id, kind, "r", "", response, "Why?"), ballot)

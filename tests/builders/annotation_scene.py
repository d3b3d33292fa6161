"""Made-up annotation of a few responses: tables that conform to their contracts, for the tests of the report."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from rubricflow.tasks.core.contracts.schema import conform
from rubricflow.tasks.core.contracts.tables.people import Agreements, Constructions, Labels, Queue, Votes
from rubricflow.tasks.people.report.view import AnnotationView

Records = list[dict[str, Any]]
NAMES = {"FC": "Factual correctness", "CC": "Concept coverage"}


def agreement_rows() -> Records:
    rows: Records = []
    for raters, phase, add in (("p and q", "after", 0.3), ("a and final", "after", 0.2), ("a and b", "before", 0.0)):
        for at, criterion in enumerate(("all", *NAMES)):
            for metric in ("krippendorff_alpha", "kappa_quadratic", "kappa", "exact"):
                value = 0.5 + add + at / 100
                row = {"phase": phase, "raters": raters, "criterion_id": criterion, "metric": metric, "n": 40}
                rows.append(row | {"value": value, "low": value - 0.1, "high": value + 0.1})
    rows[-1] |= {"value": None, "low": None, "high": None, "note": "only one level was given"}
    return rows


def label(
    response: str, criterion: str, level: int | None, by: str, *said: tuple[str, str, int | None]
) -> dict[str, Any]:
    history = [{"who": who, "kind": kind, "level": one, "at": None, "comment": None} for who, kind, one in said]
    return {"response_id": response, "criterion_id": criterion, "level": level, "settled_by": by, "history": history}


def label_rows() -> Records:
    def both(a: int | None, b: int | None) -> tuple[tuple[str, str, int | None], ...]:
        return ("a", "annotator", a), ("b", "annotator", b)

    return [
        label("r1", "FC", 2, "annotators", *both(2, 2)),
        label("r1", "CC", 1, "one_vote", *both(2, 1), ("p", "vote", 1)),
        label("r2", "FC", 0, "majority", *both(1, 1), ("p", "vote", 0), ("q", "vote", 0)),
        label("r2", "CC", 1, "discussion", *both(2, 0), ("p", "adjudication", 1)),
        label("r:3", "FC", 2, "one_vote", *both(2, 2), ("p", "vote", 2)),
        label("r:3", "CC", None, "cannot_be_judged", *both(2, None), ("p", "vote", None)),
        label("r4", "FC", None, "open", *both(2, 1)),
    ]


def queue_rows() -> Records:
    reasons = {"r2": ["annotators_disagree", "ungrounded"], "r1": ["annotators_disagree"]}
    reasons |= {"r:3": ["audit"], "r4": ["audit"]}
    return [
        {"subject_kind": "label", "response_id": response, "rank": rank, "priority": 1 / rank, "criteria": ["CC"]}
        | {"reasons": why, "why": "Annotators 2 levels apart on CC"}
        for rank, (response, why) in enumerate(reasons.items(), 1)
    ]


def vote(subject: str, rater: str, value: str, **more: Any) -> dict[str, Any]:
    row = {"subject_kind": "label", "subject": subject, "value": value, "rater_id": rater, "role": "vote"}
    return row | {"blind": True, "voted_at": "2026-11-21T10:00:00+00:00"} | more


def vote_rows() -> Records:
    return [
        vote("r1:CC", "p", "1"),
        vote("r2:FC", "p", "0"),
        vote("r2:FC", "q", "0", blind=False),
        vote("r2:CC", "p", "1", role="adjudication", blind=False, voted_at="2026-11-21T11:00:00+00:00"),
        vote("r:3:FC", "p", "2"),
        vote("r:3:CC", "p", "x"),
        vote("r1", "q", "2.5", subject_kind="score"),
        vote("rubric:P1", "z", "core", subject_kind="graph_role", role=None, blind=None),
    ]


def construction_rows() -> Records:
    rows = [
        ("coverage", "all", 0.62, 0.5, "kept", "R² of the grade"),
        ("non_redundancy", "FC and CC", 0.95, 0.9, "broken", "too alike"),
        ("ordinal_anchors", "FC", None, None, "unknown", "no labels"),
    ]
    keys = ("rule", "subject", "value", "limit", "outcome", "detail")
    return [{"phase": "before", "rubric_id": "r", **dict(zip(keys, row, strict=True))} for row in rows]


def made(**more: Any) -> AnnotationView:
    """The annotation."""
    view = AnnotationView(
        study="osmosis",
        run_id="run1",
        names=NAMES,
        agreements=conform(Agreements, agreement_rows()),
        labels=conform(Labels, label_rows()),
        queue=conform(Queue, queue_rows()),
        votes=conform(Votes, vote_rows()),
        constructions=conform(Constructions, construction_rows()),
    )
    return replace(view, **more)

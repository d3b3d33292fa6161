"""A graded run as its tables: what the gradebook, its pages and the settling of scores are tested on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from builders.bundles import bundle, criterion
from builders.rows import grading, item, judgment, locked, response, rubric

from rubricflow.tasks.core.contracts.bundle import Bundle
from rubricflow.tasks.core.contracts.tables.calibration import Predictions, ReleaseRules
from rubricflow.tasks.core.contracts.tables.data import Items, Responses
from rubricflow.tasks.core.contracts.tables.judging import Gradings, Judgments
from rubricflow.tasks.core.contracts.tables.rubrics import Bundles, Rubrics
from rubricflow.tasks.core.store.files import sealed
from rubricflow.tasks.core.store.warehouse import Run, Warehouse

Record = dict[str, Any]
BUNDLE = bundle(
    criterion("P1", text="Water leaves the cells"),
    criterion("P2", text="Names osmosis"),
    ends=(0, 4),
)


def answer(name: str, item_id: str = "q1", student: str | None = "s1", **changes: Any) -> Record:
    """One answer: text, route, score, and what the data hold; levels: criterion → (level, quote)."""
    usual: Record = {"response_id": name, "item_id": item_id, "author_id": student, "text": "Water leaves. Osmosis."}
    machine: Record = {"route": "release", "score": 2.0, "people": {}, "levels": {"P1": (1, "Water leaves")}}
    return usual | machine | changes


def graded_run(folder: Path, answers: Iterable[Record], study: str = "class", **named: Any) -> Run:
    """named: bundle, of all items; groups, of all responses; rules, of `release_rules`; digest, in the run's id."""
    answers = list(answers)
    run = Warehouse.open(folder / "warehouse").run(f"{study}-{named.get('digest', '0123456789')}")
    items = sorted({row["item_id"] for row in answers})
    of_items: Bundle = named.get("bundle", BUNDLE)
    run.commit(
        "ingest",
        "all",
        {
            Items: [item(name, rubric_id="r", question=f"Question {name}?") for name in items],
            Responses: [_response(row, named.get("groups", {})) for row in answers],
            Gradings: [scored for row in answers for scored in _people(row)],
        },
    )
    run.commit("lock", "all", {Rubrics: [rubric("r")], Bundles: [locked(of_items, "r")]})
    run.commit("judge", "all", {Judgments: [decided for row in answers for decided in _judgments(row)]})
    rules = {ReleaseRules: named.get("rules", [])}
    run.commit("calibrate", "all", {Predictions: [_prediction(row) for row in answers], **rules})
    manifest = {"tables": [], "written": "2026-11-20T10:00:00+00:00", "identity": {"study": {"name": study}}}
    (run.folder / "manifest.json").write_bytes(sealed(manifest))
    return run


def _response(row: Record, groups: Mapping[str, str]) -> Record:
    wanted = ("response_id", "item_id", "author_id", "text")
    return response(**{name: row[name] for name in wanted}, groups=groups)


def _people(row: Record) -> list[Record]:
    """(rater, kind) → score."""
    return [
        grading(row["response_id"], rater, score, rater_kind=kind, item_id=row["item_id"])
        for (rater, kind), score in row["people"].items()
    ]


def _judgments(row: Record) -> list[Record]:
    return [
        judgment(row["response_id"], name, level, evidence=_evidence(row["text"], quote))
        for name, (level, quote) in row["levels"].items()
    ]


def _evidence(text: str, quote: str) -> list[Record]:
    if not quote or quote not in text:
        return []
    start = text.index(quote)
    return [{"unit_id": "s1", "quote": quote, "start": start, "end": start + len(quote), "status": "verified"}]


def _prediction(row: Record) -> Record:
    released = row["route"] == "release"
    score = row["score"]
    return {
        "response_id": row["response_id"],
        "item_id": row["item_id"],
        "rater_id": "m",
        "split": "test",
        "raw": row.get("raw", score),
        "score": score,
        "low": None if score is None else score - 1,
        "high": None if score is None else score + 1,
        "clipped": False,
        "risk": 0.1,
        "route": row["route"],
        "route_reason": None if released else "risk",
        "unscored_reason": "no_reply" if score is None else None,
    }

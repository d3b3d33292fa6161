"""Scores that people gave in the data: what they come to, and the ledger's record of when each was read.

Where a study takes them for decisions, the ledger keeps every one that is new or has changed. So the order of marks and
of what people decided on the page is known, and a mark that the data hold no more is not forgotten.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from rubricflow.tasks.core.contracts.tables.data import Responses
from rubricflow.tasks.core.contracts.tables.judging import Gradings
from rubricflow.tasks.core.contracts.tables.people import Notes, ScoreSettled
from rubricflow.tasks.core.stats.scores import FAIR, OF_SEVERAL, target_scores
from rubricflow.tasks.core.store.objects import mirrored_by
from rubricflow.tasks.core.store.warehouse import Run
from rubricflow.tasks.people.review.ledger import LEDGER, Act, Ledger, Stored
from rubricflow.tasks.people.review.predicted import score_text

_Given = tuple[str, str]
"""A response and a rater."""


class HistoryEntry(NamedTuple):
    """A score on the way to an answer's last one: its place in the order of the ledger, 0 where that is not known, and
    a step as column `history` of `settled_scores` holds it."""

    number: int
    step: dict[str, Any]


@dataclass
class ScoreInData:
    """What the data say of one answer's score."""

    score: float | None = None
    settled_by: ScoreSettled | None = None
    """None where there is only a note."""
    marks: dict[str, float] = field(default_factory=dict)
    """Rater → the score that they gave; nothing where marks are no decisions."""
    marked_at: int = 0
    """The number in the ledger of the last of these marks; 0 where it has none."""
    steps: list[HistoryEntry] = field(default_factory=list)
    """What raters gave, with what they gave before it changed."""
    note: str | None = None
    noted_at: int = 0


def people_of(run: Run) -> pa.Table:
    """Columns response_id, rater_id, rater_kind and score of what people gave in the data; the fair score among it."""
    columns = ["response_id", "rater_id", "rater_kind", "score"]
    people = run.read(run.ref(Gradings, "ingest"), columns)
    is_human = pc.is_in(people["rater_kind"], value_set=pa.array(["human", "adjudication"]))
    scored = people.filter(pc.and_(is_human, pc.is_valid(people["score"])))
    return scored.sort_by([("response_id", "ascending"), ("rater_id", "ascending")])


def notes_of(run: Run) -> dict[_Given, str]:
    """What raters say to students in the data, in the order of the ids."""
    if "ingest" not in run.stages(Notes):
        return {}
    rows = run.read(run.ref(Notes, "ingest")).sort_by([("response_id", "ascending"), ("rater_id", "ascending")])
    return {(row["response_id"], row["rater_id"]): _unicode(row["note"]) for row in rows.to_pylist()}


def keep_marks(run: Run, study: str, people: pa.Table, notes: Mapping[_Given, str]) -> None:
    """Add to the ledger the marks and notes that are new or have changed since it was asked last, and that some are
    gone. A bucket keeps no ledger: there, marks stand without a time. So do those that an earlier run read when marks
    decided nothing, where people have decided on the answer since: nobody can tell that the mark came later."""
    root, given = run.warehouse.root, _given(people)
    if mirrored_by(root) or not (given or notes or (root / LEDGER).exists()):
        return
    now = {key: (_value(given.get(key)), notes.get(key)) for key in {**given, **notes}}
    responses = set(run.read(run.ref(Responses, "ingest"), ["response_id"])["response_id"].to_pylist())
    with Ledger(root / LEDGER) as ledger:
        last = {_key(act): act for act in ledger.marks(study)}
        now |= {key: (None, None) for key in last if key not in now and key[0] in responses}
        said = {key: (act.value, act.comment) for key, act in last.items()}
        changed = [key for key, says in now.items() if says != said.get(key, (None, None))]
        spoken_of = {act.response_id for act in ledger.acts(study)}
        if any(key not in last and key[0] in spoken_of for key in changed):
            earlier = _given_before(run, study)
            known = {
                key for key in changed if key not in last and key[0] in spoken_of and (key, now[key][0]) in earlier
            }
            changed = [key for key in changed if key not in known]
        ledger.add_all(_act(study, key, *now[key], last.get(key)) for key in changed)


def _given_before(run: Run, study: str) -> set[tuple[_Given, str | None]]:
    """The marks that other finished runs of a study read."""
    others = (name for name in run.warehouse.runs() if name.rpartition("-")[0] == study and name != run.run_id)
    found = set[tuple[_Given, str | None]]()
    for name in others:
        found |= {(key, _value(score)) for key, score in _given(people_of(run.warehouse.run(name))).items()}
    return found


def marks_of(root: Path, study: str) -> list[Stored]:
    """Marks as the ledger has them, see `Ledger.marks`; none where there is no ledger."""
    if not (root / LEDGER).exists():
        return []
    with Ledger(root / LEDGER) as ledger:
        return ledger.marks(study)


def scores_in_data(
    people: pa.Table, notes: Mapping[_Given, str], read: Iterable[Stored], target: str | None
) -> dict[str, ScoreInData]:
    """Response → what the data say of its score. read: marks as the ledger has them; target: the study's, None where
    marks are no decisions: then only scores that people had settled on count."""
    given, settled, record = _given(people), _settled(people), dict[_Given, list[Stored]]()
    of_target = dict[str, float]()
    if target is None:
        given = {key: score for key, score in given.items() if key in settled}
    else:
        of_target = dict(zip(*(column.to_pylist() for column in target_scores(people, target).columns), strict=True))
        for act in read:
            record.setdefault(_key(act), []).append(act)
    found, resolved = dict[str, ScoreInData](), dict[str, dict[str, float]]()
    for response, rater in settled:
        resolved.setdefault(response, {})[rater] = given[response, rater]
    for key in sorted({*given, *notes, *record}):
        one, acts = found.setdefault(key[0], ScoreInData()), record.get(key, [])
        one.steps += _steps(key[1], "data" if key in settled else "mark", acts, _value(given.get(key)))
        if key in given and target is not None:
            one.marks[key[1]] = given[key]
            one.marked_at = max(one.marked_at, _since([(act.number, act.value) for act in acts], _value(given[key])))
        if key in notes:
            one.note = "\n\n".join(filter(None, (one.note, notes[key])))
            one.noted_at = max(one.noted_at, _since([(act.number, act.comment) for act in acts], notes[key]))
    for response, one in found.items():
        one.score, one.settled_by = _outcome(one.marks, resolved.get(response, {}), of_target.get(response), target)
    return found


def _outcome(
    marks: Mapping[str, float], resolved: Mapping[str, float], of_target: float | None, target: str | None
) -> tuple[float | None, ScoreSettled | None]:
    """What the scores of one answer come to: the rater's whom the study names; else what people had settled on; else
    the target or, where it says nothing of the answer, the one score that all gave. resolved: those settled on."""
    if target is not None and target not in OF_SEVERAL and target in marks:
        return marks[target], "in_data" if target in resolved else "marked"
    if resolved or (marks and of_target is None):
        values = set((resolved or marks).values())
        if len(values) > 1:
            return None, "data_differ"
        return values.pop(), "in_data" if resolved else "marked"
    return (of_target, "marked") if marks else (None, None)


def _given(people: pa.Table) -> dict[_Given, float]:
    """What raters gave. The fair score is an estimate of ours, and nobody's decision."""
    rows = zip(*(people[name].to_pylist() for name in ("response_id", "rater_id", "score")), strict=True)
    return {(response, rater): score for response, rater, score in rows if rater != FAIR}


def _settled(people: pa.Table) -> set[_Given]:
    """The scores that persons had settled on before the data came here."""
    rows = zip(*(people[name].to_pylist() for name in ("response_id", "rater_id", "rater_kind")), strict=True)
    return {(response, rater) for response, rater, kind in rows if kind == "adjudication" and rater != FAIR}


def _steps(rater: str, kind: str, acts: Sequence[Stored], now: str | None) -> list[HistoryEntry]:
    """What a rater gave, in its order. now: what the data hold; None for nothing."""
    changes: list[tuple[int, str | None, str | None]] = []
    for act in acts:
        if act.value != (changes[-1][1] if changes else None):
            changes.append((act.number, act.value, act.stored_at.isoformat()))
    if now != (changes[-1][1] if changes else None):  # read where there is no ledger
        changes.append((0, now, None))
    return [
        HistoryEntry(number, {"who": rater, "kind": kind, "score": value and float(value), "at": time, "comment": None})
        for number, value, time in changes
    ]


def _since(acts: Sequence[tuple[int, str | None]], now: str | None) -> int:
    """The number of the act from which on a rater has said what the data say now; 0 where none is known."""
    since = 0
    for number, said in reversed(acts):
        if said != now:
            break
        since = number
    return since


def _act(study: str, key: _Given, value: str | None, note: str | None, last: Stored | None) -> Act:
    # The same change, found by two commands at once, is stored once.
    name = json.dumps([study, *key, value, note, last.number if last else 0])
    return Act(
        act_id=str(uuid.uuid5(uuid.NAMESPACE_OID, name)),
        study=study,
        kind="mark",
        subject_kind="score",
        response_id=key[0],
        criterion_id=None,
        value=value,
        rater_id=key[1],
        comment=note,
    )


def _key(act: Stored) -> _Given:
    return act.response_id, act.rater_id


def _value(score: float | None) -> str | None:
    return None if score is None else score_text(score)


def _unicode(text: str) -> str:
    """A text that a file can hold: half a surrogate pair cannot be encoded."""
    return text.encode(errors="replace").decode()

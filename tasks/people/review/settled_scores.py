"""The table `settled_scores`: what people decided on a graded run's scores, each with how it came about.

Where a study takes scores that people gave in the data for decisions, the ledger keeps every one that is new or has
changed. So the order of marks and of what people decided on the page is known, and a mark that the data hold no more is
not forgotten.
"""

from __future__ import annotations

import json
import uuid
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from rubricflow.tasks.core.contracts import Record
from rubricflow.tasks.core.contracts.errors import ContractError
from rubricflow.tasks.core.contracts.schema import conform
from rubricflow.tasks.core.contracts.tables.calibration import ROUTE_REASONS, Predictions
from rubricflow.tasks.core.contracts.tables.data import Items, Responses
from rubricflow.tasks.core.contracts.tables.judging import Gradings
from rubricflow.tasks.core.contracts.tables.people import Notes, ScoreSettled, SettledScores
from rubricflow.tasks.core.contracts.tables.rubrics import Bundles
from rubricflow.tasks.core.display.table import Row
from rubricflow.tasks.core.stats.scores import FAIR, GIVEN, OF_SEVERAL, target_scores
from rubricflow.tasks.core.store.objects import mirrored_by
from rubricflow.tasks.core.store.warehouse import Run, pairs
from rubricflow.tasks.people.review.board import digests_of, rubrics, score_text, score_texts
from rubricflow.tasks.people.review.ledger import LEDGER, Act, Ledger, Stored, acts_of
from rubricflow.tasks.people.review.settle import SettledOutcome, outcomes, step_of, valid_acts

STAGE = "settle"
_Given = tuple[str, str]
"""A response and a rater."""
_Step = tuple[int, Record]
"""A score on the way to an answer's last one: its place in the order of the ledger, 0 where that is not known, and a
step as column `history` of `settled_scores` holds it."""


@dataclass
class ScoreInData:
    """What the data hold of one answer's score."""

    score: float | None = None
    settled_by: ScoreSettled | None = None
    """None where there is only a note."""
    marks: dict[str, float] = field(default_factory=dict)
    """Rater → the score that they gave; nothing where marks are no decisions."""
    marked_at: int = 0
    """The number in the ledger of the last of these marks; 0 where it has none."""
    steps: list[_Step] = field(default_factory=list)
    """What raters gave, with what they gave before it changed."""
    note: str | None = None
    noted_at: int = 0


def keep_settled_scores(run: Run, study: str, target: str | None = None, keep: bool = False) -> int:
    """Write the table anew from the ledger and the data of a graded run, where that changes it.

    target: of people's scores in the data, the one that counts (`evaluation.target`); None where they are no decisions.
    keep: whether the run is of the data as they are now, so that the ledger takes note of marks that have changed.
    Returns how many votes do not count any more, because the answer or its scale has changed since.
    """
    if not run.done("calibrate", "all"):
        return 0
    people = people_of(run)
    words = _notes_of(run)
    root = run.warehouse.root
    if keep and target is not None:
        keep_marks(run, study, people, words)
    in_data = scores_in_data(people, words, acts_of(root, study, marks=True) if target is not None else (), target)
    acts = acts_of(root, study)
    is_there = run.done(STAGE, "all")
    if not (acts or in_data or is_there):
        return 0
    responses = run.ref(Responses, "ingest")
    locked, rubric_of = rubrics(run, run.ref(Items, "ingest"), responses, run.ref(Bundles, "lock"))
    voted_on = ds.field("response_id").isin(_ids(act.response_id for act in acts))
    answers = run.read(responses, ["response_id", "text"], voted_on).to_pylist()
    digests = digests_of(answers, locked, rubric_of)
    valid = valid_acts(acts, digests, {name: said.marked_at for name, said in in_data.items()})
    for act in valid.in_order:
        if act.criterion_id is None and act.numeric_value is not None:
            scores = score_texts(locked[rubric_of[act.response_id]].scale)
            if score_text(act.numeric_value) not in scores:
                rule = f"says {act.value} of response {act.response_id}, which is no score of its scale"
                raise ContractError(f"the vote of {act.rater_id} {rule}")
    notes = {note.response_id: note for note in valid.notes}
    of_score: dict[str, list[Stored]] = defaultdict(list)
    for act in sorted((*valid.in_order, *valid.overtaken), key=lambda act: act.number):
        if act.criterion_id is None:
            of_score[act.response_id].append(act)
    results = outcomes(valid)
    levels: dict[str, dict[str, int]] = defaultdict(dict)
    for (name, concept), outcome in results.items():
        if concept is not None and outcome.value is not None:
            levels[name][concept] = int(outcome.value)
    columns = ["response_id", "rater_id", "score", "route_reason"]
    decided = ds.field("response_id").isin(_ids({*in_data, *notes, *of_score}))
    rows = []
    for machine in run.table(Predictions, "calibrate", columns, decided).to_pylist():
        name = machine["response_id"]
        data = in_data.get(name, ScoreInData())
        note = notes.get(name)
        row = settled_score(machine, data, of_score[name], results.get((name, None)), note)
        rows.append(row | {"levels": levels[name]})
    if rows or is_there:
        table = conform(SettledScores, rows)
        # An equal table is not written again: a run that cannot be written to can then still be read.
        if not (is_there and run.table(SettledScores, STAGE).equals(table)):
            run.commit(STAGE, "all", {SettledScores: table})
    return len(valid.stale)


def _ids(names: Iterable[str]) -> pa.Array:
    return pa.array(sorted(set(names)), pa.string())


def settled_score(
    machine: Row,
    data: ScoreInData,
    acts: Iterable[Stored],
    outcome: SettledOutcome | None,
    note: Stored | None,
) -> Record:
    """A row of `settled_scores`, all but its levels. Votes that count come before scores that the data hold.

    machine: of the row of `predictions` response_id, rater_id, score and route_reason; acts: votes on the score and
    adjudications of it, those among it before which a mark goes; outcome: what those that count come to, None where
    there are none.
    """
    settled = outcome or SettledOutcome(data.score, data.settled_by)
    reason = None if data.marks else ROUTE_REASONS.get(machine["route_reason"])
    first = {"who": machine["rater_id"], "kind": "machine", "score": machine["score"], "at": None, "comment": reason}
    given = [(act.number, {**step_of(act), "score": act.numeric_value}) for act in acts]
    steps = sorted([*data.steps, *given], key=lambda step: step[0])
    from_page = note is not None and (data.note is None or note.number > data.noted_at)
    return {
        "response_id": machine["response_id"],
        "score": settled.value,
        "settled_by": settled.settled_by,
        "note": note.comment if note is not None and from_page else data.note,
        "history": [first, *(step for _, step in steps)],
        "marks": data.marks or None,
    }


def people_of(run: Run) -> pa.Table:
    """Columns response_id, rater_id, rater_kind and score of what people gave in the data; the fair score among it."""
    people = run.table(Gradings, "ingest", GIVEN)
    is_human = pc.is_in(people["rater_kind"], value_set=pa.array(["human", "adjudication"]))
    scored = people.filter(pc.and_(is_human, pc.is_valid(people["score"])))
    return scored.sort_by([("response_id", "ascending"), ("rater_id", "ascending")])


def _notes_of(run: Run) -> dict[_Given, str]:
    """What raters write to students in the data, in the order of the ids."""
    if "ingest" not in run.stages(Notes):
        return {}
    rows = run.table(Notes, "ingest").sort_by([("response_id", "ascending"), ("rater_id", "ascending")])
    # No file can hold half a surrogate pair.
    return {
        (row["response_id"], row["rater_id"]): row["note"].encode(errors="replace").decode() for row in rows.to_pylist()
    }


def keep_marks(run: Run, study: str, people: pa.Table, notes: Mapping[_Given, str]) -> None:
    """Add to the ledger the marks and notes that are new or have changed since it was asked last, and that some are
    gone. A bucket keeps no ledger: there, marks have no time. Nor have those that an earlier run read when marks
    decided nothing, where people have decided on the answer since: nobody can tell that the mark came later."""
    root = run.warehouse.root
    given = _given(people)
    if mirrored_by(root) or not (given or notes or (root / LEDGER).exists()):
        return
    now = {key: (_text(given.get(key)), notes.get(key)) for key in {**given, **notes}}
    responses = set(run.table(Responses, "ingest", ["response_id"])["response_id"].to_pylist())
    with Ledger(root / LEDGER) as ledger:
        last = {(act.response_id, act.rater_id): act for act in ledger.marks(study)}
        now |= {key: (None, None) for key in last if key not in now and key[0] in responses}
        said = {key: (act.value, act.comment) for key, act in last.items()}
        changed = [key for key, says in now.items() if says != said.get(key, (None, None))]
        decided = {act.response_id for act in ledger.acts(study)}
        late = {key for key in changed if key not in last and key[0] in decided}
        if late:
            # The marks that other finished runs of the study read
            earlier = set[tuple[_Given, str | None]]()
            for name in run.warehouse.runs():
                if name.rpartition("-")[0] == study and name != run.run_id:
                    theirs = _given(people_of(run.warehouse.run(name)))
                    earlier |= {(key, _text(score)) for key, score in theirs.items()}
            changed = [key for key in changed if key not in late or (key, now[key][0]) not in earlier]
        acts = []
        for key in changed:
            (response, rater), (value, note) = key, now[key]
            # The same change, found by two commands at once, is stored once.
            name = json.dumps([study, *key, value, note, last[key].number if key in last else 0])
            act = Act(
                act_id=str(uuid.uuid5(uuid.NAMESPACE_OID, name)),
                study=study,
                kind="mark",
                subject_kind="score",
                response_id=response,
                criterion_id=None,
                value=value,
                rater_id=rater,
                comment=note,
            )
            acts.append(act)
        ledger.add_all(acts)


def scores_in_data(
    people: pa.Table, notes: Mapping[_Given, str], read: Iterable[Stored], target: str | None
) -> dict[str, ScoreInData]:
    """Response → what the data hold of its score. read: marks as the ledger has them; target: the study's, None where
    marks are no decisions: then only scores that people had settled on count."""
    record = defaultdict[_Given, list[Stored]](list)
    of_target = dict[str, float]()
    given = _given(people)
    settled = _given(people.filter(pc.equal(people["rater_kind"], "adjudication"))).keys()
    if target is None:
        given = {key: score for key, score in given.items() if key in settled}
    else:
        of_target = dict(pairs(target_scores(people, target)))
        for act in read:
            record[act.response_id, act.rater_id].append(act)
    found = defaultdict[str, ScoreInData](ScoreInData)
    resolved = defaultdict[str, dict[str, float]](dict)
    for response, rater in settled:
        resolved[response][rater] = given[response, rater]
    for key in sorted({*given, *notes, *record}):
        one = found[key[0]]
        acts = record.get(key, [])
        one.steps += _steps(key[1], "data" if key in settled else "mark", acts, _text(given.get(key)))
        if key in given and target is not None:
            one.marks[key[1]] = given[key]
            one.marked_at = max(one.marked_at, _since([(act.number, act.value) for act in acts], _text(given[key])))
        if key in notes:
            one.note = "\n\n".join(filter(None, (one.note, notes[key])))
            one.noted_at = max(one.noted_at, _since([(act.number, act.comment) for act in acts], notes[key]))
    for response, one in found.items():
        one.score, one.settled_by = _outcome(one.marks, resolved.get(response, {}), of_target.get(response), target)
    return dict(found)


def _outcome(
    marks: Mapping[str, float], resolved: Mapping[str, float], of_target: float | None, target: str | None
) -> tuple[float | None, ScoreSettled | None]:
    """What the scores of one answer come to: the rater's whom the study names; else what people had settled on; else
    the target or, where there is none for the answer, the one score that all gave. resolved: those settled on."""
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
    rows = people.select(["response_id", "rater_id", "score"]).to_pylist()
    return {(row["response_id"], row["rater_id"]): row["score"] for row in rows if row["rater_id"] != FAIR}


def _steps(rater: str, kind: str, acts: Sequence[Stored], now: str | None) -> list[_Step]:
    """What a rater gave, in its order. now: what the data hold; None for nothing."""
    steps = []
    value = None
    # Last what was read where there is no ledger
    for number, said, time in [*((act.number, act.value, act.stored_at.isoformat()) for act in acts), (0, now, None)]:
        if said != value:
            value = said
            score = None if said is None else float(said)
            steps.append((number, {"who": rater, "kind": kind, "score": score, "at": time, "comment": None}))
    return steps


def _since(acts: Sequence[tuple[int, str | None]], now: str | None) -> int:
    """The number of the act from which on a rater has given what the data hold now; 0 where none is known."""
    same = list(takewhile(lambda act: act[1] == now, reversed(acts)))
    return same[-1][0] if same else 0


def _text(score: float | None) -> str | None:
    return None if score is None else score_text(score)

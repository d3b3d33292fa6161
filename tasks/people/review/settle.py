"""Which of people's acts count, and what they come to; final labels of annotators, votes and adjudications."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
import pyarrow as pa

from rubricflow.tasks.core.contracts import Record
from rubricflow.tasks.core.contracts.errors import ContractError
from rubricflow.tasks.core.contracts.schema import conform, schema
from rubricflow.tasks.core.contracts.tables.people import Labels, ScoreSettled, Settled
from rubricflow.tasks.people.review.ledger import Stored, Subject

_STEP = pa.schema(list(schema(Labels).field("history").type.value_type))
_RatedCase = tuple[str, str]
"""A response and a rater: a score is submitted together with the levels behind it."""


@dataclass(frozen=True)
class ValidActs:
    """The acts of a study that count, each in the order of the ledger."""

    votes: tuple[Stored, ...]
    """Of each rater and subject the latest vote that was submitted, not taken back, on what is still there."""
    adjudications: tuple[Stored, ...]
    """Those that were not taken back, on what is still there; of a subject the last one settles it."""
    stale: tuple[Stored, ...]
    """Votes and adjudications that would count, had what they were about not changed since."""
    notes: tuple[Stored, ...] = ()
    """Words to students that were not taken back, on what is still there; of a response the last one counts."""
    overtaken: tuple[Stored, ...] = ()
    """Votes and adjudications on scores that would count, had no mark come after them."""

    @property
    def in_order(self) -> list[Stored]:
        """Votes and adjudications in the order of the ledger."""
        return sorted((*self.votes, *self.adjudications), key=lambda act: act.number)


@dataclass(frozen=True)
class SettledOutcome:
    """What people's acts on one subject come to."""

    value: float | None
    """The level or score; None where it is open or cannot be judged."""
    settled_by: Settled | ScoreSettled | None


def valid_acts(
    acts: Sequence[Stored], current: Mapping[Subject, str], marked_at: Mapping[str, int] | None = None
) -> ValidActs:
    """Which of a study's acts, given in their order, count. current: each subject's digest as it is now; marked_at: the
    number in the ledger of the last mark that the data hold of a response, before which nothing on its score counts.

    A rater takes back acts of their own only, and an undo can be undone. A vote counts from the rater's next submit of
    its response on; what they vote after it waits for another submit, while the vote before goes on to count. After a
    rater takes a submission back nothing of theirs counts until they vote again; that vote is final, and counts with
    those that they leave as they were.
    """
    live, withdrawn = live_acts(acts)
    submitted = {(act.response_id, act.rater_id): act.number for act in live if act.kind == "submit"}
    final = dict(submitted)
    for act in live:
        case = (act.response_id, act.rater_id)
        if act.kind == "vote" and submitted.get(case, 0) < withdrawn.get(case, 0) < act.number:
            final[case] = act.number
    latest: dict[tuple[str, Subject], Stored] = {}
    outdated: dict[tuple[str, Subject], Stored] = {}
    adjudications: list[Stored] = []
    stale: list[Stored] = []
    overtaken = []
    for act in live:
        if act.kind not in ("vote", "adjudicate"):
            continue
        holds = current.get(act.subject) == act.digest
        said_at = act.number if act.kind == "adjudicate" else final.get((act.response_id, act.rater_id), 0)
        marked = (marked_at or {}).get(act.response_id, 0) if act.criterion_id is None else 0
        if holds and act.number <= said_at < marked:
            overtaken.append(act)
        elif act.kind == "adjudicate":
            (adjudications if holds else stale).append(act)
        elif act.number <= said_at:
            (latest if holds else outdated)[act.rater_id, act.subject] = act
    stale += [act for key, act in outdated.items() if key not in latest]
    votes, stale = (sorted(some, key=lambda act: act.number) for some in (latest.values(), stale))
    notes = [act for act in live if act.kind == "note" and current.get(act.subject) == act.digest]
    return ValidActs(tuple(votes), tuple(adjudications), tuple(stale), tuple(notes), tuple(overtaken))


def live_acts(acts: Sequence[Stored]) -> tuple[list[Stored], dict[_RatedCase, int]]:
    """The acts that nobody undid, undos left out, and when a rater last took back a submission of a case. It goes from
    the last act to the first, so that an undone undo undoes nothing."""
    by_id = {act.act_id: act for act in acts}
    gone: set[str] = set()
    live = []
    withdrawn: dict[_RatedCase, int] = {}
    for act in reversed(acts):
        if act.act_id in gone:
            continue
        undone = by_id.get(act.undoes or "")
        if act.kind != "undo":
            live.append(act)
        elif undone and undone.rater_id == act.rater_id:
            gone.add(undone.act_id)
            if undone.kind == "submit":
                withdrawn.setdefault((undone.response_id, undone.rater_id), act.number)
    return live[::-1], withdrawn


def outcomes(valid: ValidActs) -> dict[Subject, SettledOutcome]:
    """Every subject that people voted on, in the order of the first vote, or adjudicated → what that comes to.

    The last adjudication settles it. Without one, so do votes of which more than half are equal; otherwise it is open.
    """
    values = defaultdict[Subject, list[float | None]](list)
    for act in valid.votes:
        values[act.subject].append(act.numeric_value)
    settled: dict[Subject, tuple[float | None, Settled]] = {}
    for subject, given in values.items():
        (first, most), *others = Counter(given).most_common()
        if 2 * most <= len(given):
            settled[subject] = None, "open"
        else:
            settled[subject] = first, "majority" if others else "agreed_votes" if most > 1 else "one_vote"
    settled |= {act.subject: (act.numeric_value, "discussion") for act in valid.adjudications}
    return {
        subject: SettledOutcome(value, "cannot_be_judged" if value is None and by != "open" else by)
        for subject, (value, by) in settled.items()
    }


def settle(cells: pd.DataFrame, annotators: Mapping[str, pd.DataFrame], valid: ValidActs) -> pa.Table:
    """Table `labels`, a row for every cell. Where people voted, `outcomes` holds; elsewhere the level that all
    annotators give; otherwise the label is open.

    cells, annotators: by name, as in `queue`. ContractError where a vote says a level off its concept's scale.
    """
    acts = [act for act in valid.in_order if act.criterion_id is not None]
    voted = cells[cells["response_id"].isin([act.response_id for act in acts])]
    cell_of = dict(zip(zip(voted["response_id"], voted["criterion_id"], strict=True), voted.index, strict=True))
    for act in acts:
        if act.subject not in cell_of or (act.numeric_value or 0) > cells["top"][cell_of[act.subject]]:
            rule = f"says {act.value} of {act.criterion_id} of response {act.response_id}, which is no level of it"
            raise ContractError(f"the vote of {act.rater_id} {rule}")
    levels = pd.DataFrame({name: labels["level"] for name, labels in annotators.items()})
    level = levels.iloc[:, 0].where(levels.eq(levels.iloc[:, 0], axis=0).all(axis=1))
    settled_by = level.notna().map({True: "annotators", False: "open"})
    for subject, outcome in outcomes(valid).items():
        if subject in cell_of:
            level[cell_of[subject]], settled_by[cell_of[subject]] = outcome.value, outcome.settled_by
    said = [
        pd.DataFrame({"cell": labels.index, "who": name, "kind": "annotator", "level": labels["level"]})
        for name, labels in annotators.items()
    ]
    by_people = [step_of(act) | {"level": act.numeric_value, "cell": cell_of[act.subject]} for act in acts]
    said.append(pd.DataFrame(by_people, columns=["cell", "who", "kind", "level", "at", "comment"]))
    # Of each cell the annotators in their order, then people in theirs
    steps = pd.concat(said).sort_values("cell", kind="stable")
    ends = np.concatenate([[0], np.cumsum(np.bincount(steps["cell"].astype(int), minlength=len(cells)))])
    records = pa.Table.from_pandas(steps, schema=_STEP, preserve_index=False).to_struct_array().combine_chunks()
    columns = {
        "response_id": pa.array(cells["response_id"], pa.string()),
        "criterion_id": pa.array(cells["criterion_id"], pa.string()),
        "level": pa.array(level, from_pandas=True),
        "settled_by": pa.array(settled_by, pa.string()),
        "history": pa.ListArray.from_arrays(pa.array(ends, pa.int32()), records),
    }
    return conform(Labels, pa.table(columns))


def step_of(act: Stored) -> Record:
    """An act as a step of column `history`, all but its level or score."""
    role = "vote" if act.kind == "vote" else "adjudication"
    return {"who": act.rater_id, "kind": role, "at": act.stored_at.isoformat(), "comment": act.comment}


def vote_rows(valid: ValidActs) -> list[Record]:
    """Rows of table `votes`: the acts that count, in their order."""
    rows = []
    for act in valid.in_order:
        step = step_of(act)
        row = {name: getattr(act, name) for name in ("subject_kind", "value", "rater_id", "comment", "blind")}
        subject = act.response_id if act.criterion_id is None else f"{act.response_id}:{act.criterion_id}"
        rows.append(row | {"subject": subject, "voted_at": step["at"], "role": step["kind"]})
    return rows

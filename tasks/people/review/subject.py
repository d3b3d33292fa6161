"""What a vote is about, and which votes on it count."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from rubricflow.tasks.people.review.ledger import Act, Stored

Subject = tuple[str, str | None]
"""(response, criterion), or (response, None) for its score."""
_Part = tuple[str, str]
"""A response and a rater: a score is submitted together with the levels behind it."""
DIGEST = re.compile("[0-9a-f]{64}")
"""What a digest looks like."""


@dataclass(frozen=True)
class Standing:
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


def digest(response_text: str, criterion_text: str, levels: Sequence[str]) -> str:
    """SHA-256 of what is voted on, 64 hex digits. For a score the criterion's text is '' and the levels are the scale's
    scores as text."""
    content = json.dumps([response_text, criterion_text, list(levels)], ensure_ascii=True)
    return hashlib.sha256(content.encode()).hexdigest()


def subject_of(act: Act) -> Subject:
    """What a vote or an adjudication is about."""
    return act.response_id, act.criterion_id


def standing(
    acts: Iterable[Stored], current: Mapping[Subject, str], marked_at: Mapping[str, int] | None = None
) -> Standing:
    """Which of a study's acts, given in their order, count. current: each subject's digest as it is now; marked_at: the
    number in the ledger of the last mark that the data hold of a response, before which nothing on its score counts.

    A rater takes back acts of their own only, and an undo can be undone. A vote counts from the rater's next submit of
    its response on; what they vote after it waits for another submit, while the vote before goes on to count. Who takes
    a submission back says nothing until they vote again; that vote is their last word, and counts with those that they
    leave as they were.
    """
    live, withdrawn = _not_taken_back(list(acts))
    final = _final(live, withdrawn)
    latest: dict[tuple[str, Subject], Stored] = {}
    outdated: dict[tuple[str, Subject], Stored] = {}
    adjudications: list[Stored] = []
    stale: list[Stored] = []
    marked_at, earlier = marked_at or {}, list[Stored]()
    notes: list[Stored] = []
    for act in live:
        holds = current.get(subject_of(act)) == act.digest
        if act.kind == "note" and holds:
            notes.append(act)
        if act.kind not in ("vote", "adjudicate"):
            continue
        said_at = act.number if act.kind == "adjudicate" else final.get(_part(act), 0)
        if holds and act.criterion_id is None and act.number <= said_at < marked_at.get(act.response_id, 0):
            earlier.append(act)
        elif act.kind == "adjudicate":
            (adjudications if holds else stale).append(act)
        elif act.number <= said_at:
            (latest if holds else outdated)[act.rater_id, subject_of(act)] = act
    stale += [act for key, act in outdated.items() if key not in latest]
    return Standing(_ordered(latest.values()), tuple(adjudications), _ordered(stale), tuple(notes), tuple(earlier))


def _final(live: Sequence[Stored], withdrawn: Mapping[_Part, int]) -> dict[_Part, int]:
    """The number up to which a rater's votes on a case count: that of the last submit or, where one was taken back
    since, of the last vote after that."""
    submitted = {_part(act): act.number for act in live if act.kind == "submit"}
    final = dict(submitted)
    for act in live:
        part = _part(act)
        if act.kind == "vote" and submitted.get(part, 0) < withdrawn.get(part, 0) < act.number:
            final[part] = act.number
    return final


def _part(act: Act) -> _Part:
    return act.response_id, act.rater_id


def _not_taken_back(acts: Sequence[Stored]) -> tuple[list[Stored], dict[_Part, int]]:
    """The acts that nobody undid, undos left out, and when a rater last took back a submission of a case. It goes from
    the last act to the first, so that an undone undo undoes nothing."""
    by_id = {act.act_id: act for act in acts}
    gone: set[str] = set()
    live: list[Stored] = []
    withdrawn: dict[_Part, int] = {}
    for act in reversed(acts):
        if act.act_id in gone:
            continue
        undone = by_id.get(act.undoes or "")
        if act.kind != "undo":
            live.append(act)
        elif undone and undone.rater_id == act.rater_id:
            gone.add(undone.act_id)
            if undone.kind == "submit":
                withdrawn.setdefault(_part(undone), act.number)
    return live[::-1], withdrawn


def _ordered(acts: Iterable[Stored]) -> tuple[Stored, ...]:
    return tuple(sorted(acts, key=lambda act: act.number))

"""Who handed in a file, by the names that learning platforms give to files when all submissions are downloaded."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import NamedTuple


class SubmissionPlatform(NamedTuple):
    """A platform whose names are known."""

    title: str
    """In words, without a number."""
    names: re.Pattern[str]
    """The path of a file: `student`, and where it has them `name`, `attempt`, `kind` and `rest`."""


MOODLE = SubmissionPlatform(
    "submissions to a Moodle assignment",
    re.compile(r"(?P<name>[^/]*)_(?P<student>\d+)_assignsubmission_(?P<kind>[a-z]+)(?:_?/|_)(?P<rest>.+)", re.DOTALL),
)
CANVAS = SubmissionPlatform(
    "submissions to a Canvas assignment",
    re.compile(
        r"(?P<name>[^/_]+)(?:_LATE)?_(?P<student>\d+)_(?:(?P<attempt>\d+)_(?P<rest>[^/]+)|(?P<kind>text|link)\.html?)",
        re.DOTALL,
    ),
)
BLACKBOARD = SubmissionPlatform(
    "submissions to a Blackboard assignment",
    re.compile(
        r"(?P<student>[^/]+)_attempt_(?P<attempt>\d{4}(?:-\d\d){5})(?:_(?P<rest>[^/]+)|(?P<kind>\.txt))", re.DOTALL
    ),
)
"""Here `student` holds the assignment, too: what all have in common is taken off, or the receipt tells. The receipt is
a .txt file of each attempt that names the student and holds what was typed instead of handed in as a file."""
PLATFORMS = (MOODLE, CANVAS, BLACKBOARD)
_RESUBMITTED = re.compile(r"(?P<stem>.+)-(?P<number>\d{1,3})")
_WHO = re.compile(r"[^:\n]+:[ \t]*(?P<name>[^\n]*?)[ \t]*\((?P<student>[^()\n]+)\)[ \t]*(?:\n|$)")
_TYPED = re.compile(r"^Submission Field:[ \t]*\n(?P<text>.*?)(?=^Comments:[ \t]*$|^Files:[ \t]*$|\Z)", re.M | re.DOTALL)
_SECTION = re.compile(r"\n\n[^\n:]+:[ \t]*\n(?P<text>.*?)(?=\n\n[^\n:]+:[ \t]*\n|\Z)", re.DOTALL)
_NOTHING_TYPED = "There is no student submission text data for this assignment."


class Handed(NamedTuple):
    """What a student handed in."""

    student: str
    """The id."""
    name: str | None
    """Where the platform tells it."""
    paths: tuple[str, ...]
    """The files that count, in their order."""
    earlier: tuple[str, ...]
    """Those that a later attempt replaced."""
    receipts: tuple[str, ...] = ()
    """Blackboard's receipts among `paths`."""


def natural(text: str) -> list[tuple[int, int, str]]:
    """A key by which page 2 stands before page 10."""
    return [(0, int(part), "") if part.isdecimal() else (1, 0, part) for part in re.split(r"(\d{1,18})", text) if part]


def handed_in(paths: Sequence[str]) -> tuple[SubmissionPlatform | None, list[Handed]]:
    """The platform that most files are of, and each student with the files, in the order of the first ones.

    paths: of files, with / between their parts. A file that is not named by the platform is that of the folder which it
    lies in or, where it lies in none, of a student of its own name without the ending. Files of two ids, or two names,
    are never joined; of several attempts the last counts.
    """
    platform, told = None, dict[str, re.Match[str]]()
    for candidate in PLATFORMS:
        matches = {path: match for path in paths if (match := candidate.names.fullmatch(path))}
        if 2 * len(matches) >= len(paths) and len(matches) > len(told) and _is_consistent(matches):
            platform, told = candidate, matches
    students = {path: match["student"] for path, match in told.items()}
    names = {students[path]: match.groupdict().get("name") or None for path, match in told.items()}
    groups: dict[tuple[bool, str], list[str]] = defaultdict(list)
    for path in paths:
        groups[(path in told, students[path] if path in told else _by_folder(path))].append(path)
    common = _common([student for is_told, student in groups if is_told]) if platform is BLACKBOARD else ""
    handed = []
    for (is_told, student), mine in groups.items():
        if not is_told:
            handed.append(Handed(student, None, tuple(mine), ()))
            continue
        counting, earlier = _last(platform, {path: told[path] for path in mine})
        receipts = tuple(path for path in counting if platform is BLACKBOARD and told[path]["kind"])
        shown = f"Participant {student}" if platform is MOODLE else student.removeprefix(common)
        handed.append(Handed(shown, names[student], tuple(counting), tuple(earlier), receipts))
    return platform, handed


def _is_consistent(matches: Mapping[str, re.Match[str]]) -> bool:
    """Whether no id stands for two names: anna_2026_11_essay.docx and ben_2026_11_essay.docx are no submissions of a
    student 2026."""
    names = {(match["student"], match.groupdict().get("name")) for match in matches.values()}
    return len(names) == len({student for student, _ in names})


def _by_folder(path: str) -> str:
    place = PurePosixPath(path)
    return place.parts[0] if len(place.parts) > 1 else place.stem


def _common(students: Sequence[str]) -> str:
    """What all begin with, up to an underscore: the assignment. Of a single one, up to its last underscore."""
    first, last = min(students, default=""), max(students, default="")
    common = next((first[:place] for place, letter in enumerate(first) if last[place : place + 1] != letter), first)
    return common[: common.rfind("_") + 1]


def _last(platform: SubmissionPlatform | None, of: Mapping[str, re.Match[str]]) -> tuple[list[str], list[str]]:
    """The files of a student's last attempt, in their order, and those that were replaced."""
    if platform is BLACKBOARD:
        last = max(match["attempt"] for match in of.values())
        counting = [path for path, match in of.items() if match["attempt"] == last]
        return counting, [path for path in of if path not in counting]
    if platform is CANVAS:
        return _without_replaced(of)
    # What was typed comes before what was attached.
    return sorted(of, key=lambda path: (of[path]["kind"] != "onlinetext", natural(path))), []


def _without_replaced(of: Mapping[str, re.Match[str]]) -> tuple[list[str], list[str]]:
    """Canvas calls a file handed in anew essay-1.docx where essay.docx was there before."""
    newest: dict[str, tuple[int, str]] = {}
    rests = {path: PurePosixPath(match["rest"] or path) for path, match in of.items()}
    known = set(rests.values())
    for path, rest in rests.items():
        again = _RESUBMITTED.fullmatch(rest.stem)
        first = rest.with_stem(again["stem"]) if again else rest
        number = int(again["number"]) if again and first in known else 0
        key = str(first if number else rest)
        newest[key] = max(newest.get(key, (0, path)), (number, path))
    counting = {path for _, path in newest.values()}
    return [path for path in of if path in counting], [path for path in of if path not in counting]


class Receipt(NamedTuple):
    """What Blackboard's receipt of an attempt says."""

    student: str | None
    name: str | None
    typed: str
    """What the student typed instead of handing in a file; '' for nothing."""


def receipt_of(text: str, alone: bool) -> Receipt:
    """A receipt read; alone: whether no file was handed in beside it. In another language than English what was typed
    is only told from what the platform says where it is all there is."""
    who = _WHO.match(text)
    typed = _TYPED.search(text)
    if typed is None and alone:
        typed = _SECTION.search(text)
    words = typed["text"].strip() if typed else ""
    typed_words = "" if words == _NOTHING_TYPED else words
    return Receipt(who["student"] if who else None, (who["name"] or None) if who else None, typed_words)

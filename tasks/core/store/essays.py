"""Folders of essays, one file or several a student: a plain folder, a .zip of one, or what Moodle, Canvas and
Blackboard make where all submissions are downloaded.

Files are never unpacked to the disk; each is read by a process with limits (`document_reader`). The second half finds
who wrote a file by the name that a learning platform gave it.
"""

from __future__ import annotations

import os
import re
import stat
import unicodedata
import zipfile
import zlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from rubricflow.tasks.core.contracts.errors import InputError
from rubricflow.tasks.core.store.cells import EssayCell, id_of
from rubricflow.tasks.core.store.document_reader import DocumentReader, DocumentText
from rubricflow.tasks.core.store.sheets import ENDINGS
from rubricflow.tasks.core.text.fold import bare_of, folded

COLUMNS = ("student", "name", "text", "files", "folder")
"""Of a folder of essays as a table: the student's id, the name where a platform has it, the text of all files, the
names of these, and the name of the folder."""
MOST_FILES = 5_000
LARGEST = 64 << 20
"""Bytes of a file that is read."""
LARGEST_ALL = 4 << 30
"""Bytes to which all files of a .zip may unpack."""
_NOT_HANDED_IN = re.compile(r"\..*|~\$.*|__MACOSX|thumbs\.db|desktop\.ini", re.IGNORECASE | re.DOTALL)
"""What systems and word processors leave in folders."""
_ENCRYPTED, _UTF_8 = 0x1, 0x800
"""Flags of a file in a .zip."""


class SubmittedFile(NamedTuple):
    """A file of a folder of essays."""

    path: str
    """In the folder, with / between its parts."""
    size: int
    content: Callable[[], bytes]
    """Reads it."""
    is_plain: bool = True
    """Whether it is a file, and no link or device."""


def is_essays(path: Path) -> bool:
    """Whether a source is a folder of essays, or a .zip of one; a folder that is called a table is none."""
    ending = path.suffix.lower()
    return ending == ".zip" or (path.is_dir() and ending not in (*ENDINGS, ".json", ".jsonl", ".parquet"))


def essay_rows(path: Path) -> Iterator[tuple[str, str | None, EssayCell, str, str]]:
    """A row for each student, as COLUMNS has it, in the order of their files.

    Several files of one student are joined in their order, a text that comes twice only once; of several attempts the
    last counts. What cannot be read makes the text one that a person has to look at, with the reason. InputError for a
    folder or .zip that cannot be read as a whole, see `open_essays`.
    """
    with open_essays(path) as files, DocumentReader() as reader:
        _, students = handed_in(list(files))
        for student in students:
            parts = {name: _read(files[name], reader) for name in student.paths}
            # A receipt's contents take its place: it is no text of the student's.
            for name in student.receipts:
                alone = len(student.paths) == 1
                own_id, own_name, typed = receipt_of(parts[name].text, alone)
                student = student._replace(student=own_id or student.student, name=own_name or student.name)
                if typed:
                    parts[name] = DocumentText(typed)
                elif alone:
                    parts[name] = DocumentText("", "file_empty", "nothing was handed in with it")
                else:
                    del parts[name]
            texts: dict[str, str] = {}
            for part in parts.values():
                if part.reason is None:
                    texts.setdefault(bare_of(folded(part.text)), part.text)
            unread = {name: part for name, part in parts.items() if part.reason is not None}
            cell = EssayCell(
                text="\n\n".join(texts.values()),
                unread=next((part.reason for part in unread.values()), None),
                why="; ".join(f"{_shown(name)}: {part.words}" for name, part in unread.items()) or None,
                joined=" + ".join(map(_shown, parts)) if len(parts) > 1 else None,
                replaced=", ".join(map(_shown, student.earlier)) or None,
            )
            student_id = student.student if student.student.isprintable() else id_of([student.student])
            names = "; ".join(map(_shown, parts))
            yield student_id, student.name and _shown(student.name), cell, names, _shown(path.stem)


def essay_words(path: Path) -> str:
    """What a folder of essays is, in a line for people; no file is read. InputError as `open_essays`."""
    with open_essays(path) as files:
        platform, students = handed_in(list(files))
    endings = Counter(PurePosixPath(name).suffix.lower() or "without an ending" for name in files)
    kinds = ", ".join(f"{count} {_shown(ending)}" for ending, count in endings.most_common())
    return f"{platform.title if platform else 'essays'}: {len(students)} students, {len(files)} files ({kinds})"


def essay_files(path: Path) -> list[Path]:
    """The files whose bytes show whether a folder of essays has changed; a .zip is one itself."""
    return [path] if path.is_file() else [place for place in _walked(path) if stat.S_ISREG(place.lstat().st_mode)]


@contextmanager
def open_essays(path: Path) -> Iterator[dict[str, SubmittedFile]]:
    """The files of a folder or .zip by their paths in it, in the order of these, numbers by their size.

    A folder around all others is left out of the paths. InputError where there is no file, for too many, and for a .zip
    that is damaged, asks for a password, unpacks to too much, has a name twice, or one that leads out of it.
    """
    if path.is_dir():
        files = []
        for place in _walked(path):
            name = unicodedata.normalize("NFC", place.relative_to(path).as_posix())
            state = place.lstat()
            files.append(SubmittedFile(name, state.st_size, place.read_bytes, stat.S_ISREG(state.st_mode)))
        yield _in_order(path, files)
        return
    if not path.is_file():
        raise InputError("no such file", file=path)
    try:
        archive = zipfile.ZipFile(path)
    except (zipfile.BadZipFile, ValueError, NotImplementedError) as error:
        raise InputError("is no .zip, or a part of it is missing", file=path, hint="download it again") from error
    with archive:
        entries = [entry for entry in archive.infolist() if not entry.is_dir()]
        unpacked = sum(entry.file_size for entry in entries)
        if unpacked > LARGEST_ALL:
            rule = f"unpacks to {unpacked / 1e9:,.1f} GB, and at most {LARGEST_ALL / 1e9:,.1f} are read"
            raise InputError(rule, file=path)
        yield _in_order(path, [_in_archive(path, archive, entry) for entry in entries])


def _walked(folder: Path) -> Iterator[Path]:
    """All files below a folder, and links to folders, which are not followed."""
    for above, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not _NOT_HANDED_IN.fullmatch(name))
        links = [name for name in folders if (Path(above) / name).is_symlink()]
        yield from (Path(above) / name for name in sorted([*names, *links]) if not _NOT_HANDED_IN.fullmatch(name))


def _in_archive(path: Path, archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> SubmittedFile:
    name = entry.filename
    if not entry.flag_bits & _UTF_8:
        with suppress(UnicodeError):  # a Mac writes UTF-8 without the flag
            name = name.encode("cp437").decode("utf-8")
    name = unicodedata.normalize("NFC", name.replace("\\", "/"))
    if name.startswith("/") or ":/" in name or ".." in name.split("/"):
        raise InputError(f"holds a file whose name leads out of it: {_shown(name)}", file=path)
    if entry.flag_bits & _ENCRYPTED:
        raise InputError("asks for a password", file=path, hint="unpack it, and name the folder")
    kind = stat.S_IFMT(entry.external_attr >> 16)
    return SubmittedFile(name, entry.file_size, partial(archive.read, entry), kind in (0, stat.S_IFREG))


def _in_order(path: Path, files: Sequence[SubmittedFile]) -> dict[str, SubmittedFile]:
    kept = [file for file in files if not any(map(_NOT_HANDED_IN.fullmatch, file.path.split("/")))]
    if not kept:
        raise InputError("holds no file", file=path)
    if len(kept) > MOST_FILES:
        raise InputError(f"holds {len(kept):,} files, and at most {MOST_FILES:,} are read", file=path)
    around = {file.path.split("/")[0] for file in kept}
    inside = {file.path.partition("/")[2] for file in kept}
    if len(around) == 1 and "" not in inside and len(handed_in(sorted(inside))[1]) > 1:
        kept = [file._replace(path=file.path.partition("/")[2]) for file in kept]
    of_path = {file.path: file for file in sorted(kept, key=lambda file: natural(file.path))}
    if len(of_path) < len(kept):
        repeated = next(name for name, count in Counter(file.path for file in kept).items() if count > 1)
        raise InputError(f"holds two files of one name: {_shown(repeated)}", file=path)
    return of_path


def _read(file: SubmittedFile, reader: DocumentReader) -> DocumentText:
    if not file.is_plain:
        return DocumentText("", "file_type", "it is a link, which is not followed")
    if file.size > LARGEST:
        words = f"it has {file.size / 1e6:,.0f} MB, and at most {LARGEST / 1e6:,.0f} are read"
        return DocumentText("", "file_too_large", words)
    try:
        content = file.content()
    except (zipfile.BadZipFile, NotImplementedError, EOFError, ValueError, zlib.error) as error:
        return DocumentText("", "file_damaged", f"it cannot be unpacked: {_shown(str(error))[:120]}")
    return reader.read(file.path, content)


def _shown(name: str) -> str:
    """A name as a message may show it."""
    return "".join(letter if letter.isprintable() else "\ufffd" for letter in name)


class SubmissionPlatform(NamedTuple):
    """A platform whose names of files are known."""

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
"""Here `student` holds the assignment, too, which all have in common and is taken off. A receipt, a .txt file of each
attempt, names the student and holds what was typed instead of handed in as a file."""
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
    """Where the platform has it."""
    paths: tuple[str, ...]
    """The files that count, in their order."""
    earlier: tuple[str, ...]
    """Those that a later attempt replaced."""
    receipts: tuple[str, ...] = ()
    """Blackboard's receipts among `paths`."""


def natural(text: str) -> list[tuple[int, int, str]]:
    """A key by which page 2 comes before page 10."""
    return [(0, int(part), "") if part.isdecimal() else (1, 0, part) for part in re.split(r"(\d{1,18})", text) if part]


def handed_in(paths: Sequence[str]) -> tuple[SubmissionPlatform | None, list[Handed]]:
    """The platform that most files are of, and each student with the files, in the order of the first ones.

    paths: of files, with / between their parts. A file that is not named by the platform is that of the folder which it
    lies in or, where it lies in none, of a student of its own name without the ending. Files of two ids, or two names,
    are never joined; of several attempts the last counts.
    """
    platform = None
    named = dict[str, re.Match[str]]()
    for candidate in PLATFORMS:
        matches = {path: match for path in paths if (match := candidate.names.fullmatch(path))}
        # anna_2026_11_essay.docx and ben_2026_11_essay.docx are no submissions of a student 2026.
        pairs = {(match["student"], match.groupdict().get("name")) for match in matches.values()}
        is_consistent = len(pairs) == len({student for student, _ in pairs})
        if 2 * len(matches) >= len(paths) and len(matches) > len(named) and is_consistent:
            platform, named = candidate, matches
    groups: dict[tuple[bool, str], list[str]] = defaultdict(list)
    for path in paths:
        place = PurePosixPath(path)
        owner = place.parts[0] if len(place.parts) > 1 else place.stem
        groups[path in named, named[path]["student"] if path in named else owner].append(path)
    students = [student for is_named, student in groups if is_named]
    # What all begin with, up to an underscore, is the assignment. Of a single one, up to its last underscore.
    common = os.path.commonprefix(students)  # noqa: RUF071 of ids, which are no paths
    common = common[: common.rfind("_") + 1] if platform is BLACKBOARD else ""
    handed = []
    for (is_named, student), mine in groups.items():
        if not is_named:
            handed.append(Handed(student, None, tuple(mine), ()))
            continue
        of = {path: named[path] for path in mine}
        counting = _counting(platform, of)
        earlier = tuple(path for path in mine if path not in counting)
        receipts = tuple(path for path in counting if platform is BLACKBOARD and of[path]["kind"])
        shown = f"Participant {student}" if platform is MOODLE else student.removeprefix(common)
        handed.append(Handed(shown, of[mine[0]].groupdict().get("name") or None, tuple(counting), earlier, receipts))
    return platform, handed


def _counting(platform: SubmissionPlatform | None, of: Mapping[str, re.Match[str]]) -> list[str]:
    """The files of a student's last attempt, in their order."""
    if platform is BLACKBOARD:
        last = max(match["attempt"] for match in of.values())
        return [path for path, match in of.items() if match["attempt"] == last]
    if platform is MOODLE:  # what was typed comes before what was attached
        return sorted(of, key=lambda path: (of[path]["kind"] != "onlinetext", natural(path)))
    # Canvas calls a file handed in anew essay-1.docx where essay.docx was there before.
    newest: dict[PurePosixPath, tuple[int, str]] = {}
    rests = {path: PurePosixPath(match["rest"] or path) for path, match in of.items()}
    for path, rest in rests.items():
        again = _RESUBMITTED.fullmatch(rest.stem)
        first = rest.with_stem(again["stem"]) if again else rest
        number = int(again["number"]) if again and first in rests.values() else 0
        key = first if number else rest
        newest[key] = max(newest.get(key, (0, path)), (number, path))
    counting = {path for _, path in newest.values()}
    return [path for path in of if path in counting]


def receipt_of(text: str, alone: bool) -> tuple[str | None, str | None, str]:
    """What is in Blackboard's receipt of an attempt: the student's id and name, and what was typed instead of handing
    in a file, '' for nothing. alone: whether no file was handed in with it: in another language than English what was
    typed can be told from the platform's words only where it is all there is."""
    owner = _WHO.match(text)
    typed = _TYPED.search(text) or (_SECTION.search(text) if alone else None)
    words = typed["text"].strip() if typed else ""
    student, name = (owner["student"], owner["name"] or None) if owner else (None, None)
    return student, name, "" if words == _NOTHING_TYPED else words

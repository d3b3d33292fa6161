"""Folders of essays, one file or several a student: a plain folder, a .zip of one, or what Moodle, Canvas and
Blackboard make where all submissions are downloaded.

Files are never unpacked to the disk; each is read by a process with limits (`document_reader`). Who wrote it is told by
its name (`submitters`).
"""

from __future__ import annotations

import os
import re
import stat
import unicodedata
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from rubricflow.tasks.core.contracts.errors import InputError
from rubricflow.tasks.core.store.cells import EssayCell
from rubricflow.tasks.core.store.document_reader import DocumentReader, DocumentText
from rubricflow.tasks.core.store.reshape import id_of
from rubricflow.tasks.core.store.sheets import ENDINGS
from rubricflow.tasks.core.store.submitters import Handed, SubmissionPlatform, handed_in, natural, receipt_of
from rubricflow.tasks.core.text.fold import folded
from rubricflow.tasks.core.text.letters import bare_of

COLUMNS = ("student", "name", "text", "files", "folder")
"""Of a folder of essays as a table: the student's id, the name where a platform tells it, the text of all files, the
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
    folder or .zip that cannot be read as a whole, see `opened_essays`.
    """
    with opened_essays(path) as files, DocumentReader() as reader:
        _, students = _handed_in(files)
        for student in students:
            read = {name: _read(files[name], reader) for name in student.paths}
            row, read = _with_receipts(student, read)
            student_id = row.student if row.student.isprintable() else id_of([row.student])
            names = "; ".join(map(_shown, row.paths))
            yield student_id, row.name and _shown(row.name), _cell(row, read), names, _shown(path.stem)


def essay_words(path: Path) -> str:
    """What a folder of essays is, in a line for people; no file is read. InputError as `opened_essays`."""
    with opened_essays(path) as files:
        platform, students = _handed_in(files)
    endings = Counter(PurePosixPath(name).suffix.lower() or "without an ending" for name in files)
    kinds = ", ".join(f"{count} {_shown(ending)}" for ending, count in endings.most_common())
    return f"{platform.title if platform else 'essays'}: {len(students)} students, {len(files)} files ({kinds})"


def essay_files(path: Path) -> list[Path]:
    """The files whose bytes tell whether a folder of essays has changed; a .zip is one itself."""
    return [path] if path.is_file() else [place for place in _walked(path) if _is_file(place)]


@contextmanager
def opened_essays(path: Path) -> Iterator[dict[str, SubmittedFile]]:
    """The files of a folder or .zip by their paths in it, in the order of these, numbers by their size.

    A folder around all others is left out of the paths. InputError where there is no file, for too many, and for a .zip
    that is damaged, asks for a password, unpacks to too much, has a name twice, or one that leads out of it.
    """
    if path.is_dir():
        yield _in_order(path, [_in_folder(path, place) for place in _walked(path)])
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


def _is_file(place: Path) -> bool:
    return stat.S_ISREG(place.lstat().st_mode)


def _in_folder(folder: Path, place: Path) -> SubmittedFile:
    name = unicodedata.normalize("NFC", place.relative_to(folder).as_posix())
    return SubmittedFile(name, place.lstat().st_size, place.read_bytes, _is_file(place))


def _in_archive(path: Path, archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> SubmittedFile:
    name = entry.filename
    if not entry.flag_bits & _UTF_8:
        with suppress(UnicodeError):  # a Mac writes UTF-8 and does not say so
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


def _handed_in(files: dict[str, SubmittedFile]) -> tuple[SubmissionPlatform | None, list[Handed]]:
    return handed_in(list(files))


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


def _with_receipts(student: Handed, read: dict[str, DocumentText]) -> tuple[Handed, dict[str, DocumentText]]:
    """What a receipt says in place of the receipt, which is no text of the student's."""
    kept = dict(read)
    for path in student.receipts:
        receipt = receipt_of(read[path].text, alone=len(read) == 1)
        student = student._replace(student=receipt.student or student.student, name=receipt.name or student.name)
        if receipt.typed or len(read) == 1:
            nothing = DocumentText("", "file_empty", "nothing was handed in with it")
            kept[path] = DocumentText(receipt.typed) if receipt.typed else nothing
        else:
            del kept[path]
    return student._replace(paths=tuple(kept)), kept


def _cell(student: Handed, read: dict[str, DocumentText]) -> EssayCell:
    """The text of a student's files, one after the other."""
    texts: dict[str, str] = {}
    for part in read.values():
        if part.reason is None:
            texts.setdefault(bare_of(folded(part.text)), part.text)
    unread = [(path, part) for path, part in read.items() if part.reason is not None]
    joined = f"{' + '.join(map(_shown, student.paths))}" if len(read) > 1 else None
    return EssayCell(
        text="\n\n".join(texts.values()),
        unread=unread[0][1].reason if unread else None,
        why="; ".join(f"{_shown(path)}: {part.words}" for path, part in unread) or None,
        joined=joined,
        replaced=", ".join(map(_shown, student.earlier)) or None,
    )


def _shown(name: str) -> str:
    """A name as a message may show it."""
    return "".join(letter if letter.isprintable() else "\ufffd" for letter in name)

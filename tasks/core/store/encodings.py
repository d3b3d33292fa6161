"""Which encoding a text file has: it says so by its mark, or it proves it, or it is guessed and that is said."""

from __future__ import annotations

import codecs
import re
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from charset_normalizer import from_bytes

from rubricflow.tasks.core.contracts.errors import InputError

BLOCK = 1 << 20
"""Bytes that are looked at together."""
SAMPLE = 1 << 18
"""Bytes with letters beyond ASCII that a guess is made from."""
_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
"""Byte order marks, the longer ones first."""
_NAMES = {"utf-8": "UTF-8", "utf-8-sig": "UTF-8", "utf-16": "UTF-16", "utf-32": "UTF-32"}
_NAMES |= {"utf-16-le": "UTF-16", "utf-16-be": "UTF-16", "cp1252": "Windows-1252", "mac_roman": "Mac Roman"}
_GUESSED = ("cp1252", "cp1250", "cp1251", "cp1253", "cp1254", "mac_roman", "shift_jis", "gb18030", "euc_kr", "big5")
"""What spreadsheets write that know no UTF-8."""
_HINT = "save it as 'CSV UTF-8', or name its encoding in the study: encoding: cp1252"


class TextEncoding(NamedTuple):
    """How the bytes of a file become text."""

    codec: str
    """Python's name of it."""
    guessed: bool
    """Whether nothing in the file proves it."""
    example: str | None
    """Of a guessed one: a word by which people see whether it is right."""

    @property
    def words(self) -> str:
        """What people are told."""
        name = _NAMES.get(self.codec, self.codec)
        if not self.guessed:
            return name
        example = f", which reads '{self.example}'" if self.example else ""
        return f"{name} (a guess, since it is no UTF-8{example}; 'encoding' in the study names another)"


def encoding_of(path: Path, named: str | None = None) -> TextEncoding:
    """The encoding of a text file: the one named, that of its byte order mark, UTF-8 where all of it is, UTF-16 where
    every other byte is nothing, and otherwise the likeliest of those that spreadsheets write.

    InputError for an unknown name, a file that is not in the encoding that is named or marked, and one of which a part
    is UTF-8 and another is not.
    """
    if named is not None:
        codec = _known(named, path)
        _refuse_undecodable(path, codec)
        return TextEncoding(codec, False, None)
    with path.open("rb") as file:
        head = file.read(4096)
    marked = next((codec for mark, codec in _MARKS if head.startswith(mark)), None) or _unmarked_utf_16(head)
    if marked is not None:
        _refuse_undecodable(path, marked)
        return TextEncoding(marked, False, None)
    if _first_undecodable(path, "utf-8") is None:
        return TextEncoding("utf-8", False, None)
    return _guess(path)


def decoded(content: bytes) -> str | None:
    """A short text without its byte order mark; None where no encoding of it is likely."""
    marked = next((codec for mark, codec in _MARKS if content.startswith(mark)), None) or _unmarked_utf_16(
        content[:4096]
    )
    for codec in filter(None, (marked, "utf-8")):
        with suppress(UnicodeDecodeError):
            return content.decode(codec)
    unusual = b"".join(line for line in content.splitlines(keepends=True) if not line.isascii())
    likely = _likeliest(unusual[:SAMPLE])
    return None if likely is None else content.decode(likely, errors="replace")


def _known(named: str, path: Path) -> str:
    try:
        "".encode(named)  # where the name is of no encoding of text, this says so too
    except (LookupError, UnicodeError, ValueError) as error:
        hint = "for example utf-8, utf-16, cp1252 or mac_roman"
        raise InputError(f"'{named}' is no encoding of text", file=path, field="encoding", hint=hint) from error
    name = codecs.lookup(named).name
    return "utf-8-sig" if name == "utf-8" else name


def _unmarked_utf_16(head: bytes) -> str | None:
    """UTF-16 without its mark: of Latin letters every second byte is NUL."""
    pairs = len(head) // 2
    for codec, start in (("utf-16-le", 1), ("utf-16-be", 0)):
        nothing = head[start : 2 * pairs : 2].count(0)
        letters = head[1 - start : 2 * pairs : 2].count(0)
        if pairs and nothing > 0.6 * pairs and letters < 0.1 * pairs:
            return codec
    return None


def _first_undecodable(path: Path, codec: str) -> int | None:
    """The line, from 1, that holds the first bytes which the codec does not know; None where it knows all."""
    decoder, line = codecs.getincrementaldecoder(codec)(), 1
    with path.open("rb") as file:
        while True:
            block = file.read(BLOCK)
            try:
                line += decoder.decode(block, final=not block).count("\n")
            except UnicodeDecodeError as error:
                readable = error.object[: error.start]
                return line + readable.decode(codec, errors="ignore").count("\n")
            if not block:
                return None


def _refuse_undecodable(path: Path, codec: str) -> None:
    line = _first_undecodable(path, codec)
    if line is not None:
        name = _NAMES.get(codec, codec)
        raise InputError(f"is not {name}: line {line} holds bytes that stand for no letter", file=path, hint=_HINT)


def _guess(path: Path) -> TextEncoding:
    """The likeliest encoding of a file that is no UTF-8; InputError where a part of it is."""
    sample = _unusual_lines(path)
    text = sample.decode("utf-8", errors="surrogateescape")
    single = sum("\udc80" <= letter <= "\udcff" for letter in text)
    joined = sum(letter > "\x7f" for letter in text) - single
    if joined >= single:
        line = _first_undecodable(path, "utf-8")
        rule = f"is UTF-8 but for line {line}, which holds bytes of another encoding"
        raise InputError(rule, file=path, hint="was something pasted there? Write that line anew")
    codec = _likeliest(sample)
    line = None if codec is None else _first_undecodable(path, codec)
    if codec is None or line is not None:
        line = _first_undecodable(path, "utf-8")
        raise InputError(f"is not UTF-8: line {line}, and no other encoding is likely", file=path, hint=_HINT)
    return TextEncoding(codec, True, _word(sample.decode(codec, errors="replace")))


def _likeliest(sample: bytes) -> str | None:
    """What Windows or a Mac writes where it makes Western words of the bytes; else what the statistics say."""
    for codec in ("cp1252", "mac_roman"):
        if _reads_western(sample, codec):
            return codec
    best = from_bytes(sample, cp_isolation=list(_GUESSED)).best()
    return None if best is None else str(best.encoding)


def _reads_western(sample: bytes, codec: str) -> bool:
    """Whether the letters beyond ASCII are mostly those of Western languages, among which they are not the most."""
    try:
        text = sample.decode(codec)
    except UnicodeDecodeError:
        return False
    unusual = [letter for letter in text if letter > "\x7f"]
    frequent = sum(letter in _WESTERN for letter in unusual)
    return frequent >= 0.8 * len(unusual) and len(unusual) < 0.6 * sum(map(str.isalpha, text))


_WESTERN = frozenset("äöüÄÖÜßéèêëàâáãåçîïíñóòôõøæÉÀÇÑÅØÆœŒùûúý–—‘’‚“”„…€§°«»·•²³½¼×±µ¿¡´\u00a0")
"""Letters and signs beyond ASCII that are frequent in Western texts."""


def _unusual_lines(path: Path) -> bytes:
    """Lines that are not ASCII, up to a sample's size."""
    lines: list[bytes] = []
    size = 0
    with path.open("rb") as file:
        for line in file:
            if not line.isascii():
                lines.append(line[:BLOCK])
                size += len(line)
            if size > SAMPLE:
                break
    return b"".join(lines)


def _word(text: str) -> str | None:
    """The first word with a letter beyond ASCII."""
    words = (word for word in re.split(r"\W+", text) if not word.isascii())
    return next((word[:30] for word in words if word.isprintable()), None)

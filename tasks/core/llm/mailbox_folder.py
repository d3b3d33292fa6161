"""A mailbox: a folder with the requests of each wave, cut into files, and the answers that somebody brought.

Together with the reply store it is the whole state. `mailbox.json` lists the files that asked, each with the digests of
its requests; answers are all files under `answers`, and are read anew each time. A file of which no answer came is
still under way; of one of which some came, what is missing is asked again in the next wave.
"""

from __future__ import annotations

import fcntl
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from rubricflow.tasks.core.contracts.errors import InputError, UserError
from rubricflow.tasks.core.llm import plain
from rubricflow.tasks.core.llm.mailbox import NotedRequest
from rubricflow.tasks.core.llm.reply_store import Replies
from rubricflow.tasks.core.llm.request import Reply, ReplySource
from rubricflow.tasks.core.store.files import cannot_write, file_digest, write_atomically

INDEX, ANSWERS, PLAIN = "mailbox.json", "answers", "plain"
CHARACTERS_PER_TOKEN = 4
_SHOWN = 20
"""Answers that are named one by one, of each kind."""
_SUFFIXES = (".jsonl", ".json", ".ndjson", ".md", ".markdown", ".txt")
_VERSION = 1
_NOTES = {
    "unreadable": "cannot be read",
    "unknown": "answer another prompt, which this study does not ask",
    "old": "answer what was asked once and is not asked any more",
    "twice": "are there twice, the same",
    "differs": "differ from another answer to the same request",
    "other model": "are of another model",
    "cut": "are cut off; they are kept as they are",
    "no text": "hold no reply, and stay so",
    "failed": "failed, and are asked again",
}
"""What an answer may be beside a reply → what is said of several."""


class Limits(NamedTuple):
    """The most that a file of requests may hold."""

    requests: int
    bytes: int
    tokens: int


PLAIN_LIMITS = Limits(requests=1_000, bytes=4_000_000, tokens=100_000)
"""What a model that reads files, or a person, can have before them at once."""


class AskedFile(NamedTuple):
    """A file of requests."""

    name: str
    """Without its suffix: `wave-2-part-1`."""
    wave: int
    form: str
    model: str
    """The model's name, as a provider knows it."""
    digests: tuple[str, ...]


@dataclass(frozen=True)
class Brought:
    """An answer as it lies in a file."""

    place: str
    """File and line."""
    id: str | None
    content: str | Mapping[str, Any]
    """The reply's text, or what is wrong with the line where there is no id; a provider's answer."""
    source: ReplySource


class Mailbox:
    """The folder, read; see `opened`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.files = _read_index(folder / INDEX)
        self.errors: dict[str, Reply] = {}
        """Digest → the error with which its request was answered, and which stays."""
        self._brought = [
            brought
            for path in sorted((folder / ANSWERS).rglob("*"))
            for brought in _read(path, folder)
            if path.is_file()
        ]
        self._notes: dict[int, tuple[str, str]] = {}
        """Answer, by its number → what it is beside a reply, and more words about it."""
        self._taken: dict[str, Reply] = {}
        self._asked = {key for file in self.files for key in file.digests}

    # What came.

    def take(self, noted: Mapping[str, NotedRequest], replies: Replies) -> int:
        """Puts the answers to what is asked into the reply store; how many there were."""
        self._asked |= noted.keys()
        by_key: dict[str, list[int]] = {}
        for number, brought in enumerate(self._brought):
            key = self._resolved(brought.id)
            if key is not None and key in noted:
                by_key.setdefault(key, []).append(number)
        new: list[tuple[str, str, Reply]] = []
        before = len(self.errors)
        for key, numbers in by_key.items():
            reply = self._chosen(noted[key], numbers)
            if reply is not None and reply.error is None:
                new.append((key, noted[key].model, reply))
            elif reply is not None:
                self.errors[key] = reply
        replies.put_many(new)
        self._taken |= {key: reply for key, _, reply in new}
        return len(new) + len(self.errors) - before

    def _chosen(self, noted: NotedRequest, numbers: list[int]) -> Reply | None:
        """Of the answers to a request the one that counts; notes what is odd about each."""
        chosen: Reply | None = None
        for number in numbers:
            brought = self._brought[number]
            other = brought.source.model and not is_same_model(noted.engine.model, brought.source.model)
            reply = None if other else _reply(brought)
            if other:
                self._notes[number] = "other model", f"{brought.source.model}, not {noted.engine.model}"
            elif reply is None:
                self._notes[number] = "failed", "no text"
            elif chosen is None:
                chosen, first = reply, number
                if reply.error is not None:
                    self._notes[number] = "no text", reply.error
                elif reply.text is not None and reply.text.count("{") > reply.text.count("}"):
                    self._notes[number] = "cut", f"… {reply.text[-40:]!r}"
            elif reply.text == chosen.text:
                self._notes[number] = "twice", self._brought[first].place
            else:
                self._notes[number] = "differs", f"{self._brought[first].place}; none of them is taken"
                self._notes[first] = "differs", f"{brought.place}; none of them is taken"
                return None
        return chosen

    def _resolved(self, name: str | None) -> str | None:
        """The digest that an id is the beginning of, among all that was ever asked."""
        if name is None or len(name) < plain.ID:
            return None
        if name in self._asked:
            return name
        fitting = [key for key in self._asked if key.startswith(name)]
        return fitting[0] if len(fitting) == 1 else None

    def notes(self, noted: Mapping[str, NotedRequest], replies: Replies) -> Iterator[str]:
        """What is odd about the answers, in lines. noted: what is open in the end."""
        keys = [self._resolved(brought.id) for brought in self._brought]
        standing = replies.get_many(key for key in keys if key is not None and key not in self._taken) | self._taken
        for number, (key, brought) in enumerate(zip(keys, self._brought, strict=True)):
            if number in self._notes:
                continue
            if brought.id is None:
                self._notes[number] = "unreadable", str(brought.content)
            elif key is None:
                self._notes[number] = "unknown", brought.id
            elif key in standing:
                if isinstance(brought.content, str) and brought.content != standing[key].text:
                    self._notes[number] = "differs", "the first one stays"
            elif key not in noted and key not in self.errors:
                self._notes[number] = "old", brought.id
        counts = Counter(kind for kind, _ in self._notes.values())
        for kind, words in _NOTES.items():
            if counts[kind]:
                yield f"{counts[kind]:,} answers {words}:"
                mine = [number for number in sorted(self._notes) if self._notes[number][0] == kind]
                for number in mine[:_SHOWN]:
                    brought = self._brought[number]
                    yield f"  {brought.place}: {(brought.id or '')[: plain.ID]} {self._notes[number][1]}".rstrip()
                if len(mine) > _SHOWN:
                    yield f"  … and {len(mine) - _SHOWN:,} more"

    # What is asked.

    def under_way(self, noted: Mapping[str, NotedRequest]) -> list[AskedFile]:
        """The files to which no answer came."""
        came = {self._resolved(brought.id) for brought in self._brought}
        return [file for file in self.files if all(key in noted and key not in came for key in file.digests)]

    def missing(self, noted: Mapping[str, NotedRequest]) -> list[tuple[AskedFile, list[str]]]:
        """Of each file of which some answers came the requests without one."""
        waiting = self.under_way(noted)
        came = {self._resolved(brought.id) for brought in self._brought}
        lacking = [(file, [key for key in file.digests if key in noted and key not in came]) for file in self.files]
        return [(file, keys) for file, keys in lacking if keys and file not in waiting]

    def write_wave(self, noted: Mapping[str, NotedRequest], form: str) -> list[AskedFile]:
        """Writes what is open and not under way as the files of a new wave, and then their entries in the index; none
        where nothing is left to ask."""
        there = {key for file in self.under_way(noted) for key in file.digests}
        open_ = {key: one for key, one in noted.items() if key not in there}
        parts = list(_parts(open_, PLAIN_LIMITS))
        wave = 1 + max((file.wave for file in self.files), default=0)
        new = []
        for number, part in enumerate(parts, 1):
            name = f"wave-{wave}" + (f"-part-{number}" if len(parts) > 1 else "")
            model = next(iter(part.values())).engine.model
            for suffix, content in (("jsonl", plain.as_lines), ("md", plain.as_markdown)):
                write_atomically(self.folder / f"{name}.{suffix}", content(part, model).encode())
            new.append(AskedFile(name, wave, form, model, tuple(part)))
        (self.folder / ANSWERS).mkdir(parents=True, exist_ok=True)
        if new:
            self.files += new
            entries = [file._asdict() for file in self.files]
            write_atomically(
                self.folder / INDEX, json.dumps({"version": _VERSION, "files": entries}, indent=1).encode()
            )
        return new


@contextmanager
def opened(folder: Path) -> Iterator[Mailbox]:
    """The mailbox, for one process at a time; InputError for a folder with a broken index."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / ".lock").open("w")
    except OSError as error:
        raise cannot_write(folder, error) from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise UserError(f"{folder}: another process works on this mailbox; wait for it, or stop it") from error
        yield Mailbox(folder)


def tokens_of(noted: Mapping[str, NotedRequest], form: str) -> tuple[int, int]:
    """Tokens of the prompts, roughly, as a form has them, and the most of their replies."""
    requests = [one.request for one in noted.values()]
    characters = sum(request.prompt_length for request in requests)
    if form == PLAIN:  # the system prompts stand there once
        systems = Counter(request.content_of("system") or "" for request in requests)
        characters -= sum(len(system) * (count - 1) for system, count in systems.items())
    return characters // CHARACTERS_PER_TOKEN, sum(request.sampling.longest for request in requests)


def is_same_model(asked: str, named: str) -> bool:
    """Whether an answer names the model that was asked, with its version or without: `gpt-5-2026-01-05` is `gpt-5`, and
    `gpt-5-mini` is not."""
    wanted, said = (name.strip().lower().rstrip("/").rpartition("/")[2] for name in (asked, named))
    wanted = wanted.removesuffix("-latest")
    more = said.removeprefix(wanted)
    return said == wanted or (
        more != said and more[0] in "-@:." and any(c.isdigit() for c in more.split("-")[1:2] or more)
    )


def _parts(noted: Mapping[str, NotedRequest], limits: Limits) -> Iterator[dict[str, NotedRequest]]:
    """The requests in parts that keep the limits, each for one model."""
    by_model: dict[str, dict[str, NotedRequest]] = {}
    for key, one in noted.items():
        by_model.setdefault(one.model, {})[key] = one
    for mine in by_model.values():
        part: dict[str, NotedRequest] = {}
        size = tokens = 0
        systems = set[str]()
        for key, one in mine.items():
            system = one.request.content_of("system") or ""
            shared = 0 if system in systems else 2 * len(system.encode("utf-8", "replace"))
            takes = plain.size_of(one) + shared
            wants = (one.request.prompt_length - len(system) * (system in systems)) // CHARACTERS_PER_TOKEN
            if part and (len(part) >= limits.requests or size + takes > limits.bytes or tokens + wants > limits.tokens):
                yield part
                part, size, tokens, systems = {}, 0, 0, set()
            part[key] = one
            size, tokens, systems = size + takes, tokens + wants, systems | {system}
        yield part


def _read_index(path: Path) -> list[AskedFile]:
    try:
        record = json.loads(path.read_bytes())
        if record["version"] != _VERSION:
            raise ValueError(f"it is of version {record['version']}, and this one reads {_VERSION}")
        return [AskedFile(**entry | {"digests": tuple(entry["digests"])}) for entry in record["files"]]
    except FileNotFoundError:
        return []
    except (OSError, ValueError, TypeError, KeyError) as error:
        hint = "take another folder; what is in the reply store is not asked again"
        raise InputError(f"is no index of a mailbox: {error}", file=path, hint=hint) from error


def _read(path: Path, folder: Path) -> Iterator[Brought]:
    """The answers of a file; others than of text are left alone."""
    if not path.is_file() or path.suffix.lower() not in _SUFFIXES:
        return
    name = path.relative_to(folder)
    written = datetime.fromtimestamp(path.stat().st_mtime, UTC).isoformat(timespec="seconds")
    source = ReplySource(PLAIN, None, None, file_digest(path), written)
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        yield Brought(f"{name}, line 1", None, f"is not UTF-8: {error.reason}", source)
        return
    for answer in plain.read_answers(text):
        yield Brought(f"{name}, line {answer.line}", answer.id, answer.text, replace(source, model=answer.model))


def _reply(brought: Brought) -> Reply | None:
    """The reply that an answer is; None where it has none and is to be asked again."""
    assert isinstance(brought.content, str)
    return Reply(text=brought.content, source=brought.source) if brought.content else None

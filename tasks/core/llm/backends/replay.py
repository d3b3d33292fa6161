"""Answers with replies that were given before: a read-only reply store, a file of recorded replies or a foreign table.

A file of recorded replies is one compressed Parquet file of what models said to a run, with where it comes from: a row
per request; its metadata hold the sealed header, which covers the digest of every row.
"""

from __future__ import annotations

import json
from abc import abstractmethod
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
from pydantic import ValidationError

from rubricflow.tasks.core.contracts.backends import Choice
from rubricflow.tasks.core.contracts.errors import InputError, StoreError, first_line
from rubricflow.tasks.core.contracts.schema import Frozen
from rubricflow.tasks.core.contracts.settings.engine import Sampling
from rubricflow.tasks.core.llm.backend import Answers, Backend, KeyOf
from rubricflow.tasks.core.llm.reply_store import Replies
from rubricflow.tasks.core.llm.request import Reply, Request, digest
from rubricflow.tasks.core.store.files import digest_of, sealed, unsealed, write_atomically
from rubricflow.tasks.core.store.part import as_parquet, open_parquet
from rubricflow.tasks.core.text.digest import text_digest, without_half_pairs

FORMAT = 1
_HEADER = b"rubricflow.recording"
_ROWS = pa.schema([(name, pa.string()) for name in ("request_digest", "subject", "instructions", "prompt", "reply")])
_MISSING = "not_recorded: "


class UnansweredError(StoreError):
    """A request that should have been answered before has no reply in the store."""


def open_backend(choice: Choice, base: Path, replies: Replies, key_of: KeyOf) -> Replay | Recorded:
    """The replies of the model that the settings name; InputError where they name none."""
    if choice.replies is not None:
        recording = read_recording(base / choice.replies)
        return Recorded(recording, recording.speaker(choice.model))
    return Replay(replies, model_of(choice, base))


def model_of(choice: Choice, base: Path) -> str:
    """The model that the settings name; InputError where they name none."""
    if choice.replies is not None:
        return read_recording(base / choice.replies).speaker(choice.model).model
    if choice.model is None:
        rule = "backend 'replay' needs a model, a file of recorded replies, or a foreign table of replies"
        raise InputError(rule, field="judge.model")
    return choice.model


class _OneByOne(Backend):
    """A backend that knows its replies and gives them in order."""

    name = "replay"

    def answer(self, requests: Sequence[Request]) -> Answers:
        for index, request in enumerate(requests):
            yield index, self.reply_to(request)

    @abstractmethod
    def reply_to(self, request: Request) -> Reply:
        """The reply to a request."""


class Replay(_OneByOne):
    """Backend over a reply store; what it does not hold is the error 'not_recorded'."""

    def __init__(self, store: Replies, model: str) -> None:
        """model: the model whose replies were recorded."""
        self.model, self._store = model, store

    def reply_to(self, request: Request) -> Reply:
        key = digest(request, self.model)
        missing = f"{_MISSING}the reply store holds no reply of '{self.model}' to request {key[:12]}…"
        return self._store.get_many([key]).get(key) or Reply(error=missing)


class Recorded(_OneByOne):
    """Backend over a file of recorded replies. A request that the file does not hold ends the run with an InputError
    that counts all such requests: a score that rests on a part of the replies would be another score."""

    batch_size = 1 << 30

    def __init__(self, recording: Recording, speaker: Speaker, mends: bool = False) -> None:
        """mends: whether it gives the replies of who mended the speaker's."""
        self.model = speaker.mender or speaker.model if mends else speaker.model
        self._recording, self._speaker = recording, speaker

    def answer(self, requests: Sequence[Request]) -> Answers:
        if missing := [request for request in requests if digest(request, self.model) not in self._recording]:
            raise self._recording.refuse(missing, len(requests), self._speaker)
        yield from super().answer(requests)

    def reply_to(self, request: Request) -> Reply:
        return self._recording.reply(digest(request, self.model))


class ForeignReplay(_OneByOne):
    """Backend over raw replies that somebody else recorded, by the request's subject and, of repeated ones, its seed.

    A reader turns the raw text into the artifact that was asked for; what it cannot read stays as it is, so that the
    check names what is wrong with it. What the table does not hold is the error 'not_recorded'.
    """

    reads_prose, by_subject = False, True

    def __init__(
        self,
        table: Mapping[str, str],
        model: str,
        read: Callable[[str, Request], str | None],
        repeated: Mapping[tuple[str, int], str] | None = None,
    ) -> None:
        """model: must name the judge, the table's content and how `read` reads it, since all three change replies.
        repeated: in place of the table, replies by the request's subject and seed."""
        self.model = model
        self._table, self._read, self._repeated = table, read, repeated

    def reply_to(self, request: Request) -> Reply:
        if self._repeated is None:
            raw = self._table.get(request.subject)
        else:
            raw = self._repeated.get((request.subject, request.sampling.seed))
        if raw is None:
            return Reply(error=f"{_MISSING}the table holds no reply about '{request.subject}'")
        artifact = self._read(raw, request)
        return Reply(text=raw if artifact is None else artifact)


class AskedByWorkers(_OneByOne):
    """Backend of who reads what workers asked: their replies are in the store, and what failed for them fails here in
    the same words. Any other request is an UnansweredError: it was not asked, or into another store."""

    name = "asked by workers"

    def __init__(self, model: str, errors: Mapping[str, str], place: str) -> None:
        """model: that workers asked. errors: by a request's digest. place: of the reply store, for people."""
        self.model = model
        self._errors, self._place = errors, place

    def reply_to(self, request: Request) -> Reply:
        if error := self._errors.get(digest(request, self.model)):
            return Reply(error=error)
        rule = f"the replies in {self._place} are not all there"
        raise UnansweredError(f"{rule}: name a reply store that all workers write to; the same command goes on")


# Files of recorded replies.


class Speaker(Frozen):
    """A model that answered, and how it was asked."""

    who: str
    """Whose part it has: 'judge', 'graph', or the name of an annotator."""
    name: str
    """The model's name."""
    weights: str | None
    """Digest of its files; null where they are not known, as behind a server."""
    model: str
    """Its identity, which every digest of a request to it covers."""
    mender: str | None
    """Identity of who mended its replies; null where it did so itself."""
    structured: bool
    """Whether it was held to the contract's schema."""
    logprobs: int
    """Alternatives that it reported for each token."""
    sampling: Sampling
    """How its replies were drawn."""


class Header(Frozen):
    """Where recorded replies come from."""

    format: int = FORMAT
    """Counts changes of the file's form."""
    run_id: str
    """The run that they were given to."""
    recorded: str
    """When it finished, as ISO 8601."""
    speakers: tuple[Speaker, ...]
    """Who gave them."""
    versions: dict[str, str]
    """Of Python and the libraries."""
    replies: int = 0
    """How many there are."""
    errors: int = 0
    """Requests to which there was none, and why is recorded in its place."""
    content: str = ""
    """Digest of all rows."""

    @property
    def in_words(self) -> str:
        """Date and models in words: 'replies recorded on 2026-11-22 from Qwen2.5 (judge)'."""
        names = dict.fromkeys(speaker.name for speaker in self.speakers)
        return f"replies recorded on {self.recorded[:10]} from {', '.join(names)}"


class RecordedCall(NamedTuple):
    """A request and what came back. The digest of a request covers all of it; the other parts only tell which one
    differs where a request is not among the recorded ones."""

    request_digest: str
    subject: str | None
    instructions: str | None
    prompt: str | None
    reply: str


class Recording:
    """A file of recorded replies, read."""

    def __init__(self, path: Path, header: Header, lines: Sequence[RecordedCall]) -> None:
        self.path, self.header = path, header
        self._replies = {line.request_digest: line.reply for line in lines}
        self._shown: defaultdict[str, set[tuple[str | None, str | None]]] = defaultdict(set)
        for line in lines:
            if line.subject is not None:
                self._shown[line.subject].add((line.instructions, line.prompt))

    def __contains__(self, request_digest: str) -> bool:
        return request_digest in self._replies

    def reply(self, request_digest: str) -> Reply:
        """What came back to a request; KeyError where it was never asked."""
        return Reply.from_json(self._replies[request_digest])

    def speaker(self, model: str | None = None) -> Speaker:
        """The one of this name or identity, or the judge; InputError where it is not told who is meant."""
        speakers = self.header.speakers
        fitting = [speaker for speaker in speakers if model in (None, speaker.who, speaker.name, speaker.model)]
        judges = [speaker for speaker in fitting if speaker.who == "judge"] or fitting
        if len(judges) == 1:
            return judges[0]
        names = ", ".join(f"{speaker.who} ({speaker.name})" for speaker in speakers)
        rule = f"has no replies of '{model}'" if model else "has replies of several models; name one of them"
        raise InputError(rule, file=self.path, field="model", hint=f"there are {names}")

    def refuse(self, missing: Sequence[Request], requests: int, speaker: Speaker) -> InputError:
        """The error that says how many of so many requests have no reply, what differs in them, and what to do."""
        counts = Counter(self._differing(request, speaker) for request in missing)
        reasons = "; ".join(f"{count:,} {why}" for why, count in counts.most_common())
        rule = f"it holds no reply to {len(missing):,} of {requests:,} requests: {reasons}"
        again = "record anew: rubricflow grade STUDY --model MODEL [--url URL], then rubricflow replies --to FILE"
        return InputError(rule, file=self.path, hint=again)

    def _differing(self, request: Request, speaker: Speaker) -> str:
        """What sets a request apart from the recorded ones about its subject."""
        shown = self._shown.get(request.subject)
        if shown is None:
            return "about responses that were not there when it was recorded"
        instructions = fingerprint(request.content_of("system"))
        prompt = fingerprint(request.content_of("user"))
        if all(instructions != recorded for recorded, _ in shown):
            return "with other instructions (the rubric, or the prompt's wording)"
        if (instructions, prompt) not in shown:
            return "with another message about the response (its text, what memory shows, or what is to be mended)"
        if request.sampling != speaker.sampling:
            now = request.sampling.model_dump()
            then = speaker.sampling.model_dump()
            odd = (f"{name} {new}, recorded with {then[name]}" for name, new in now.items() if new != then[name])
            return f"with another sampling ({', '.join(odd)})"
        return "under another contract (its schema, log-probabilities or the model)"


def fingerprint(text: str | None) -> str | None:
    """Enough of a digest to tell two texts apart; the same for a text and for what a table can hold of it."""
    return None if text is None else text_digest(without_half_pairs(text))[:16]


def write_recording(path: Path, header: Header, lines: Iterable[RecordedCall]) -> Header:
    """Write the file; returns its header, whose counts and digest are made of the lines. StoreError if it cannot."""
    ordered = sorted(lines)
    errors = sum("error" in json.loads(line.reply) for line in ordered)
    counts = {"format": FORMAT, "replies": len(ordered) - errors, "errors": errors, "content": digest_of(ordered)}
    header = header.model_copy(update=counts)
    table = pa.table([list(column) for column in zip(*ordered, strict=True)], schema=_ROWS)
    metadata = {_HEADER: sealed(header.model_dump(mode="json"))}
    write_atomically(path, as_parquet(table.replace_schema_metadata(metadata)))
    return header


def read_recording(path: Path) -> Recording:
    """A file of recorded replies; InputError where it is none, or was changed since it was written."""
    try:
        stat = path.stat()
    except OSError as error:
        hint = "rubricflow replies RUN --to FILE records those of a run"
        raise InputError("there is no such file of recorded replies", file=path, hint=hint) from error
    return _read(path, (stat.st_ino, stat.st_size, stat.st_mtime_ns))


@lru_cache(maxsize=8)
def _read(path: Path, state: tuple[int, int, int]) -> Recording:
    try:
        with open_parquet(path) as file:
            table = file.read()
        record = unsealed((table.schema.metadata or {})[_HEADER])
        if record.get("format") != FORMAT:
            form = record.get("format")
            raise ValueError(f"it has form {form}, and this version reads {FORMAT}; use another version")
        header = Header.model_validate(record)
        lines = [RecordedCall(*row.values()) for row in table.select(_ROWS.names).cast(_ROWS).to_pylist()]
    except KeyError as error:
        raise InputError("it is no file of recorded replies", file=path) from error
    except (OSError, pa.ArrowException) as error:
        raise InputError(f"it cannot be read: {first_line(error)}", file=path) from error
    except ValidationError as error:
        reason = error.errors()[0]["msg"]
        raise InputError(f"its header is not of this version: {reason}", file=path) from error
    except ValueError as error:
        raise InputError(str(error), file=path) from error
    if digest_of(lines) != header.content:
        raise InputError("its replies were changed since they were recorded", file=path)
    return Recording(path, header, lines)


def as_lines(
    attempts: Iterable[Mapping[str, str | None]], replies: Mapping[str, Reply]
) -> tuple[list[RecordedCall], set[str]]:
    """(a line for each request, the digests of those without any reply).

    attempts: rows of that table (request_digest, response_id, system, prompt, error), some cells null; replies: by
    digest. Where the same request met an error first and was answered later, the answer counts.
    """
    lines = {}
    lost: set[str] = set()
    for row in attempts:
        key = str(row["request_digest"])
        error = row["error"]
        reply = replies.get(key) or (Reply(error=error) if error else None)
        if reply is None:
            lost.add(key)
            continue
        parts = row["response_id"], fingerprint(row["system"]), fingerprint(row["prompt"])
        lines[key] = RecordedCall(key, *parts, reply.to_json())
    return list(lines.values()), lost

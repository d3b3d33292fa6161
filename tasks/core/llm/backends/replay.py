"""Answers with what was said before: the reply store read-only, a file of recorded replies, or a foreign table."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from rubricflow.tasks.core.contracts.backends import Choice
from rubricflow.tasks.core.contracts.errors import InputError, StoreError
from rubricflow.tasks.core.llm.opening import KeyOf
from rubricflow.tasks.core.llm.recording import Recording, Speaker, read_recording
from rubricflow.tasks.core.llm.reply_store import Replies
from rubricflow.tasks.core.llm.request import Reply, Request, digest

_MISSING = "not_recorded: "


class UnansweredError(StoreError):
    """A request that should have been answered before has no reply in the store."""


def opened(choice: Choice, base: Path, replies: Replies, key_of: KeyOf) -> Replay | Recorded:
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


class Replay:
    """Backend over a reply store; what it does not hold is the error 'not_recorded'."""

    name = "replay"
    reads_prose = True
    batch_size = 1024
    by_subject = False

    def __init__(self, store: Replies, model: str) -> None:
        """model: the model whose replies were recorded."""
        self.model = model
        self._store = store

    def answer(self, requests: Sequence[Request]) -> Iterator[tuple[int, Reply]]:
        """Yields in order."""
        digests = [digest(request, self.model) for request in requests]
        stored = self._store.get_many(digests)
        for index, key in enumerate(digests):
            missing = f"{_MISSING}the reply store holds no reply of '{self.model}' to request {key[:12]}…"
            yield index, stored.get(key) or Reply(error=missing)


class Recorded:
    """Backend over a file of recorded replies. A request that the file does not hold ends the run with an InputError
    that counts all such requests: a score that rests on a part of the replies would be another score."""

    name = "replay"
    reads_prose = True
    batch_size = 1 << 30
    by_subject = False

    def __init__(self, recording: Recording, speaker: Speaker, mends: bool = False) -> None:
        """mends: whether it gives the replies of who mended the speaker's."""
        self.model = speaker.mender or speaker.model if mends else speaker.model
        self._recording, self._speaker = recording, speaker

    def answer(self, requests: Sequence[Request]) -> Iterator[tuple[int, Reply]]:
        """Yields in order."""
        digests = [digest(request, self.model) for request in requests]
        by_digest = zip(digests, requests, strict=True)
        if missing := [request for key, request in by_digest if key not in self._recording]:
            raise self._recording.refuse(missing, len(requests), self._speaker)
        yield from ((index, self._recording.reply(key)) for index, key in enumerate(digests))


class ForeignReplay:
    """Backend over raw replies that somebody else recorded, by the request's subject.

    A reader turns the raw text into the artifact that was asked for; what it cannot read stays as it is, so that the
    check names what is wrong with it. What the table does not hold is the error 'not_recorded'.
    """

    name = "replay"
    reads_prose = False
    batch_size = 1024
    by_subject = True

    def __init__(self, table: Mapping[str, str], model: str, read: Callable[[str, Request], str | None]) -> None:
        """model: must name the judge, the table's content and how `read` reads it, since all three change replies."""
        self.model = model
        self._table, self._read = table, read

    def answer(self, requests: Sequence[Request]) -> Iterator[tuple[int, Reply]]:
        """Yields in order."""
        for index, request in enumerate(requests):
            raw = self._table.get(request.subject)
            if raw is None:
                yield index, Reply(error=f"{_MISSING}the table holds no reply about '{request.subject}'")
            else:
                artifact = self._read(raw, request)
                yield index, Reply(text=raw if artifact is None else artifact)


class AskedByWorkers:
    """Backend of who reads what workers asked: their replies are in the store, and what failed for them fails here in
    the same words. Any other request is an UnansweredError: nobody has asked it, or into another store."""

    name = "asked by workers"
    reads_prose = True
    batch_size = 1024
    by_subject = False

    def __init__(self, model: str, errors: Mapping[str, str], place: str) -> None:
        """model: that workers asked. errors: by a request's digest. place: of the reply store, for people."""
        self.model = model
        self._errors, self._place = errors, place

    def answer(self, requests: Sequence[Request]) -> Iterator[tuple[int, Reply]]:
        """Yields in order."""
        for index, request in enumerate(requests):
            error = self._errors.get(digest(request, self.model))
            if error is None:
                rule = f"the replies in {self._place} are not all there"
                raise UnansweredError(f"{rule}: name a reply store that all workers write to; the same command goes on")
            yield index, Reply(error=error)

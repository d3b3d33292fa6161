"""A mailbox: a folder with the requests of each wave, cut into files, and the answers that somebody brought.

Together with the reply store it is the whole state. `mailbox.json` lists the files that asked, each with the digests of
its requests; answers are all files under `answers`, and are read anew each time. A file of which no answer came is
still under way; of one of which some came, what is missing is asked again in the next wave.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from rubricflow.tasks.core.contracts.errors import InputError
from rubricflow.tasks.core.contracts.settings.engine import Engine
from rubricflow.tasks.core.llm.budget import most_tokens
from rubricflow.tasks.core.llm.forms import FORMS
from rubricflow.tasks.core.llm.mailbox import Noted, NotedRequest
from rubricflow.tasks.core.llm.mailbox_files import (
    CHARACTERS_PER_TOKEN,
    ID,
    PLAIN,
    Brought,
    contents,
    is_passing,
    is_same_model,
    parts,
    read_brought,
)
from rubricflow.tasks.core.llm.prices import Rates, TokenCounts, price_of
from rubricflow.tasks.core.llm.reply_store import Replies
from rubricflow.tasks.core.llm.request import Reply
from rubricflow.tasks.core.store.files import digest_of, locked, write_atomically

INDEX, ANSWERS = "mailbox.json", "answers"
TRIES = 3
"""Files in which a request is asked, after which an error that might pass stays."""
_SHOWN = 20
"""Answers that are named one by one, of each kind."""
_VERSION = 2
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
"""What may be the matter with an answer → what is said of several."""


Note = tuple[str, Brought, str]
"""What is the matter with an answer, the answer, and more words about it."""


class AskedFile(NamedTuple):
    """A file of requests."""

    name: str
    """Without its suffix: `wave-2-part-1`."""
    wave: int
    form: str
    model: str
    """The model's name, as a provider knows it."""
    digests: tuple[str, ...]
    before: dict[str, int]
    """Digest → how many answers to it were there already, such as those that failed; the others had none."""
    most: tuple[tuple[int, int], ...]
    """Tokens of prompt and reply that each request takes at most."""
    rates: tuple[Rates, ...] | None
    """What the model's tokens cost in this form when it was written, by the length of prompts; None if nobody said."""
    sent: str | None = None
    """When it was to be sent to its provider, as ISO 8601; None for a file that somebody carries."""
    batch: str | None = None
    """The provider's id of its batch; None until that is known."""
    ended: str | None = None
    """What became of the batch, in a word; None while it is under way."""

    @property
    def mark(self) -> str:
        """By which its batch is found among those of an account."""
        return f"rubricflow-{digest_of([self.name, *self.digests])[:32]}"


class Mailbox:
    """The folder, read; see `opened`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.files = _read_index(folder / INDEX)
        self.errors: dict[str, Reply] = {}
        """Digest → the error with which its request was answered, and which stays."""
        self._brought = [
            brought for path in sorted((folder / ANSWERS).rglob("*")) for brought in read_brought(path, folder)
        ]
        self._notes: dict[str, list[Note]] = {}
        """Digest → what is odd about the answers to a request that was open."""
        self._tries = Counter(key for file in self.files for key in file.digests)
        self._asked = {key[:ID]: key for key in self._tries}

    # What came.

    def take(self, noted: Noted, replies: Replies) -> int:
        """Puts the answers to what is asked into the reply store; how many there were."""
        self._asked |= {key[:ID]: key for key in noted}
        new = []
        before = len(self.errors)
        for key, answers in self.answers().items():
            if key not in noted:
                continue
            reply, self._notes[key] = _chosen(noted[key], answers, self._tries[key])
            if reply is not None and reply.error is None:
                new.append((key, noted[key].model, reply))
            elif reply is not None:
                self.errors[key] = reply
        replies.put_many(new)
        return len(new) + len(self.errors) - before

    def answers(self) -> dict[str, list[Brought]]:
        """Digest → all answers to it."""
        found: dict[str, list[Brought]] = {}
        for brought in self._brought:
            if (key := self._resolved(brought.id)) is not None:
                found.setdefault(key, []).append(brought)
        return found

    def _resolved(self, name: str | None) -> str | None:
        """The digest that an id is the beginning of, among all that was ever asked."""
        key = self._asked.get((name or "")[:ID])
        return key if key is not None and key.startswith(str(name)) else None

    def notes(self, noted: Noted, replies: Replies) -> Iterator[str]:
        """What is odd about the answers, in lines. noted: what is open in the end."""
        notes = [note for mine in self._notes.values() for note in mine]
        for brought in self._brought:
            if brought.id is None:
                notes.append(("unreadable", brought, str(brought.content)))
            elif self._resolved(brought.id) is None:
                notes.append(("unknown", brought, ""))
        earlier = {key: answers for key, answers in self.answers().items() if key not in self._notes}
        standing = replies.get_many(earlier)
        for key, answers in earlier.items():
            for brought in answers:
                if key not in standing and key not in noted and key not in self.errors:
                    notes.append(("old", brought, ""))
                elif key in standing and isinstance(brought.content, str) and brought.content != standing[key].text:
                    notes.append(("differs", brought, "the first one stays"))
        for kind, words in _NOTES.items():
            mine = [(brought, more) for of_kind, brought, more in notes if of_kind == kind]
            if mine:
                yield f"{len(mine):,} answers {words}:"
            for brought, more in mine[:_SHOWN]:
                yield f"  {brought.place}: {' '.join(filter(None, ((brought.id or '')[:ID], more)))}"
            if len(mine) > _SHOWN:
                yield f"  … and {len(mine) - _SHOWN:,} more"

    # What is asked.

    def _unanswered(self, file: AskedFile, answers: Mapping[str, Sequence[Brought]]) -> list[str]:
        """The file's requests to which no answer came since it was written."""
        return [key for key in file.digests if len(answers.get(key, ())) <= file.before.get(key, 0)]

    def under_way(self, noted: Noted) -> list[AskedFile]:
        """The files with open requests to which no answer came, and those whose batch has not ended."""
        answers = self.answers()
        wanted = (file for file in self.files if file.ended is None and not noted.keys().isdisjoint(file.digests))
        return [
            file
            for file in wanted
            if file.sent is not None or len(self._unanswered(file, answers)) == len(file.digests)
        ]

    def missing(self, noted: Noted) -> dict[str, int]:
        """File of which some answers came → how many of its requests have none."""
        answers = self.answers()
        to_ask = self.to_ask(noted)
        last = {key: file.name for file in self.files for key in file.digests}
        return Counter(
            file.name
            for file in self.files
            for key in self._unanswered(file, answers)
            if key in to_ask and last[key] == file.name
        )

    def to_ask(self, noted: Noted) -> Noted:
        """What is open and not under way."""
        there = {key for file in self.under_way(noted) for key in file.digests}
        return {key: one for key, one in noted.items() if key not in there}

    def write_wave(self, noted: Noted, form: str) -> list[AskedFile]:
        """Writes what is to be asked as the files of a new wave, and then their entries in the index; none where
        nothing is."""
        cut = list(parts(self.to_ask(noted), form))
        answers = self.answers()
        wave = 1 + max((file.wave for file in self.files), default=0)
        new = []
        for number, part in enumerate(cut, 1):
            name = f"wave-{wave}" + (f"-part-{number}" if len(cut) > 1 else "")
            before = {key: len(answers[key]) for key in part if key in answers}
            engine = next(iter(part.values())).engine
            most = tuple((counts.prompt, counts.reply) for counts in (most_in(form, one) for one in part.values()))
            file = AskedFile(name, wave, form, engine.model, tuple(part), before, most, rates_in(form, engine))
            for suffix, content in contents(form, engine.model, part):
                write_atomically(self.folder / f"{name}.{suffix}", content.encode())
            new.append(file)
        (self.folder / ANSWERS).mkdir(parents=True, exist_ok=True)
        self._write_index([*self.files, *new])
        return new

    def note(self, file: AskedFile, **changes: str) -> AskedFile:
        """Writes down what became of a file; the file with it."""
        changed = AskedFile(**file._asdict() | changes)
        self._write_index([changed if one.name == file.name else one for one in self.files])
        return changed

    def _write_index(self, files: list[AskedFile]) -> None:
        if files != self.files:
            record = {"version": _VERSION, "files": [file._asdict() for file in files]}
            write_atomically(self.folder / INDEX, json.dumps(record, indent=1).encode())
        self.files = files


def _chosen(one: NotedRequest, answers: Sequence[Brought], tries: int) -> tuple[Reply | None, list[Note]]:
    """Of the answers to a request the reply that counts, a text before an error, or None where there is none; and what
    is odd about each. tries: files in which it was asked."""
    replies = sorted(((brought, brought.reply(one)) for brought in answers), key=lambda pair: pair[1].text is None)
    chosen: Reply | None = None
    notes = []
    for brought, reply in replies:
        named = brought.source.model
        if named and not is_same_model(one.engine.model, named):
            notes.append(("other model", brought, f"{named}, not {one.engine.model}"))
        elif chosen is None and is_passing(reply) and tries < TRIES:
            notes.append(("failed", brought, str(reply.error)))
        elif chosen is None:
            chosen = reply
            first = brought
            text = str(reply.text)
            if reply.error is not None:
                notes.append(("no text", brought, reply.error))
            elif text.count("{") > text.count("}"):
                notes.append(("cut", brought, f"… {text[-40:]!r}"))
        elif reply.text == chosen.text:
            notes.append(("twice", brought, f"as in {first.place}"))
        elif reply.text is not None:
            # A provider names its answers by itself; in a plain file somebody may have written under a wrong id.
            notes.append(("differs", brought, f"than {first.place}"))
            if brought.source.provider == PLAIN:
                notes.append(("differs", first, f"than {brought.place}; none of them is taken: leave one"))
                return None, notes
    return chosen, notes


@contextmanager
def opened(folder: Path) -> Iterator[Mailbox]:
    """The mailbox, for one process at a time; InputError for a folder with a broken index."""
    with locked(folder, f"{folder}: another process works on this mailbox; wait for it, or stop it"):
        yield Mailbox(folder)


def most_in(form: str, one: NotedRequest) -> TokenCounts:
    """What a request takes at most, written in a form: a provider's model may think before its reply."""
    return most_tokens(one.request, None if form == PLAIN else one.engine.model_copy(update={"provider": form}))


def rates_in(form: str, engine: Engine) -> tuple[Rates, ...] | None:
    """What tokens cost in a batch of a form's provider; of a plain file what they cost live."""
    price = price_of(engine, None if form == PLAIN else form)
    return None if price is None else price.live if form == PLAIN else price.batch


def in_words(file: AskedFile, noted: Noted) -> str:
    """About what the requests of a file take: tokens, and what they cost at whose price."""
    requests = [noted[key].request for key in file.digests]
    engine = noted[file.digests[0]].engine
    is_plain = file.form == PLAIN
    most = sum(one.sampling.longest if is_plain else FORMS[file.form].room(one, engine) for one in requests)
    characters = sum(one.prompt_length for one in requests)
    if is_plain:  # the system prompts stand there once
        systems = [one.content_of("system") or "" for one in requests]
        characters -= sum(map(len, systems)) - sum(map(len, set(systems)))
    prompts = characters // CHARACTERS_PER_TOKEN
    tokens = f"{len(requests):,} requests to {file.model}, about {prompts:,} prompt tokens, at most {most:,} of replies"
    price = price_of(engine, None if is_plain else file.form)
    if price is None:
        return f"{tokens}; what {file.model} costs is not known: name it under engine.price"
    rates = price.rates(max(one.prompt_length for one in requests) // CHARACTERS_PER_TOKEN, batch=not is_plain)
    least = prompts * rates.input / 1_000_000
    replies = most * rates.output / 1_000_000
    return f"{tokens}; ${least:,.2f} for the prompts, ${least + replies:,.2f} at most: {price.in_words}"


def _read_index(path: Path) -> list[AskedFile]:
    try:
        record = json.loads(path.read_bytes())
        if record["version"] != _VERSION:
            raise ValueError(f"it is of version {record['version']}, and this one reads {_VERSION}")
        files = []
        for entry in record["files"]:
            rates = entry["rates"] and tuple(Rates(*tier) for tier in entry["rates"])
            most = tuple((prompt, reply) for prompt, reply in entry["most"])
            files.append(AskedFile(**entry | {"digests": tuple(entry["digests"]), "most": most, "rates": rates}))
        return files
    except FileNotFoundError:
        return []
    except (OSError, ValueError, TypeError, KeyError) as error:
        hint = "take another folder; what is in the reply store is not asked again"
        raise InputError(f"is no index of a mailbox: {error}", file=path, hint=hint) from error

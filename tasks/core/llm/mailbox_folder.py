"""A mailbox: a folder with the requests of each wave, cut into files, and the answers that somebody brought.

Together with the reply store it is the whole state. `mailbox.json` lists the files that asked, each with the digests of
its requests; answers are all files under `answers`, and are read anew each time. A file of which no answer came is
still under way; of one of which some came, what is missing is asked again in the next wave.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from rubricflow.tasks.core.contracts.errors import InputError
from rubricflow.tasks.core.contracts.settings.engine import Engine
from rubricflow.tasks.core.llm import plain
from rubricflow.tasks.core.llm.brought import PLAIN, Brought, is_passing, is_same_model, read_brought
from rubricflow.tasks.core.llm.budget import most_tokens
from rubricflow.tasks.core.llm.forms import FORMS
from rubricflow.tasks.core.llm.mailbox import NotedRequest
from rubricflow.tasks.core.llm.prices import Rates, TokenCounts, cost_of, price_of
from rubricflow.tasks.core.llm.reply_store import Replies
from rubricflow.tasks.core.llm.request import Reply
from rubricflow.tasks.core.llm.schema import compact
from rubricflow.tasks.core.store.files import digest_of, locked, write_atomically

INDEX, ANSWERS = "mailbox.json", "answers"
CHARACTERS_PER_TOKEN = 4
PLAIN_REQUESTS, PLAIN_TOKENS = 1_000, 100_000
"""What a model that reads files, or a person, can have before them at once."""
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
"""What an answer may be beside a reply → what is said of several."""


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
        self._notes: dict[int, tuple[str, str]] = {}
        """Answer, by its number → what it is beside a reply, and more words about it."""
        self._taken: dict[str, Reply] = {}
        self._tries = Counter(key for file in self.files for key in file.digests)
        self._asked = {key[: plain.ID]: key for key in self._tries}

    # What came.

    def take(self, noted: Mapping[str, NotedRequest], replies: Replies) -> int:
        """Puts the answers to what is asked into the reply store; how many there were."""
        self._asked |= {key[: plain.ID]: key for key in noted}
        asked = {key: numbers for key, numbers in self._by_key().items() if key in noted}
        new: list[tuple[str, str, Reply]] = []
        before = len(self.errors)
        for key, numbers in asked.items():
            reply = self._chosen(key, noted[key], numbers)
            if reply is not None and reply.error is None:
                new.append((key, noted[key].model, reply))
            elif reply is not None:
                self.errors[key] = reply
        replies.put_many(new)
        self._taken |= {key: reply for key, _, reply in new}
        return len(new) + len(self.errors) - before

    def _chosen(self, key: str, noted: NotedRequest, numbers: list[int]) -> Reply | None:
        """Of the answers to a request the reply that counts, a text before an error; None where there is none. Notes
        what is odd about each."""
        chosen: Reply | None = None
        replies = [(number, self._brought[number].reply(noted)) for number in numbers]
        for number, reply in sorted(replies, key=lambda pair: pair[1].text is None):
            brought = self._brought[number]
            if brought.source.model and not is_same_model(noted.engine.model, brought.source.model):
                self._notes[number] = "other model", f"{brought.source.model}, not {noted.engine.model}"
            elif chosen is None and is_passing(reply) and self._tries[key] < TRIES:
                self._notes[number] = "failed", str(reply.error)
            elif chosen is None:
                chosen, first = reply, number
                if reply.error is not None:
                    self._notes[number] = "no text", reply.error
                elif str(reply.text).count("{") > str(reply.text).count("}"):
                    self._notes[number] = "cut", f"… {str(reply.text)[-40:]!r}"
            elif reply.text == chosen.text:
                self._notes[number] = "twice", f"as in {self._brought[first].place}"
            elif reply.text is not None:
                # A provider names its answers by itself; in a plain file somebody may have written under a wrong id.
                is_plain = brought.source.provider == PLAIN
                self._notes[number] = "differs", f"than {self._brought[first].place}"
                if is_plain:
                    self._notes[first] = "differs", f"than {brought.place}; none of them is taken: leave one"
                    return None
        return chosen

    def _resolved(self, name: str | None) -> str | None:
        """The digest that an id is the beginning of, among all that was ever asked."""
        key = self._asked.get((name or "")[: plain.ID])
        return key if key is not None and key.startswith(str(name)) else None

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
                    told = " ".join(filter(None, ((brought.id or "")[: plain.ID], self._notes[number][1])))
                    yield f"  {brought.place}: {told}"
                if len(mine) > _SHOWN:
                    yield f"  … and {len(mine) - _SHOWN:,} more"

    # What is asked.

    def under_way(self, noted: Mapping[str, NotedRequest]) -> list[AskedFile]:
        """The files with open requests to which no answer came, and those whose batch has not ended."""
        came = self._came()
        return [
            file
            for file in self.files
            if file.ended is None
            and any(key in noted for key in file.digests)
            and (file.sent is not None or not any(came[key] > file.before.get(key, 0) for key in file.digests))
        ]

    def missing(self, noted: Mapping[str, NotedRequest]) -> dict[str, int]:
        """File of which some answers came → how many of its requests have none."""
        came, there = self._came(), {key for file in self.under_way(noted) for key in file.digests}
        last = {key: file for file in self.files for key in file.digests}
        asked = [(key, last[key]) for key in noted if key in last and key not in there]
        return dict(Counter(file.name for key, file in asked if came[key] <= file.before.get(key, 0)))

    def _by_key(self) -> dict[str, list[int]]:
        """Digest → the numbers of all answers to it."""
        found: dict[str, list[int]] = {}
        for number, brought in enumerate(self._brought):
            if (key := self._resolved(brought.id)) is not None:
                found.setdefault(key, []).append(number)
        return found

    def _came(self) -> Counter[str]:
        """How many answers there are to each request."""
        return Counter({key: len(numbers) for key, numbers in self._by_key().items()})

    def answers(self) -> dict[str, list[Brought]]:
        """Digest → all answers to it."""
        return {key: [self._brought[number] for number in numbers] for key, numbers in self._by_key().items()}

    def to_ask(self, noted: Mapping[str, NotedRequest]) -> dict[str, NotedRequest]:
        """What is open and not under way."""
        there = {key for file in self.under_way(noted) for key in file.digests}
        return {key: one for key, one in noted.items() if key not in there}

    def write_wave(self, noted: Mapping[str, NotedRequest], form: str) -> list[AskedFile]:
        """Writes what is to be asked as the files of a new wave, and then their entries in the index; none where
        nothing is."""
        parts, came = list(_parts(self.to_ask(noted), form)), self._came()
        wave = 1 + max((file.wave for file in self.files), default=0)
        new = []
        for number, part in enumerate(parts, 1):
            name = f"wave-{wave}" + (f"-part-{number}" if len(parts) > 1 else "")
            before = {key: came[key] for key in part if came[key]}
            engine = next(iter(part.values())).engine
            most = tuple((counts.prompt, counts.reply) for counts in (most_in(form, one) for one in part.values()))
            file = AskedFile(name, wave, form, engine.model, tuple(part), before, most, rates_in(form, engine))
            for suffix, content in _contents(file, part):
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


def in_words(file: AskedFile, noted: Mapping[str, NotedRequest]) -> str:
    """What the requests of a file take: tokens, and what they cost at whose price."""
    requests, engine = [noted[key].request for key in file.digests], noted[file.digests[0]].engine
    is_plain = file.form == PLAIN
    rooms = [one.sampling.longest if is_plain else FORMS[file.form].room(one, engine) for one in requests]
    sizes = [one.prompt_length // CHARACTERS_PER_TOKEN for one in requests]
    calls = list(map(TokenCounts, sizes, rooms))
    prompts, most = sum(call.prompt for call in calls), sum(call.reply for call in calls)
    if is_plain:  # the system prompts stand there once
        systems = Counter(one.content_of("system") or "" for one in requests)
        prompts -= sum(len(text) * (count - 1) for text, count in systems.items()) // CHARACTERS_PER_TOKEN
    tokens = f"{len(requests):,} requests to {file.model}, about {prompts:,} prompt tokens, at most {most:,} of replies"
    price = price_of(engine, None if is_plain else file.form)
    if price is None:
        return f"{tokens}; what {file.model} costs is not known: name it under engine.price"
    least = sum(cost_of(call._replace(reply=0), price, batch=not is_plain) or 0.0 for call in calls)
    dearest = sum(cost_of(call, price, batch=not is_plain) or 0.0 for call in calls)
    return f"{tokens}; ${least:,.2f} for the prompts, ${dearest:,.2f} at most: {price.in_words}"


def _contents(file: AskedFile, noted: Mapping[str, NotedRequest]) -> Iterator[tuple[str, str]]:
    """(Suffix, content) of the files in which requests are written in a form."""
    if file.form == PLAIN:
        yield "jsonl", plain.as_lines(noted, file.model)
        yield "md", plain.as_markdown(noted, file.model)
        return
    lines = [_line(file.form, key, one) for key, one in noted.items()]
    if file.form == "anthropic":  # takes no file: this is the body of POST /v1/messages/batches
        yield "json", '{"requests":[\n' + ",\n".join(lines) + "\n]}\n"
    else:
        yield "jsonl", "".join(f"{line}\n" for line in lines)


def _line(form: str, key: str, one: NotedRequest) -> str:
    """A request as a provider's batch has it."""
    return compact(FORMS[form].line(key, FORMS[form].body(one.request, one.engine)))


def _parts(noted: Mapping[str, NotedRequest], form: str) -> Iterator[dict[str, NotedRequest]]:
    """The requests in parts that keep a form's limits, each for one model."""
    limits = FORMS.get(form)
    most, most_bytes = (limits.requests, limits.bytes) if limits else (PLAIN_REQUESTS, 0)
    by_model: dict[str, dict[str, NotedRequest]] = {}
    for key, one in noted.items():
        by_model.setdefault(one.model, {})[key] = one
    for mine in by_model.values():
        part, size, systems = dict[str, NotedRequest](), 0, set[str]()
        for key, one in mine.items():
            if limits:
                takes, room = len(_line(form, key, one).encode()) + 2, most_bytes
            else:  # in characters, a system prompt once
                system = one.request.content_of("system") or ""
                takes = one.request.prompt_length - (len(system) if system in systems else 0)
                systems, room = systems | {system}, CHARACTERS_PER_TOKEN * PLAIN_TOKENS
            if part and (len(part) >= most or size + takes > room):
                yield part
                part, size, systems = {}, 0, set()
            part[key], size = one, size + takes
        yield part


def _read_index(path: Path) -> list[AskedFile]:
    try:
        record = json.loads(path.read_bytes())
        if record["version"] != _VERSION:
            raise ValueError(f"it is of version {record['version']}, and this one reads {_VERSION}")
        return [_file(entry) for entry in record["files"]]
    except FileNotFoundError:
        return []
    except (OSError, ValueError, TypeError, KeyError) as error:
        hint = "take another folder; what is in the reply store is not asked again"
        raise InputError(f"is no index of a mailbox: {error}", file=path, hint=hint) from error


def _file(entry: dict[str, Any]) -> AskedFile:
    rates = entry["rates"] and tuple(Rates(*tier) for tier in entry["rates"])
    most = tuple((prompt, reply) for prompt, reply in entry["most"])
    return AskedFile(**entry | {"digests": tuple(entry["digests"]), "most": most, "rates": rates})

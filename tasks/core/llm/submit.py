"""Files of requests sent to their providers as batches, through the providers' own libraries.

A file's entry in the mailbox says that it is to be sent before it is, and gets the batch's id before anything is waited
for. A batch that was made and whose id was lost is found among those of the account: by the mark that it carries or,
where a provider keeps none (Anthropic), by its time and size.

What a mailbox has cost and may still cost, and how much more of it a budget pays for: a request counts with its most
expensive outcome from when its file is written until its answer is there, and then with what its provider counted. One
that was asked again, as its answer was lost, counts twice.
"""

from __future__ import annotations

import json
import re
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from itertools import pairwise, takewhile
from pathlib import Path
from typing import NamedTuple

from rubricflow.tasks.core.contracts.backends import install
from rubricflow.tasks.core.contracts.errors import BackendError, StoppedError
from rubricflow.tasks.core.llm.budget import (
    Amounts,
    Budget,
    Unit,
    amount_in_words,
    dearest,
    in_billionths,
    spent_in_words,
    unpriced,
)
from rubricflow.tasks.core.llm.calls import in_words
from rubricflow.tasks.core.llm.mailbox import Noted
from rubricflow.tasks.core.llm.mailbox_files import Brought
from rubricflow.tasks.core.llm.mailbox_folder import ANSWERS, AskedFile, Mailbox, most_in, rates_in
from rubricflow.tasks.core.llm.prices import Price, Rates, TokenCounts, cost_of
from rubricflow.tasks.core.store.files import write_atomically

LOOK_S = (5.0, 60.0)
"""Seconds between two looks at a batch, at first and in the end."""
_TROUBLES = 10
"""Looks in a row that may fail."""
_NO_REASON = "it says no reason"
_CLOCKS = timedelta(minutes=5)
"""By how much a provider's clock may be behind."""


class BatchState(NamedTuple):
    """How far a batch is."""

    ended: str | None
    """What became of it, in the provider's word; None while it is under way."""
    counts: str
    """What is done, in words."""
    problem: str | None = None
    """Why it was not worked at all."""


class Batches(ABC):
    """A provider's batches."""

    @abstractmethod
    def send(self, path: Path, file: AskedFile) -> str:
        """Makes the batch of a file; its id. It is not tried again by itself: a second batch would be paid for."""

    @abstractmethod
    def listed(self, file: AskedFile) -> Iterator[tuple[str, datetime, bool]]:
        """The account's batches, the newest first: id, when it was made, and whether it may be that of the file."""

    @abstractmethod
    def look(self, batch: str) -> BatchState:
        """How far it is."""

    @abstractmethod
    def fetch(self, batch: str) -> Iterator[str]:
        """Its results, line by line, once it has ended."""

    def find(self, file: AskedFile, known: set[str]) -> str | None:
        """The id of the batch that was made of a file, other than the known ones; None where there is none."""
        earliest = datetime.fromisoformat(str(file.sent)) - _CLOCKS
        recent = takewhile(lambda one: one[1] >= earliest, self.listed(file))
        return next((batch for batch, _, is_it in recent if is_it and batch not in known), None)


class OpenAIBatches(Batches):
    """OpenAI's: files go up first; the mark stands in the batch's metadata."""

    def __init__(self, key: str | None) -> None:
        import openai

        self._client = openai.OpenAI(api_key=key)

    def send(self, path: Path, file: AskedFile) -> str:
        uploaded = self._client.files.create(file=path, purpose="batch")
        made = self._client.with_options(max_retries=0).batches.create(
            input_file_id=uploaded.id,
            endpoint="/v1/chat/completions",
            completion_window="24h",
            metadata={"rubricflow": file.mark},
        )
        return made.id

    def listed(self, file: AskedFile) -> Iterator[tuple[str, datetime, bool]]:
        for batch in self._client.batches.list(limit=100):
            is_it = (batch.metadata or {}).get("rubricflow") == file.mark
            yield batch.id, datetime.fromtimestamp(batch.created_at, UTC), is_it

    def look(self, batch: str) -> BatchState:
        seen = self._client.batches.retrieve(batch)
        counts = seen.request_counts
        done = f"{counts.completed:,} of {counts.total:,} done, {counts.failed:,} failed" if counts else ""
        said = [error.message or error.code or "" for error in (seen.errors and seen.errors.data) or ()]
        problem = ("; ".join(said[:3]) or _NO_REASON) if seen.status == "failed" else None
        has_ended = seen.status in ("completed", "failed", "expired", "cancelled")
        return BatchState(seen.status if has_ended else None, done, problem)

    def fetch(self, batch: str) -> Iterator[str]:
        seen = self._client.batches.retrieve(batch)
        for name in filter(None, (seen.output_file_id, seen.error_file_id)):
            yield from self._client.files.content(name).text.split("\n")


class AnthropicBatches(Batches):
    """Anthropic's: a batch carries no mark, and is known by when it was made and how many requests it has."""

    def __init__(self, key: str | None) -> None:
        import anthropic

        self._client = anthropic.Anthropic(api_key=key)

    def send(self, path: Path, file: AskedFile) -> str:
        requests = json.loads(path.read_bytes())["requests"]
        return self._client.with_options(max_retries=0).messages.batches.create(requests=requests).id

    def listed(self, file: AskedFile) -> Iterator[tuple[str, datetime, bool]]:
        for batch in self._client.messages.batches.list(limit=100):
            counts = batch.request_counts
            total = counts.processing + counts.succeeded + counts.errored + counts.canceled + counts.expired
            yield batch.id, batch.created_at, total == len(file.digests)

    def look(self, batch: str) -> BatchState:
        seen = self._client.messages.batches.retrieve(batch)
        counts = seen.request_counts
        failed = counts.errored + counts.canceled + counts.expired
        done = f"{counts.succeeded:,} done, {failed:,} failed, {counts.processing:,} open"
        ended = "canceled" if counts.canceled else "ended"
        return BatchState(ended if seen.processing_status == "ended" else None, done)

    def fetch(self, batch: str) -> Iterator[str]:
        for result in self._client.messages.batches.results(batch):
            yield result.to_json(indent=None)


class GeminiBatches(Batches):
    """Gemini's: files go up first; the mark is the batch's display name."""

    def __init__(self, key: str | None) -> None:
        from google import genai

        self._client = genai.Client(api_key=key)

    def send(self, path: Path, file: AskedFile) -> str:
        uploaded = self._client.files.upload(file=path, config={"mime_type": "jsonl", "display_name": file.mark})
        assert uploaded.name is not None
        made = self._client.batches.create(model=file.model, src=uploaded.name, config={"display_name": file.mark})
        return str(made.name)

    def listed(self, file: AskedFile) -> Iterator[tuple[str, datetime, bool]]:
        for batch in self._client.batches.list():
            made = batch.create_time or datetime.max.replace(tzinfo=UTC)
            yield str(batch.name), made, batch.display_name == file.mark

    def look(self, batch: str) -> BatchState:
        seen = self._client.batches.get(name=batch)
        state = seen.state.name.removeprefix("JOB_STATE_").lower() if seen.state else "unspecified"
        has_ended = state in ("succeeded", "failed", "cancelled", "expired", "partially_succeeded")
        counts = seen.completion_stats
        done = f"{counts.successful_count or 0:,} done, {counts.failed_count or 0:,} failed" if counts else state
        said = seen.error and seen.error.message
        return BatchState(state if has_ended else None, done, (said or _NO_REASON) if state == "failed" else None)

    def fetch(self, batch: str) -> Iterator[str]:
        seen = self._client.batches.get(name=batch)
        if seen.dest and seen.dest.file_name:
            yield from (self._client.files.download(file=seen.dest.file_name) or b"").decode().split("\n")


_BATCHES: dict[str, Callable[[str | None], Batches]] = {
    "openai": OpenAIBatches,
    "anthropic": AnthropicBatches,
    "gemini": GeminiBatches,
}


def open_batches(provider: str, key: str | None) -> Batches:
    """The provider's batches. key: None for that of the library's own environment variable. BackendError where there
    is none."""
    try:
        with _failures(provider):
            return _BATCHES[provider](key)
    except ImportError as error:
        raise BackendError(f"--submit {provider} needs the extra: {install(provider)}") from error


def submit(
    mailbox: Mailbox, files: Sequence[AskedFile], provider: str, batches: Batches, say: Callable[[str], None]
) -> None:
    """Sends those of the files that are not sent yet, waits for all, and puts their results among the answers.

    BackendError where a batch was not worked at all, or somebody cancelled it. A killed command goes on where it was.
    """
    sent = [_sent(mailbox, file, provider, batches, say) for file in files]
    for file in sent:
        state = _awaited(file, provider, batches, say)
        with _failures(provider):
            lines = [line for line in batches.fetch(str(file.batch)) if line.strip()]
        if lines:
            name = re.sub(r"\W", "_", str(file.batch))
            write_atomically(mailbox.folder / ANSWERS / f"{provider}-{name}.jsonl", "\n".join(lines).encode())
        mailbox.note(file, ended=state.ended or "ended")
        problem = state.problem or (None if lines else "it has no results")
        if problem is None and state.ended in ("canceled", "cancelled"):  # whoever did so wants no other one
            problem = f"{len(lines):,} results came before"
        if problem is not None:
            more = "what came is kept, and the same command sends the rest again"
            raise BackendError(f"{provider}: batch {file.batch} of {file.name} {state.ended}: {problem}; {more}")
        say(f"{file.name}: batch {file.batch} {state.ended}, {len(lines):,} results")


def _sent(mailbox: Mailbox, file: AskedFile, provider: str, batches: Batches, say: Callable[[str], None]) -> AskedFile:
    if file.batch is not None:
        return file
    with _failures(provider):
        known = {one.batch for one in mailbox.files if one.batch is not None}
        batch = batches.find(file, known) if file.sent is not None else None
        if batch is None:
            file = mailbox.note(file, sent=datetime.now(UTC).isoformat(timespec="seconds"))
            path = next(mailbox.folder.glob(f"{file.name}.json*"))
            batch = batches.send(path, file)
    say(f"{file.name}: batch {batch} of {len(file.digests):,} requests is with {provider}")
    return mailbox.note(file, batch=batch)


def _awaited(file: AskedFile, provider: str, batches: Batches, say: Callable[[str], None]) -> BatchState:
    """How a batch ended. Says how far it is, whenever that changes."""
    start = time.monotonic()
    pause = LOOK_S[0]
    troubles = 0
    before = ""
    while True:
        try:
            with _failures(provider):
                state = batches.look(str(file.batch))
            troubles = 0
            if state.ended is not None:
                return state
            if state.counts != before:
                before = state.counts
                say(f"{file.name}: {state.counts}, {in_words(time.monotonic() - start)}")
        except StoppedError as error:
            troubles += 1
            if not error.passing or troubles >= _TROUBLES:
                raise
        time.sleep(pause)
        pause = min(LOOK_S[1], pause * 1.5)


@contextmanager
def _failures(provider: str) -> Iterator[None]:
    """What a provider's library raises, as errors of ours."""
    try:
        yield
    except (BackendError, OSError):
        raise
    except Exception as error:
        status = getattr(error, "status_code", None) or getattr(error, "code", None)
        words = " ".join(str(getattr(error, "message", None) or error).split())[:300]
        is_theirs = type(error).__module__.split(".")[0] in ("openai", "anthropic", "google", "httpx", "httpx2")
        if not is_theirs:
            raise
        passing = not isinstance(status, int) or status in (408, 409, 429) or status >= 500
        raise StoppedError(f"{provider}: {words or type(error).__name__}", passing) from None


class MailboxBudget:
    """A budget for all that is asked by a mailbox; one without caps pays for everything."""

    def __init__(self, mailbox: Mailbox, budget: Budget, noted: Noted) -> None:
        """budget: of which nothing is spent; noted: what is open. InputError where it is in dollars and nobody says the
        price of what was asked."""
        self._caps = budget
        self.lacks: str | None = None
        """What is not paid for, in words."""
        engines = {one.engine.model: one.engine for one in noted.values()}
        self._rates = {file.name: file.rates for file in mailbox.files}
        for file in mailbox.files:  # a price that was named since
            if file.rates is None and file.model in engines:
                self._rates[file.name] = rates_in(file.form, engines[file.model])
        answers = mailbox.answers()
        asked = dict[str, list[tuple[AskedFile, TokenCounts]]]()
        for file in mailbox.files if budget else ():
            for key, counts in zip(file.digests, file.most, strict=True):
                asked.setdefault(key, []).append((file, TokenCounts(*counts)))
        for key, times in asked.items():
            for unit, amount in self._spent(times, answers.get(key, []), key).items():
                budget[unit].spent += amount

    def pays_for(self, open_: Noted, form: str) -> Noted:
        """Of the requests, in their order, those whose most expensive outcome fits what is left, which is kept for
        them. InputError where nobody says their price."""
        paid = Noted()
        all_most = [
            self._amounts(one.engine.model, most_in(form, one), rates_in(form, one.engine)) for one in open_.values()
        ]
        for (key, one), most in zip(open_.items(), all_most, strict=True):
            if short := [unit for unit, amount in most.items() if not self._caps[unit].holds(amount)]:
                self._lack(f"{len(open_) - len(paid):,} requests", short[0], all_most[len(paid) :])
                break
            for unit, amount in most.items():
                self._caps[unit].spent += amount
            paid[key] = one
        return paid

    def sends(self, files: Sequence[AskedFile]) -> list[AskedFile]:
        """The files without those, from the last on, that were written under a higher budget and are not sent yet."""
        kept = list(files)
        for file in reversed(files):
            short = [unit for unit, cap in self._caps.items() if cap.spent > cap.limit]
            if short and file.sent is None:
                kept.remove(file)
                all_most = [self._of_file(file, TokenCounts(*counts)) for counts in file.most]
                for unit, cap in self._caps.items():
                    cap.spent -= sum(most[unit] for most in all_most)
                self._lack(f"the {len(file.digests):,} requests of {file.name}", short[0], all_most)
        return kept

    def _lack(self, what: str, unit: Unit, all_most: Sequence[Amounts]) -> None:
        total = amount_in_words(unit, sum(most[unit] for most in all_most))
        words = spent_in_words(unit, *self._caps[unit].drawn(), all_most[0][unit])
        self.lacks = f"{what}, of {total} at most, are not asked: {words}"

    def _amounts(self, model: str, counts: TokenCounts, rates: Sequence[Rates] | None, is_most: bool = True) -> Amounts:
        """What tokens take of each cap. is_most: whether they are the most that a call may take."""
        amounts = {"tokens": counts.prompt + counts.reply}
        if "usd" in self._caps:
            if rates is None:
                raise unpriced(f"'{model}'")
            price = Price(tuple(rates), tuple(rates), "", None)
            amounts["usd"] = dearest(counts, price) if is_most else in_billionths(cost_of(counts, price) or 0.0)
        return {unit: amounts[unit] for unit in self._caps}

    def _of_file(self, file: AskedFile, counts: TokenCounts, is_most: bool = True) -> Amounts:
        return self._amounts(file.model, counts, self._rates[file.name], is_most)

    def _spent(self, times: Sequence[tuple[AskedFile, TokenCounts]], answers: Sequence[Brought], key: str) -> Amounts:
        """What a request has taken: counted where it was answered, and the most elsewhere. times: when it was asked,
        and what it took at most."""
        seen = [*(file.before.get(key, 0) for file, _ in times), len(answers)]
        is_answered = [later > earlier for earlier, later in pairwise(seen)]
        most = [self._of_file(file, counts) for file, counts in times]
        # A batch that has ended charges for nothing but its results.
        waits = [
            one
            for (file, _), one, came in zip(times, most, is_answered, strict=True)
            if not came and file.ended is None
        ]
        counted = [answer.tokens() for answer in answers]
        total = Amounts()
        for unit in self._caps:
            # Which of the answers came to which time is not known: the dearest ones count.
            taken = [
                max(one[unit] for one in most)
                if used is None
                else max(self._of_file(file, used, is_most=False)[unit] for file, _ in times)
                for used in counted
            ]
            dearest_first = sorted(taken, reverse=True)[: sum(is_answered)]
            total[unit] = sum(dearest_first) + sum(one[unit] for one in waits)
        return total

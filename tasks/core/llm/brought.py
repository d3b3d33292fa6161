"""Answers as they lie in files: lines of a provider's batch results, or the plain form."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rubricflow.tasks.core.llm import plain
from rubricflow.tasks.core.llm.forms import FORMS, PASSING, answered_by
from rubricflow.tasks.core.llm.mailbox import NotedRequest
from rubricflow.tasks.core.llm.prices import TokenCounts, tokens_of
from rubricflow.tasks.core.llm.request import Reply, ReplySource, Request
from rubricflow.tasks.core.store.files import file_digest

PLAIN = "plain"
_SUFFIXES = frozenset({".jsonl", ".json", ".ndjson", ".md", ".markdown", ".txt"})
_BATCH = re.compile(r"(?:msgbatch|batch|batches)[_-](?!part)\w+")
"""A provider's id of a batch in the name of a file."""
_ANY = Request(messages=(), role="", subject="")
"""What was asked, where only tokens are counted."""


@dataclass(frozen=True)
class Brought:
    """An answer, or a line that is none."""

    place: str
    """File and line."""
    id: str | None
    """Of the request; None where it cannot be read."""
    content: str | Mapping[str, Any] | Reply
    """The reply's text, or what is wrong with the line where there is no id; of a provider its answer, or an error."""
    source: ReplySource

    def reply(self, noted: NotedRequest) -> Reply:
        """The reply to the request."""
        if isinstance(self.content, Reply):
            reply = self.content
        elif isinstance(self.content, str):
            reply = Reply(text=self.content) if self.content else Reply(error="canceled: there is no reply")
        else:
            reply = FORMS[self.source.provider].read(self.content, noted.request, noted.engine)
        return replace(reply, source=self.source)

    def tokens(self) -> TokenCounts | None:
        """What is charged for it, which is nothing for a line of errors; None where nobody counted."""
        if isinstance(self.content, Reply):
            return TokenCounts(0, 0)
        if isinstance(self.content, str):
            return None
        return tokens_of(FORMS[self.source.provider].read(self.content, _ANY))


def is_passing(reply: Reply) -> bool:
    """Whether a reply is an error that another try may not bring."""
    return reply.error is not None and reply.error.split(":")[0] in PASSING


def is_same_model(asked: str, named: str) -> bool:
    """Whether an answer names the model that was asked, with its version or without it.

    >>> is_same_model("gpt-5", "gpt-5-2026-01-05"), is_same_model("gpt-5", "gpt-5-mini")
    (True, False)
    """
    wanted, said = (name.strip().lower().rstrip("/").rpartition("/")[2] for name in (asked, named))
    newest = wanted.removesuffix("-latest")
    version = (
        r"(?:[-@:](?:(?:preview|exp|latest)(?:-\d+)*|v?\d{3,}(?:-\d+)*))*" if newest == wanted else r"(?:-[\d.]+)*"
    )
    return said == wanted or re.fullmatch(re.escape(newest) + version, said) is not None


def read_brought(path: Path, folder: Path) -> Iterator[Brought]:
    """The answers of a file, in its order; other files than of text have none. folder: that places are told from."""
    if not path.is_file() or path.suffix.lower() not in _SUFFIXES:
        return
    name, found = path.relative_to(folder), _BATCH.search(path.stem)
    written = datetime.fromtimestamp(path.stat().st_mtime, UTC).isoformat(timespec="seconds")
    source = ReplySource(PLAIN, None, found[0] if found else None, file_digest(path), written)
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        yield Brought(f"{name}, line 1", None, f"is not UTF-8: {error.reason}", source)
        return
    if text.lstrip().startswith(("{", "[")):
        lines = (_from_line(f"{name}, line {number}", line, source) for number, line in enumerate(text.split("\n"), 1))
        yield from (brought for brought in lines if brought is not None)
        return
    for number, key, reply, model in plain.read_sections(text):
        yield Brought(f"{name}, line {number}", key, reply, replace(source, model=model))


def _from_line(place: str, line: str, source: ReplySource) -> Brought | None:
    """The answer of a line of JSON; None for an empty line, and the first one of a plain file of requests."""
    if not line.strip():
        return None
    try:
        record = json.loads(line)
        if not isinstance(record, dict):
            raise ValueError("no JSON object")
        if "to_do" in record:
            return None
        if (provider := _provider_of(record)) is not None:
            key, answer = FORMS[provider].result(record)
            model = answered_by(answer) if isinstance(answer, Mapping) else None
            return Brought(place, key.lower(), answer, replace(source, provider=provider, model=model))
        key, reply, model = plain.read_record(record)
        return Brought(place, key, reply, replace(source, model=model))
    except (ValueError, RecursionError) as error:
        return Brought(place, None, str(error)[:200], source)


def _provider_of(record: Mapping[str, Any]) -> str | None:
    """Whose batch a line of results is of; None where it is of none."""
    if "custom_id" in record:
        return "anthropic" if "result" in record else "openai"
    return "gemini" if "key" in record and not record.keys().isdisjoint({"response", "error", "status"}) else None

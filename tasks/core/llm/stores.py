"""Which store keeps replies: a SQLite file, or a PostgreSQL database where several machines ask."""

from __future__ import annotations

from pathlib import Path

from rubricflow.tasks.core.contracts.backends import install
from rubricflow.tasks.core.contracts.errors import StoreError
from rubricflow.tasks.core.llm.places import is_database
from rubricflow.tasks.core.llm.reply_store import Replies, ReplyStore


def open_replies(place: str | Path, read_only: bool = False) -> Replies:
    """The store at a file's path, at `:memory:` or at `postgresql://…`; StoreError where it cannot be used."""
    if not is_database(place):
        return ReplyStore(place, read_only)
    try:
        from rubricflow.tasks.core.llm.postgres import PostgresReplies

        return PostgresReplies(str(place), read_only)
    except ImportError as error:
        raise StoreError(f"replies in PostgreSQL need the extra: {install('postgres')}") from error

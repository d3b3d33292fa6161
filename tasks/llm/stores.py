"""Which store keeps replies: a SQLite file, or a PostgreSQL database where several machines ask."""

from __future__ import annotations

from pathlib import Path

from tasks.contracts.errors import StoreError
from tasks.contracts.extras import install
from tasks.llm.places import is_database
from tasks.llm.reply_store import Replies, ReplyStore


def open_replies(place: str | Path, read_only: bool = False) -> Replies:
    """The store at a file's path, at `:memory:` or at `postgresql://…`; StoreError where it cannot be used."""
    if not is_database(place):
        return ReplyStore(place, read_only)
    try:
        from tasks.llm.postgres import PostgresReplies

        return PostgresReplies(str(place), read_only)
    except ImportError as error:
        raise StoreError(f"replies in PostgreSQL need the extra: {install('postgres')}") from error

"""Which store keeps replies: a SQLite file, or a PostgreSQL database where several machines ask."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import urlsplit

from tasks.contracts.errors import StoreError
from tasks.llm.replies import ReplyStore
from tasks.llm.reply_store import Replies

_DATABASE = re.compile(r"postgres(ql)?://")


def open_replies(place: str | Path, read_only: bool = False) -> Replies:
    """The store at a file's path, at `:memory:` or at `postgresql://…`; StoreError where it cannot be used."""
    if not is_database(place):
        return ReplyStore(place, read_only)
    try:
        from tasks.llm.postgres import PostgresReplies

        return PostgresReplies(str(place), read_only)
    except ImportError as error:
        raise StoreError("replies in PostgreSQL need the extra: pip install 'rubricflow[postgres]'") from error


def is_database(place: str | Path) -> bool:
    """Whether replies are in a database, and in no file."""
    return bool(_DATABASE.match(str(place)))


def are_there(place: str | Path) -> bool:
    """Whether there is a store to be looked at; a database is taken to be there."""
    return is_database(place) or Path(place).is_file()


def shown_place(place: str | Path) -> str:
    """The place as people may see it: without a password."""
    if not is_database(place):
        return str(place)
    parts = urlsplit(str(place))
    user = f"{parts.username}@" if parts.username else ""
    return f"{parts.scheme}://{user}{parts.netloc.rpartition('@')[2]}{parts.path}"

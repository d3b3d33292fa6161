"""Where replies are kept, by name: a file's path, or the address of a PostgreSQL database."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import urlsplit

_DATABASE = re.compile(r"postgres(ql)?://")


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

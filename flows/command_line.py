"""What to type behind a command, for commands that name the next one."""

from __future__ import annotations

import shlex
from pathlib import Path

HOUSE = Path("data/warehouse")
"""Where runs are kept unless somebody says otherwise."""


def arguments(study: str | Path, warehouse: str | Path, limit: int | None) -> str:
    """What to type behind another command about the same study."""
    words = [str(study)]
    words += ["--warehouse", str(warehouse)] if Path(warehouse) != HOUSE else []
    words += ["--limit", str(limit)] if limit else []
    return shlex.join(words)

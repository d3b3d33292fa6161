"""What a study's credentials are: variables of the environment, or secret blocks of Prefect's."""

from __future__ import annotations

import os
from typing import Any, cast

from prefect.blocks.system import Secret

from rubricflow.tasks.core.contracts.errors import BackendError
from rubricflow.tasks.core.monitor.runs import is_watched

_NAMED = "PREFECT_API_URL names the one that is asked"


def credential(name: str) -> str | None:
    """The value of an environment variable, or of a Prefect secret block for `block:NAME`; None where the variable is
    not set, BackendError where there is no such block."""
    if not name.startswith("block:"):
        return os.environ.get(name)
    block = name.removeprefix("block:")
    if not is_watched():
        raise BackendError(f"secret block '{block}' (judge.engine.key) is kept by a server of Prefect's: {_NAMED}")
    try:
        return str(cast(Secret[Any], Secret.load(block)).get())
    except ValueError:
        raise BackendError(f"Prefect has no secret block named '{block}' (judge.engine.key): {_NAMED}") from None

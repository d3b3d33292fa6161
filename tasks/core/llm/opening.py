"""A backend opened by its name: each has a module `tasks/core/llm/backends/<name>.py` with the two functions of
`Module`."""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Protocol, cast

from rubricflow.tasks.core.contracts.backends import Choice
from rubricflow.tasks.core.llm.backend import Backend
from rubricflow.tasks.core.llm.cpu import cpu_warnings, this_machine
from rubricflow.tasks.core.llm.reply_store import Replies

KeyOf = Callable[[str], str | None]
"""Name of a credential, see `Engine.key` → its value, None where there is none."""


class Module(Protocol):
    """What the module of a backend has."""

    def opened(self, choice: Choice, base: Path, replies: Replies, key_of: KeyOf) -> Backend:
        """See `open_backend`."""

    def model_of(self, choice: Choice, base: Path) -> str:
        """See `model_of`."""


def open_backend(choice: Choice, base: Path, replies: Replies, key_of: KeyOf = os.environ.get) -> Backend:
    """The backend that settings name.

    base: the folder from which a relative folder of weights is meant. InputError for settings that the backend cannot
    take, BackendError where its library or its model is missing. Prints a line for each that does harm on this machine.
    """
    for line in cpu_warnings(choice, base, this_machine()):
        print(f"{choice.backend}: {line}")
    return _module(choice).opened(choice, base, replies, key_of)


def model_of(choice: Choice, base: Path) -> str:
    """The identity of what would answer, as its replies are kept under it, without opening it."""
    return _module(choice).model_of(choice, base)


def _module(choice: Choice) -> Module:
    return cast(Module, import_module(f"rubricflow.tasks.core.llm.backends.{choice.backend}"))

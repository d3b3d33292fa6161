"""When, and what with what: one flow per file, named like its stage, and the command line."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path


def _refuse_hidden(ours: Path) -> None:
    """ImportError where another folder named `tasks` comes before ours, as it may in a training repository."""
    spec = find_spec("tasks")
    places = [Path(place).resolve() for place in (spec.submodule_search_locations or ())] if spec else []
    if places and places[0] != ours:
        raise ImportError(
            f"the folder {places[0]} hides rubricflow's package `tasks`; rename it, or leave rubricflow out of this "
            "environment: run `rubricflow serve` elsewhere and ask it by the one file rubricflow_client.py"
        )


_refuse_hidden(Path(__file__).resolve().parent.parent / "tasks")

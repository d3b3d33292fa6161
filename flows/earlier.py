"""What a warehouse already holds that a study will need: looked at, and never made where there is none."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from flows.plan import plan
from tasks.contracts.settings.judge import Judge
from tasks.contracts.tables.rubrics import Bundles
from tasks.judge.grade import first_requests, too_short
from tasks.judge.rater import rater
from tasks.judge.rows import Case
from tasks.llm.replies import ReplyStore
from tasks.llm.request import digest
from tasks.store.warehouse import MARKER, Warehouse


def opened(warehouse: Path | None) -> Warehouse | None:
    """The warehouse, where there is one: a folder without its marker is left as it is."""
    return Warehouse.open(warehouse) if warehouse is not None and (warehouse / MARKER).exists() else None


def locked_before(study_file: Path, house: Warehouse | None, limit: int | None) -> list[dict[str, Any]] | None:
    """The rows of `bundles` that the study's own run has locked already; None where it has not."""
    if house is None:
        return None
    run = plan(study_file, house.root, limit).run
    return run.read(run.ref(Bundles, "lock")).to_pylist() if run.done("lock", "all") else None


def proved(judge: Judge, base: Path, house: Warehouse | None, cases: Iterable[Case]) -> Iterator[tuple[str, str, str]]:
    """(kind, what, message) on the run that the judge keeps of, and on the replies of the store that it replays."""
    if judge.keep is not None:
        runs = house.runs() if house else []
        there = f"there are {', '.join(runs) or 'none'}"
        held = judge.keep in runs
        said = f"run '{judge.keep}' is in the warehouse" if held else f"no finished run '{judge.keep}'; {there}"
        yield "ok" if held else "wrong", "judge.keep", said
    if judge.backend == "replay" and judge.foreign is None:
        asked, known = _replayed(judge, base, house, cases)
        yield "ok" if known else "wrong", "recorded replies", f"{known} of {asked} first calls are in the reply store"


def _replayed(judge: Judge, base: Path, house: Warehouse | None, cases: Iterable[Case]) -> tuple[int, int]:
    """(first calls, how many of them the reply store knows)."""
    with ReplyStore(house.replies if house and house.replies.is_file() else ":memory:") as store:
        who = rater(judge, base, store)
        requests = [request for case in cases if not too_short(case) for request in first_requests(case, who)]
        digests = {digest(request, who.backend.model) for request in requests}
        return len(digests), len(store.get_many(digests))

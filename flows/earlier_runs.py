"""What a warehouse already holds that a study will need: looked at, and never made where there is none."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from rubricflow.flows.plan import plan
from rubricflow.tasks.core.contracts.settings.judge import Judge
from rubricflow.tasks.core.contracts.tables.rubrics import Bundles
from rubricflow.tasks.core.llm.backends.replay import read_recording
from rubricflow.tasks.core.llm.reply_store import are_there, open_replies
from rubricflow.tasks.core.llm.request import Request, digest
from rubricflow.tasks.core.store.objects import MARKER
from rubricflow.tasks.core.store.warehouse import Warehouse
from rubricflow.tasks.grading.judge.grade import asks_nobody, first_requests
from rubricflow.tasks.grading.judge.rater import rater
from rubricflow.tasks.grading.judge.rows import Case, Rater


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
        is_there = judge.keep in runs
        sentence = f"run '{judge.keep}' is in the warehouse" if is_there else f"no finished run '{judge.keep}'; {there}"
        yield "ok" if is_there else "wrong", "judge.keep", sentence
    if judge.replies is not None:
        yield _recorded(judge, base / judge.replies, base, cases)
    elif judge.backend == "replay" and judge.foreign is None:
        calls, stored = _replayed(judge, base, house, cases)
        yield "ok" if stored else "wrong", "recorded replies", f"{stored} of {calls} first calls are in the reply store"


def _recorded(judge: Judge, path: Path, base: Path, cases: Iterable[Case]) -> tuple[str, str, str]:
    """On the file of recorded replies: whether it holds one to every first call; what memory shows is not known yet."""
    recording = read_recording(path)
    with open_replies(":memory:") as store:
        rater_of_judge = rater(judge, base, store)
    requests = _first(cases, rater_of_judge)
    missing = [request for request in requests if digest(request, rater_of_judge.backend.model) not in recording]
    if missing and not (judge.rubric_memory or judge.consistency_memory):
        return (
            "wrong",
            "recorded replies",
            recording.refuse(missing, len(requests), recording.speaker(judge.model)).rule,
        )
    return "ok", "recorded replies", f"{len(requests)} first calls are in {path}: {recording.header.in_words}"


def _first(cases: Iterable[Case], rater_of_judge: Rater) -> list[Request]:
    """What is asked first about the cases that are not settled without a call."""
    return [request for case in cases if not asks_nobody(case) for request in first_requests(case, rater_of_judge)]


def _replayed(judge: Judge, base: Path, house: Warehouse | None, cases: Iterable[Case]) -> tuple[int, int]:
    """(first calls, how many of them the reply store knows)."""
    with open_replies(house.replies if house and are_there(house.replies) else ":memory:") as store:
        rater_of_judge = rater(judge, base, store)
        digests = {digest(request, rater_of_judge.backend.model) for request in _first(cases, rater_of_judge)}
        return len(digests), len(store.get_many(digests))

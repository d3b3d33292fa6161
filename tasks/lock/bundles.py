"""The bundles of a study: its rubrics as it wants them judged, made anew where it says so, and locked."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tasks.contracts.backends import speaks
from tasks.contracts.bundle import Bundle, Protocol, Rubric
from tasks.contracts.settings.study import Study
from tasks.llm.backend import Backend
from tasks.llm.backends.offline import Offline
from tasks.llm.calls import telling
from tasks.llm.reply_store import Replies
from tasks.llm.stores import open_replies
from tasks.lock import offline
from tasks.lock.contract import MadeRubric
from tasks.lock.lock import lock
from tasks.lock.meaning import Remark, unexplained, untyped
from tasks.lock.remake import Maker, asks, ordered, presented, remade


class Finished(NamedTuple):
    """A rubric on its whole way."""

    judged: MadeRubric
    """As it is judged, with the calls that made it."""
    origin: str
    """Who wrote it, see the table `rubrics`."""
    bundle: Bundle
    unexplained: tuple[Remark, ...]
    """What its prompts lack."""


def finished(
    study: Study,
    item_rubrics: Mapping[str, Rubric],
    authored: Mapping[str, Rubric],
    items: Sequence[Mapping[str, Any]],
    replies: str | Path,
    model_by: Callable[[Replies], Backend],
) -> dict[str, Finished]:
    """The rubrics of a study with their bundles.

    item_rubrics: those of its items; authored: the ones among them that a person wrote. replies: the reply store, and
    model_by: the judge's model or what it said earlier, opened only where rubrics have to be made; where the judge is
    no language model, rules of thumb make them. InputError where nothing usable is given, ContractError where the
    study's protocol cannot judge a rubric.
    """
    made_rubrics = presented(item_rubrics, study.rubrics)
    if asks(study.rubrics):
        structured = study.judge.engine is None or study.judge.engine.structured
        with open_replies(replies) as store:
            backend = model_by(store) if speaks(study.judge) else Offline(offline.MODEL, offline.answer)
            with telling(backend, lambda line: print(f"lock: {line}")) as telling_backend:
                maker = Maker(telling_backend, store, study.judge.sampling, structured)
                made_rubrics = remade(made_rubrics, authored, items, study.rubrics, maker)
    types: dict[str, set[str]] = {name: set() for name in item_rubrics}
    for item in items:
        types[item["rubric_id"]].add(item["type"])
    rubrics = {}
    for name, judged in ordered(made_rubrics, study.rubrics).items():
        rubrics[name] = _finished(judged, _origin(study, name in authored), study, types[name])
    return rubrics


def _finished(judged: MadeRubric, origin: str, study: Study, item_types: Collection[str]) -> Finished:
    bundle = lock(judged.rubric, _protocol(study, origin), item_types, study.judge.evidence)
    return Finished(judged, origin, bundle, (*untyped(bundle, item_types), *unexplained(bundle)))


def _protocol(study: Study, origin: str) -> Protocol:
    """Where the criteria come from a model answer, a good answer says the same words; else only their author does."""
    by_origin = "allowed" if origin in ("reference_answer", "key_elements") else "refused"
    shown = "descending" if study.rubrics.variant == "levels_reversed" else "ascending"
    return study.judge.as_protocol().model_copy(update={"echo": study.judge.echo or by_origin, "levels_shown": shown})


def _origin(study: Study, is_authored: bool) -> str:
    if is_authored:
        return "induced" if study.rubrics.induce else "authored"
    assert study.rubrics.derive  # or `rubrics_of` would have refused the item
    return study.rubrics.derive.origin

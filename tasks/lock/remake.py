"""The rubrics of a study as it wants them judged: in the presentation it names, and with criteria induced anew."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple

from tasks.contracts.bundle import Rubric
from tasks.contracts.settings.engine import Sampling
from tasks.contracts.settings.study import RubricSettings
from tasks.llm.backend import Backend
from tasks.llm.reply_store import Replies
from tasks.lock.contract import MadeRubric, make
from tasks.lock.induce import check as check_induction
from tasks.lock.induce import induction
from tasks.lock.perturb import check as check_paraphrase
from tasks.lock.perturb import order_turned, paraphrase, prose_turned


class Maker(NamedTuple):
    """Who makes rubrics, and how it is asked."""

    backend: Backend
    replies: Replies
    sampling: Sampling
    structured: bool


def asks(plan: RubricSettings) -> bool:
    """Whether a maker is needed."""
    return plan.induce is not None or plan.variant == "paraphrased"


def presented(rubrics: Mapping[str, Rubric], plan: RubricSettings) -> dict[str, MadeRubric]:
    """The rubrics as the plan's variant has them, as far as nobody has to be asked.

    The order of criteria is left to `ordered`, after they are induced.
    """
    if plan.variant == "criteria_reversed":
        rubrics = {name: prose_turned(rubric) for name, rubric in rubrics.items()}
    return {name: MadeRubric(rubric) for name, rubric in rubrics.items()}


def remade(
    rubrics: Mapping[str, MadeRubric],
    authored: Collection[str],
    items: Iterable[Mapping[str, Any]],
    plan: RubricSettings,
    maker: Maker,
) -> dict[str, MadeRubric]:
    """The rubrics in other words, and then with criteria induced of them, where the plan says so.

    As in Rulers' experiment a variant is one of the author's rubric, and what is induced is induced from it. Only
    authored rubrics are induced. A question is shown to the induction only where the rubric has a single item.
    InputError names a rubric for which nobody gave anything usable.
    """
    remade = dict(rubrics)
    if plan.variant == "paraphrased":
        requests = [paraphrase(made.rubric, maker.sampling, maker.structured) for made in remade.values()]
        remade = make(requests, maker.backend, maker.replies, check_paraphrase)
    if plan.induce is None:
        return remade
    single_items = _single_items(items)
    requests = []
    for name, made in remade.items():
        if name in authored:
            request = induction(
                made.rubric,
                plan.induce,
                maker.sampling,
                question=single_items[name].get("question"),
                context=single_items[name].get("context"),
                descending=plan.variant == "levels_reversed",
                structured=maker.structured,
            )
            requests.append(request)
    for name, induced in make(requests, maker.backend, maker.replies, check_induction).items():
        remade[name] = MadeRubric(induced.rubric, (*remade[name].calls, *induced.calls))
    return remade


def ordered(rubrics: Mapping[str, MadeRubric], plan: RubricSettings) -> dict[str, MadeRubric]:
    """The rubrics with criteria and traits in the order of the plan's variant."""
    if plan.variant != "criteria_reversed":
        return dict(rubrics)
    return {name: MadeRubric(order_turned(made.rubric), made.calls) for name, made in rubrics.items()}


def _single_items(items: Iterable[Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    """Rubric → its item; an empty one where it has several."""
    item_of: dict[str, Mapping[str, Any]] = {}
    for item in items:
        item_of[item["rubric_id"]] = {} if item["rubric_id"] in item_of else item
    return item_of

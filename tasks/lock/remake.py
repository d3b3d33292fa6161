"""The rubrics of a study as it wants them judged: in the presentation it names, and with criteria induced anew."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple

from tasks.contracts.bundle import Rubric
from tasks.contracts.settings.engine import Sampling
from tasks.contracts.settings.study import RubricSettings
from tasks.llm.backend import Backend
from tasks.llm.kept import Replies
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


def presented(found: Mapping[str, Rubric], plan: RubricSettings) -> dict[str, MadeRubric]:
    """The rubrics as the plan's variant has them, as far as nobody has to be asked.

    The order of criteria is left to `ordered`, after they are induced.
    """
    return {
        name: MadeRubric(prose_turned(one) if plan.variant == "criteria_reversed" else one)
        for name, one in found.items()
    }


def remade(
    made: Mapping[str, MadeRubric],
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
    found = dict(made)
    if plan.variant == "paraphrased":
        asked = [paraphrase(one.rubric, maker.sampling, maker.structured) for one in found.values()]
        found = make(asked, maker.backend, maker.replies, check_paraphrase)
    if plan.induce is None:
        return found
    descending, alone = plan.variant == "levels_reversed", _alone(items)
    asked = [
        induction(
            one.rubric,
            plan.induce,
            maker.sampling,
            question=alone[name].get("question"),
            context=alone[name].get("context"),
            descending=descending,
            structured=maker.structured,
        )
        for name, one in found.items()
        if name in authored
    ]
    for name, one in make(asked, maker.backend, maker.replies, check_induction).items():
        found[name] = MadeRubric(one.rubric, (*found[name].calls, *one.calls))
    return found


def ordered(made: Mapping[str, MadeRubric], plan: RubricSettings) -> dict[str, MadeRubric]:
    """The rubrics with criteria and traits in the order of the plan's variant."""
    if plan.variant != "criteria_reversed":
        return dict(made)
    return {name: MadeRubric(order_turned(one.rubric), one.calls) for name, one in made.items()}


def _alone(items: Iterable[Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    """Rubric → its item; an empty one where it has several."""
    found: dict[str, Mapping[str, Any]] = {}
    for item in items:
        found[item["rubric_id"]] = {} if item["rubric_id"] in found else item
    return found

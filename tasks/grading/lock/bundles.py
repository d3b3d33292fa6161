"""The bundles of a study: its rubrics as it wants them judged, made anew where it says so, and locked."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

from rubricflow.tasks.core.contracts.backends import is_generative
from rubricflow.tasks.core.contracts.bundle import Bundle, Protocol, Rubric
from rubricflow.tasks.core.contracts.errors import ContractError
from rubricflow.tasks.core.contracts.protocols import PROTOCOLS
from rubricflow.tasks.core.contracts.settings.engine import Sampling
from rubricflow.tasks.core.contracts.settings.study import RubricSettings, Study
from rubricflow.tasks.core.llm.backend import Backend
from rubricflow.tasks.core.llm.backends.scripted import Offline
from rubricflow.tasks.core.llm.calls import telling
from rubricflow.tasks.core.llm.reply_store import Replies, open_replies
from rubricflow.tasks.grading.lock import offline
from rubricflow.tasks.grading.lock.induce import MadeRubric, induction, make
from rubricflow.tasks.grading.lock.induce import check as check_induction
from rubricflow.tasks.grading.lock.meaning import Remark, unexplained, untyped
from rubricflow.tasks.grading.lock.perturb import check as check_paraphrase
from rubricflow.tasks.grading.lock.perturb import order_turned, paraphrase, prose_turned
from rubricflow.tasks.grading.lock.rubric import parted
from rubricflow.tasks.grading.lock.shape import shaped, without_evidence


class Maker(NamedTuple):
    """Who makes rubrics, and how it is asked."""

    backend: Backend
    replies: Replies
    sampling: Sampling
    structured: bool


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
            backend = model_by(store) if is_generative(study.judge) else Offline(offline.MODEL, offline.answer)
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


# The rubrics of a study as it wants them judged: in the presentation it names, and with criteria induced anew.


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


# Locking a rubric into a bundle.


def lock(
    rubric: Rubric,
    protocol: Protocol,
    item_types: Collection[str] = ("item",),
    evidence: Literal["typed", "off"] = "typed",
) -> Bundle:
    """The bundle of a rubric, as the protocol judges it, in which a criterion with sub-points is made of these and not
    decided itself; ContractError where the protocol cannot judge the rubric.

    item_types: of the items that are scored with it. evidence: with 'off' no criterion demands any.
    """
    registered = PROTOCOLS[protocol.name]
    rubric = shaped(rubric, protocol, item_types)
    if evidence == "off":
        rubric = without_evidence(rubric)
    judged = [trait.id for trait in rubric.traits if trait.source == "judged"]
    holistic = registered.final_score == "judged"
    if judged and not (holistic or "traits" in registered.decides):
        raise ContractError(
            f"rubric '{rubric.rubric_id}': trait '{judged[0]}' is scored by the judge, which protocol "
            f"'{protocol.name}' does not ask for; derive it from criteria"
        )
    if protocol.final_score == "judged" and not holistic:
        raise ContractError(f"protocol '{protocol.name}' states no holistic score; choose another final_score")
    if holistic and protocol.final_score != "judged":
        raise ContractError(f"protocol '{protocol.name}' decides no criterion; its final_score is 'judged'")
    if judged and protocol.final_score == "weighted_points" and "criteria" not in registered.decides:
        raise ContractError(f"protocol '{protocol.name}' scores traits; its final_score is trait_mean or trait_sum")
    if protocol.final_score == "trait_sum":
        traits = [trait for trait in rubric.traits if trait.source == "judged"] or rubric.traits
        scale = rubric.scale
        low, high = sum(trait.min for trait in traits), sum(trait.max for trait in traits)
        if not (math.isclose(low, scale.min, abs_tol=1e-9) and math.isclose(high, scale.max, abs_tol=1e-9)):
            raise ContractError(
                f"rubric '{rubric.rubric_id}': its traits sum to {low:g}..{high:g}, its scale is "
                f"{scale.min:g}..{scale.max:g}"
            )
    decided, composites = parted(rubric)
    if holistic and not registered.decides and len({criterion.weight for criterion in decided}) > 1:
        protocol = protocol.model_copy(update={"show_weights": True})  # the score that is asked for depends on them
    return Bundle(
        text=rubric.text,
        scale=rubric.scale,
        traits=rubric.traits,
        criteria=decided,
        composites=composites,
        examples=rubric.examples if registered.shows_examples else (),
        protocol=protocol,
    )

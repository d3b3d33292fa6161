"""The bundles of a study: its rubrics as it wants them judged, made anew where it says so, and locked."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Literal, NamedTuple

from rubricflow.tasks.core.contracts.backends import is_generative
from rubricflow.tasks.core.contracts.bundle import Bundle, Protocol, Rubric, Trait
from rubricflow.tasks.core.contracts.errors import ContractError
from rubricflow.tasks.core.contracts.protocols import PROTOCOLS
from rubricflow.tasks.core.contracts.settings.engine import Sampling
from rubricflow.tasks.core.contracts.settings.judge import Judge
from rubricflow.tasks.core.contracts.settings.study import RubricSettings, Study
from rubricflow.tasks.core.llm.backend import Backend, Offline
from rubricflow.tasks.core.llm.calls import telling
from rubricflow.tasks.core.llm.reply_store import Replies, open_replies
from rubricflow.tasks.core.text.tokens import names_scores, tokens
from rubricflow.tasks.grading.lock import offline
from rubricflow.tasks.grading.lock.induce import (
    MadeRubric,
    check_paraphrase,
    induction,
    make,
    order_turned,
    paraphrase,
    prose_turned,
)
from rubricflow.tasks.grading.lock.induce import check as check_induction
from rubricflow.tasks.grading.lock.rubric import parted


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
    with ExitStack() as opened:
        maker = None
        if asks(study.rubrics):
            store = opened.enter_context(open_replies(replies))
            judge = study.judge.lead
            backend = model_by(store) if is_generative(judge) else Offline(offline.MODEL, offline.answer)
            opened.enter_context(telling(lambda line: print(f"lock: {line}")))
            structured = judge.engine is None or judge.engine.structured
            maker = Maker(backend, store, judge.sampling, structured)
        made = as_judged(item_rubrics, authored, items, study.rubrics, maker)
    types = types_of(items)
    rubrics = {}
    for name, judged in made.items():
        origin: str = "induced" if study.rubrics.induce else "authored"
        if name not in authored:
            assert study.rubrics.derive  # or `rubrics_of` would have refused the item
            origin = study.rubrics.derive.origin
        bundle = locked(study, study.judge, judged.rubric, origin, types[name])
        remarks = (*untyped(bundle), *unexplained(bundle))
        rubrics[name] = Finished(judged, origin, bundle, remarks)
    return rubrics


def types_of(items: Iterable[Mapping[str, Any]]) -> dict[str, set[str]]:
    """Rubric → the types of its items; items: rows with rubric_id and type."""
    types = defaultdict[str, set[str]](set)
    for item in items:
        types[item["rubric_id"]].add(item["type"])
    return types


def locked(study: Study, judge: Judge, rubric: Rubric, origin: str, item_types: Collection[str]) -> Bundle:
    """The bundle of a study's rubric under a judge's protocol; origin: as table `rubrics` has it."""
    shown = "descending" if study.rubrics.variant == "levels_reversed" else "ascending"
    # Where the criteria come from a model answer, a good answer repeats its words; else only their author does.
    echo = judge.lead.echo or ("allowed" if origin in ("reference_answer", "key_elements") else "refused")
    cited = "turns" if any(source.traces for source in study.data.sources) else "sentences"
    protocol = judge.as_protocol().model_copy(update={"echo": echo, "levels_shown": shown, "units": cited})
    return lock(rubric, protocol, item_types, judge.lead.evidence)


# The rubrics of a study as it wants them judged: in the presentation it names, and with criteria induced anew.


def asks(plan: RubricSettings) -> bool:
    """Whether a maker is needed."""
    return plan.induce is not None or plan.variant == "paraphrased"


def as_judged(
    rubrics: Mapping[str, Rubric],
    authored: Collection[str],
    items: Iterable[Mapping[str, Any]],
    plan: RubricSettings,
    maker: Maker | None,
) -> dict[str, MadeRubric]:
    """The rubrics in the plan's variant, and then with criteria induced of them, where the plan says so.

    maker: needed where the plan `asks` for one. As in Rulers' experiment a variant is one of the author's rubric, and
    what is induced is induced from it; the order of criteria is turned last. Only authored rubrics are induced. A
    question is shown to the induction only where the rubric has a single item. InputError names a rubric for which
    nobody gave anything usable.
    """
    turns = plan.variant == "criteria_reversed"
    made = {name: MadeRubric(prose_turned(rubric) if turns else rubric) for name, rubric in rubrics.items()}
    if maker and plan.variant == "paraphrased":
        requests = [paraphrase(one.rubric, maker.sampling, maker.structured) for one in made.values()]
        made = make(requests, maker.backend, maker.replies, check_paraphrase)
    if maker and plan.induce:
        single_items = {}
        for item in items:
            single_items[item["rubric_id"]] = {} if item["rubric_id"] in single_items else item
        requests = [
            induction(
                one.rubric,
                plan.induce,
                maker.sampling,
                question=single_items[name].get("question"),
                context=single_items[name].get("context"),
                descending=plan.variant == "levels_reversed",
                structured=maker.structured,
            )
            for name, one in made.items()
            if name in authored
        ]
        for name, induced in make(requests, maker.backend, maker.replies, check_induction).items():
            made[name] = MadeRubric(induced.rubric, (*made[name].calls, *induced.calls))
    return {name: MadeRubric(order_turned(one.rubric), one.calls) if turns else one for name, one in made.items()}


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
    kinds = [criterion for criterion in rubric.criteria if criterion.evidence_kind]
    if kinds and protocol.units == "sentences":
        raise ContractError(
            f"rubric '{rubric.rubric_id}': criterion '{kinds[0].id}' names an evidence_kind, which answers that are no "
            "traces do not have (leave it out, or say 'traces: true' where the source's responses are)"
        )
    rubric = shaped(rubric, protocol, item_types)
    if evidence == "off":
        criteria = tuple(criterion.model_copy(update={"evidence": "none"}) for criterion in rubric.criteria)
        rubric = rubric.model_copy(update={"criteria": criteria})
    judged = [trait for trait in rubric.traits if trait.source == "judged"]
    holistic, rule = registered.final_score == "judged", protocol.final_score
    if judged and not (holistic or "traits" in registered.decides):
        raise ContractError(
            f"rubric '{rubric.rubric_id}': trait '{judged[0].id}' is scored by the judge, which protocol "
            f"'{protocol.name}' does not ask for; derive it from criteria"
        )
    if rule == "judged" and not holistic:
        raise ContractError(f"protocol '{protocol.name}' states no holistic score; choose another final_score")
    if holistic and rule != "judged":
        raise ContractError(f"protocol '{protocol.name}' decides no criterion; its final_score is 'judged'")
    if judged and rule == "weighted_points" and "criteria" not in registered.decides:
        raise ContractError(f"protocol '{protocol.name}' scores traits; its final_score is trait_mean or trait_sum")
    scale = rubric.scale
    summed = judged or rubric.traits
    low = sum(trait.min for trait in summed)
    high = sum(trait.max for trait in summed)
    if rule == "trait_sum" and max(abs(low - scale.min), abs(high - scale.max)) > 1e-6:
        ends = f"{low:g}..{high:g}, its scale is {scale.min:g}..{scale.max:g}"
        raise ContractError(f"rubric '{rubric.rubric_id}': its traits sum to {ends}")
    decided, composites = parted(rubric)
    if holistic and not registered.decides and len({criterion.weight for criterion in decided}) > 1:
        protocol = protocol.model_copy(update={"show_weights": True})  # the score that is asked for depends on them
    return Bundle(
        text=rubric.guide,
        scale=rubric.scale,
        traits=rubric.traits,
        criteria=decided,
        composites=composites,
        examples=rubric.examples if registered.shows_examples else (),
        protocol=protocol,
    )


# What a protocol makes of a rubric before it is locked.


SUBSCORES = {
    "technical": ("accuracy", "clarity", "completeness", "terminology"),
    "argumentative": ("clarity", "coherence", "originality", "dialecticality"),
}
"""Item type → the traits that GradeAgentOps' judge scores (section 2.1)."""
GENERAL = ("accuracy", "clarity", "completeness")
"""What it scores of items of any other type: what both kinds of answers can be asked for, and nothing of one alone."""
COVERAGE = "coverage"


def shaped(rubric: Rubric, protocol: Protocol, item_types: Collection[str]) -> Rubric:
    """The rubric as the protocol judges it.

    points: criteria are covered or missed, sub-points each for itself, and the judge scores the rubric's judged traits,
    or those of its items' type on the rubric's scale, see `subscores`. judged_traits: the
    judge scores every trait. yes_no: every criterion is a question with yes or no. as_written: the rubric as it is.
    """
    match PROTOCOLS[protocol.name].shape:
        case "points":
            return _points(rubric, item_types)
        case "judged_traits":
            traits = tuple(trait.model_copy(update={"source": "judged"}) for trait in rubric.traits)
            return rubric.model_copy(update={"traits": traits})
        case "yes_no":
            questions = []
            for criterion in rubric.criteria:
                count = criterion.count and criterion.count.model_copy(update={"least": None})
                question = {"levels": ("no", "yes"), "evidence": "none", "count": count}
                questions.append(criterion.model_copy(update=question))
            return rubric.model_copy(update={"criteria": tuple(questions)})
        case "as_written":
            return rubric


def subscores(item_types: Collection[str]) -> tuple[str, ...]:
    """The published subscores where all items are of one published type, the general ones otherwise."""
    (name,) = item_types if len(item_types) == 1 else ("",)
    return SUBSCORES.get(name, GENERAL)


def _points(rubric: Rubric, item_types: Collection[str]) -> Rubric:
    judged = tuple(trait for trait in rubric.traits if trait.source == "judged")
    low, high, step = rubric.scale.bounds
    if not judged:
        names = subscores(item_types)
        judged = tuple(Trait(id=id_, name=id_.title(), min=low, max=high, step=step, source="judged") for id_ in names)
    coverage = Trait(id=COVERAGE, name="Coverage of the gold points", min=low, max=high, step=step)
    points = []
    for criterion in parted(rubric)[0]:
        kind, levels = "gold_point", ("missed", "covered")
        if criterion.weight < 0:
            kind, levels = "misconception", ("absent", "detected")
        point = {"trait": COVERAGE, "kind": kind, "levels": levels, "evidence": "local_quote", "parent": None}
        points.append(criterion.model_copy(update=point))
    return rubric.model_copy(update={"traits": (*judged, coverage), "criteria": tuple(points)})


# What a judge's prompt lacks: what is asked for has to stand on some part of the rubric that the prompt shows.


_WORD = re.compile(r"[^\W\d_]{2,}|[\u3400-\u9fff]")
_EXPLAINED = frozenset(GENERAL).union(*SUBSCORES.values())
"""Subscores of which the prompt says what they look at."""
_WRITE = "describe the scores in the rubric's text (Score 3: ...), or map the raters' guide to items.rubric_text"


class Remark(NamedTuple):
    """What a prompt lacks."""

    text: str
    """`field: what is missing; what to write`."""
    blind: bool
    """Whether nothing at all says what the numbers mean, so that replies can only be guesses."""


def unexplained(bundle: Bundle) -> list[Remark]:
    """What the prompts of a bundle's protocol ask for without saying what it means, in the order of what is asked: the
    score on the scale, the judged traits, the criteria."""
    registered = PROTOCOLS[bundle.protocol.name]
    if registered.is_trained:
        return []
    remarks = [*_of_score(bundle)] if registered.final_score == "judged" else []
    remarks += _of_traits(bundle) if "traits" in registered.decides else ()
    is_leveled = registered.quotes == "criteria" and registered.shape != "points"
    for criterion in bundle.criteria:
        # A point of a model answer may be one word: what is asked is whether it is said.
        if criterion.kind not in ("gold_point", "misconception") and len(tokens(criterion.text)) < 2:
            text = f"{criterion.id}: its text is a name, no statement; say what a response does that meets it"
            remarks.append(Remark(text, False))
        if is_leveled and not any(_WORD.search(level) for level in criterion.levels):
            numbers = ", ".join(criterion.levels)
            text = f"{criterion.id}: its levels ({numbers}) are numbers alone; say what each looks like"
            remarks.append(Remark(text, False))
    return remarks


def untyped(bundle: Bundle) -> list[Remark]:
    """That the subscores are the general ones, where the items' type has none of its own."""
    judged = tuple(trait.id for trait in bundle.judged)
    if PROTOCOLS[bundle.protocol.name].shape != "points" or judged != GENERAL:
        return []
    types = " or ".join(f"'{name}'" for name in SUBSCORES)
    problem = f"item type: no subscores are known for it, so the general ones are asked for ({', '.join(GENERAL)})"
    return [Remark(f"{problem}; name traits with source: judged, or map items.type to {types}", False)]


def _of_score(bundle: Bundle) -> Iterator[Remark]:
    """The score that the judge states: by prose that names scores, by anchors, or by points that are counted, which the
    prompt names next to the scale."""
    low, high, _ = bundle.scale.bounds
    is_counted = all(criterion.count for criterion in bundle.whole)
    if names_scores(bundle.text, *bundle.scale.bounds) or any(trait.anchors for trait in bundle.traits) or is_counted:
        return
    prose = bundle.text.strip()
    lacks = "the prose names fewer than two scores" if prose else "its prompt says of no score what it means"
    question = f"{bundle.protocol.name} asks for one score from {low:g} to {high:g}"
    yield Remark(f"text: {question}, and {lacks}; {_WRITE}", not prose)


def _of_traits(bundle: Bundle) -> Iterator[Remark]:
    """The traits that the judge scores: by their anchors, by the prose, or as published subscores."""
    registered = PROTOCOLS[bundle.protocol.name]
    prose = bundle.text.strip()
    explained = _EXPLAINED if registered.shape == "points" else frozenset()
    judged = [trait for trait in bundle.judged if trait.id not in explained]
    bare = [trait for trait in judged if not trait.anchors and not names_scores(prose, *trait.bounds)]
    if not bare:
        return
    # What makes each up is listed where no quote is asked for.
    is_listed = registered.quotes is None and all(any(bundle.of_trait(trait.id)) for trait in bare)
    lacks = "the prose names fewer than two of these" if prose else "its prompt says of none what it means"
    names = ", ".join(trait.id for trait in bare)
    problem = f"traits {names}: {bundle.protocol.name} asks for a score of each, and {lacks}"
    yield Remark(f"{problem}; give them anchors, or {_WRITE}", not prose and not is_listed)

"""Itemised rejudging: what an earlier run of the same rater decided stands where nothing that it was decided by has
changed, and only the rest is asked."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import pyarrow.compute as pc
import pyarrow.dataset as ds

from rubricflow.tasks.core.contracts.bundle import Bundle, Criterion
from rubricflow.tasks.core.contracts.errors import InputError
from rubricflow.tasks.core.contracts.protocols import PROTOCOLS, protocols_where
from rubricflow.tasks.core.contracts.settings.judge import Judge
from rubricflow.tasks.core.contracts.tables.data import Items, Responses
from rubricflow.tasks.core.contracts.tables.judging import Judgments
from rubricflow.tasks.core.contracts.tables.rubrics import Bundles
from rubricflow.tasks.core.llm.request import cached_by_identity
from rubricflow.tasks.core.store.catalogue import read_manifest
from rubricflow.tasks.core.store.warehouse import Run
from rubricflow.tasks.grading.judge import prompt
from rubricflow.tasks.grading.judge.evidence import HOLDS, INVALID, ground, subject_of
from rubricflow.tasks.grading.judge.rows import Case, Decision, EarlierDecision
from rubricflow.tasks.grading.judge.stored_cases import sheets_of

_KEPT_OF = ((Judgments, "judge"), (Responses, "ingest"), (Items, "ingest"), (Bundles, "lock"))


_LEXICAL = HOLDS - {"semantic"}
_RULES = (
    "name",
    "part_size",
    "failed_quote",
    "repair",
    "evidence_match",
    "echo",
    "level",
    "shared_quotes",
)


_RATER = ("protocol", "backend", "model", "foreign", "truth", "examples")
_ENGINE = ("model", "effort", "structured", "logprobs", "options")


class Earlier(NamedTuple):
    """What an earlier run knew of an item: its bundle, the question and the material that belongs to it."""

    bundle: Bundle
    question: str
    context: str | None


def differing(earlier: Mapping[str, Any], plan: Judge) -> list[str]:
    """Names of the settings of `judge` that make this plan's rater another one than that of an earlier study; how it is
    reached, how fast it is asked and how long a reply may be make no other one: what was cut off does not stand.

    earlier: section `judge` of that study as JSON.
    """
    present = plan.model_dump(mode="json")
    names = [name for name in _RATER if earlier.get(name) != present[name]]
    if {**present["sampling"], "max_tokens": None} != {**(earlier.get("sampling") or {}), "max_tokens": None}:
        names.append("sampling")
    for engine in ("engine", "repair_engine"):
        before = earlier.get(engine) or {}
        after = present[engine] or {}
        names += [f"{engine}.{key}" for key in _ENGINE if before.get(key) != after.get(key)]
    return names


def with_kept(
    cases: Iterable[Case],
    earlier: Mapping[str, Earlier],
    texts: Mapping[str, str],
    rows: Iterable[Mapping[str, Any]],
) -> list[Case]:
    """The cases with what stands of an earlier run.

    earlier: item → what that run knew of it; texts: response → its text then; rows: its judgments.
    """
    judgments = defaultdict[str, list[Mapping[str, Any]]](list)
    for row in rows:
        judgments[row["response_id"]].append(row)
    filled = []
    for case in cases:
        item = earlier.get(case.item_id)
        if item is not None and texts.get(case.response_id) == case.text:
            same = unchanged(item, case.bundle, case.question, case.context)
            case = replace(case, earlier=kept_decisions(judgments[case.response_id], case, same))
        filled.append(case)
    return filled


@cached_by_identity
def unchanged(earlier: Earlier, bundle: Bundle, question: str, context: str | None) -> frozenset[str]:
    """Criteria of a bundle that the judge would see, and the verifier would check, as in the earlier run.

    That is so where protocol and rules of evidence are the same, and the system message of a call for this criterion
    alone is the same to the byte: it holds the question, its material, the criterion and, where the protocol shows
    them, the rubric's prose and the weights. A weight that is not shown may change, and what levels earn of it.
    """
    old = earlier.bundle
    if any(getattr(old.protocol, rule) != getattr(bundle.protocol, rule) for rule in _RULES):
        return frozenset()
    same = set()
    for before in old.criteria:
        criterion = next((one for one in bundle.criteria if one.id == before.id), None)
        if criterion is not None and _decisive_fields(before) == _decisive_fields(criterion):
            old_prompt = prompt.system(old, (before,), earlier.question, earlier.context)
            if old_prompt == prompt.system(bundle, (criterion,), question, context):
                same.add(criterion.id)
    return frozenset(same)


def _decisive_fields(criterion: Criterion) -> dict[str, Any]:
    """What an answer and its verification may depend on; of the weight only its sign."""
    content = criterion.model_dump(exclude={"weight", "earns", "parent", "excludes", "count"})
    return content | {"is_credit": criterion.weight >= 0}


def kept_decisions(
    rows: Iterable[Mapping[str, Any]], case: Case, criteria: frozenset[str]
) -> dict[str, EarlierDecision]:
    """What stands of an earlier run's judgments of the case's response, whose text is the same.

    rows: of table `judgments`; criteria: see `unchanged`. A decision that was unscored does not stand, nor one of which
    a quote is not what it was: new words of the rubric may have made it an echo.
    """
    by_id = {criterion.id: criterion for criterion in case.bundle.criteria if criterion.id in criteria}
    subject = subject_of(case)
    decisions = {}
    for row in rows:
        criterion = by_id.get(row["criterion_id"])
        if criterion is None or row["decision"] is None or row["stated"] is None:
            continue
        quotes = [quote for quote in row["evidence"] if quote["status"] in _LEXICAL]
        if all(ground(q["quote"], q["unit_id"], criterion, subject)[0] == q["status"] for q in quotes):
            decision = Decision(
                criterion.id,
                row["decision"],
                row["stated"],
                evidence=tuple(row["evidence"]),
                verified=row["verified"],
                action=row["action"],
            )
            decisions[criterion.id] = EarlierDecision(decision, row["level_probabilities"])
    return decisions


def signals(case: Case) -> Counter[str]:
    """What the verifier counted of the decisions that stand, as far as their rows tell, and `kept`, how many there are.

    Left out are values that were brought into form and evidence without a quote.
    """
    counts = Counter[str]()
    kinds = {criterion.id: criterion.evidence for criterion in case.bundle.criteria}
    for name, (decision, _) in case.earlier.items():
        counts["kept"] += 1
        for quote in decision.evidence:
            counts.update(("quotes", quote["status"]))
            counts["invalid_evidence"] += quote["status"] in INVALID
        if decision.action != "none":
            counts.update(("unsupported", decision.action))
        elif decision.verified is False and kinds[name] == "weakly_groundable":
            counts["weak"] += 1
    return +counts


# What stands of the earlier run that a study keeps of.


def keeping_of(run: Run, plan: Judge, rater_id: str) -> Callable[[list[Case]], list[Case]]:
    """Gives cases what stands of the run that the study keeps of; the same cases where it keeps of none.

    InputError for a protocol of which single decisions cannot stand, a run that is not there, and another rater.
    """
    if plan.keep is None:
        return lambda cases: cases
    if not PROTOCOLS[plan.protocol].keeps_decisions:
        rule = f"protocol '{plan.protocol}' decides no single criteria"
        names = protocols_where(lambda protocol: protocol.keeps_decisions)
        raise InputError(rule, field="judge.keep", hint=f"use {names}")
    if plan.keep not in run.warehouse.runs():
        there = f"there are {', '.join(run.warehouse.runs()) or 'none'}"
        raise InputError(f"the warehouse holds no finished run '{plan.keep}'", field="judge.keep", hint=there)
    earlier = run.warehouse.run(plan.keep)
    judgments, responses, items, bundles = (earlier.ref(row, stage) for row, stage in _KEPT_OF)
    changed = differing(read_manifest(earlier)["identity"]["study"]["judge"], plan)
    raters = pc.unique(earlier.read(judgments, ["rater_id"])["rater_id"]).to_pylist()
    others = [name for name in raters if name != rater_id]
    if changed or others:
        settings = f"it differs in {', '.join(changed)}"
        hint = settings if changed else f"that was '{others[0]}', this is '{rater_id}'"
        raise InputError(f"run '{plan.keep}' was judged by another rater", field="judge.keep", hint=hint)
    earlier_items = {}
    for name, (row, bundle, _) in sheets_of(earlier, items, bundles).items():
        earlier_items[name] = Earlier(bundle, row["question"], row["context"])

    def keeping(cases: list[Case]) -> list[Case]:
        mine = ds.field("response_id").isin([case.response_id for case in cases])
        rows = earlier.read(responses, ["response_id", "text"], mine)
        texts = dict(zip(rows["response_id"].to_pylist(), rows["text"].to_pylist(), strict=True))
        return with_kept(cases, earlier_items, texts, earlier.read(judgments, where=mine).to_pylist())

    return keeping

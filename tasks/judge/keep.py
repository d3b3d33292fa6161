"""Itemised rejudging: what an earlier run of the same rater decided stands where nothing that it was decided by has
changed, and only the rest is asked."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple

from tasks.contracts.bundle import Bundle, Criterion
from tasks.contracts.settings.judge import Judge
from tasks.judge import prompt
from tasks.judge.decision import Decision
from tasks.judge.evidence import HOLDS, INVALID, ground, subject_of
from tasks.judge.protocol import Part
from tasks.judge.question import Question
from tasks.judge.relevance import wanted
from tasks.judge.rows import Case, Kept
from tasks.llm.request import Same

_LEXICAL = HOLDS - {"semantic"}
_RULES = (
    "name",
    "criteria_per_call",
    "failed_quote",
    "repair",
    "evidence_match",
    "echo",
    "level",
    "shared_quotes",
    "relevance",
)


_RATER = ("protocol", "backend", "model", "foreign", "truth", "examples")
_ENGINE = ("model", "structured", "logprobs", "options")


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
    now = plan.model_dump(mode="json")
    draws = {**now["sampling"], "max_tokens": None} != {**(earlier.get("sampling") or {}), "max_tokens": None}
    engines = [(name, earlier.get(name) or {}, now[name] or {}) for name in ("engine", "repair_engine")]
    others = [name for name in _RATER if earlier.get(name) != now[name]]
    return (
        others
        + ["sampling"] * draws
        + [f"{name}.{key}" for name, was, made in engines for key in _ENGINE if was.get(key) != made.get(key)]
    )


def with_kept(
    cases: Iterable[Case],
    known: Mapping[str, Earlier],
    texts: Mapping[str, str],
    rows: Iterable[Mapping[str, Any]],
) -> list[Case]:
    """The cases with what stands of an earlier run.

    known: item → what that run knew of it; texts: response → its text then; rows: its judgments, see `standing`.
    """
    of = defaultdict[str, list[Mapping[str, Any]]](list)
    for row in rows:
        of[row["response_id"]].append(row)
    found = []
    for case in cases:
        earlier = known.get(case.item_id)
        if earlier is not None and texts.get(case.response_id) == case.text:
            case = replace(case, kept=standing(of[case.response_id], case, unchanged(earlier, case)))
        found.append(case)
    return found


def unchanged(earlier: Earlier, case: Case) -> frozenset[str]:
    """Criteria of the case's bundle that the judge would see, and the verifier would check, as in the earlier run.

    That is so where protocol and rules of evidence are the same, and the system message of a call for this criterion
    alone is the same to the byte: it holds the question, its material, the criterion and, where the protocol shows
    them, the rubric's prose and the weights. A weight that is not shown may change.
    """
    return _unchanged(Same(earlier), Same(case.bundle), case.question, case.context)


def standing(rows: Iterable[Mapping[str, Any]], case: Case, criteria: frozenset[str]) -> dict[str, Kept]:
    """What stands of an earlier run's judgments of the case's response, whose text is the same.

    rows: of table `judgments`; criteria: see `unchanged`. A decision that was unscored does not stand, nor one of which
    a quote is not what it was: new words of the rubric may have made it an echo.
    """
    of = {criterion.id: criterion for criterion in case.bundle.criteria if criterion.id in criteria}
    subject = subject_of(_question(case))
    found = {}
    for row in rows:
        criterion = of.get(row["criterion_id"])
        if criterion is None or row["decision"] is None or row["stated"] is None:
            continue
        quotes = [quote for quote in row["evidence"] if quote["status"] in _LEXICAL]
        if all(ground(q["quote"], q["unit_id"], criterion, subject)[0] == q["status"] for q in quotes):
            found[criterion.id] = Kept(_decision(row), row["level_probabilities"])
    return found


def open_parts(parts: list[Part], kept: Mapping[str, Kept]) -> list[Part]:
    """The parts with what is still to be asked for; one of which everything stands is left out."""
    if not kept:
        return parts
    names = frozenset(kept)
    rest = ((part, _rest(Same(part.criteria), names)) for part in parts)
    return [part._replace(criteria=criteria) for part, criteria in rest if criteria or not part.criteria]


def signals(case: Case) -> Counter[str]:
    """What the verifier counted of the decisions that stand, as far as their rows tell, and `kept`, how many there are.

    Left out are values that were brought into form and evidence without a quote.
    """
    found = Counter[str]()
    kinds = {criterion.id: criterion.evidence for criterion in case.bundle.criteria}
    for name, (decision, _) in case.kept.items():
        found["kept"] += 1
        for quote in decision.evidence:
            found.update(("quotes", quote["status"]))
            found["invalid_evidence"] += quote["status"] in INVALID
        if decision.action != "none":
            found.update(("unsupported", decision.action))
        elif decision.verified is False and kinds[name] == "weakly_groundable":
            found["weak"] += 1
    return +found


@lru_cache(maxsize=1024)
def _unchanged(earlier: Same[Earlier], bundle: Same[Bundle], question: str, context: str | None) -> frozenset[str]:
    old, new = earlier.value, bundle.value
    if any(getattr(old.bundle.protocol, rule) != getattr(new.protocol, rule) for rule in _RULES):
        return frozenset()
    if new.protocol.relevance and [*map(wanted, old.bundle.criteria)] != [*map(wanted, new.criteria)]:
        return frozenset()  # a quote is held against all criteria
    known = {criterion.id: criterion for criterion in old.bundle.criteria}
    same = set()
    for criterion in new.criteria:
        was = known.get(criterion.id)
        if was is None or _held_by(was) != _held_by(criterion):
            continue
        seen = prompt.system(old.bundle, (was,), old.question, old.context)
        if seen == prompt.system(new, (criterion,), question, context):
            same.add(criterion.id)
    return frozenset(same)


def _held_by(criterion: Criterion) -> dict[str, Any]:
    """What an answer and its verification may depend on; of the weight only its sign."""
    content = criterion.model_dump(exclude={"weight", "parent", "excludes", "count"})
    return content | {"earns": criterion.weight >= 0}


@lru_cache(maxsize=1024)
def _rest(criteria: Same[tuple[Criterion, ...]], kept: frozenset[str]) -> tuple[Criterion, ...]:
    """One tuple for all responses of which the same stands: caches know it by its identity."""
    return tuple(criterion for criterion in criteria.value if criterion.id not in kept)


def _question(case: Case) -> Question:
    return Question(
        bundle=case.bundle,
        criteria=case.bundle.criteria,
        text=case.text,
        units=case.units,
        item_id=case.item_id,
        question=case.question,
        context=case.context,
    )


def _decision(row: Mapping[str, Any]) -> Decision:
    return Decision(
        row["criterion_id"],
        row["decision"],
        row["stated"],
        None,
        tuple(row["evidence"]),
        verified=row["verified"],
        action=row["action"],
    )

"""What a judge is asked about a rubric: its critique, and a revision of it.

The judge says what needs reading; that ids exist, quotes stand in the guide, counts rise and the rubric can be locked
is looked at by code, and what breaks one of these is asked for again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TypeVar, get_args

from pydantic import ValidationError

from rubricflow.tasks.core.contracts.bundle import Criterion, EvidenceType, Rubric
from rubricflow.tasks.core.contracts.settings.engine import Sampling
from rubricflow.tasks.core.llm.ask import Checked, all_again, artifact_in, ask_amending, usable
from rubricflow.tasks.core.llm.backend import Backend
from rubricflow.tasks.core.llm.reply_store import Replies
from rubricflow.tasks.core.llm.request import Reply, Request, contract_request
from rubricflow.tasks.core.llm.schema import JsonDict, JsonObject, compact, form, record, several, text
from rubricflow.tasks.core.text.quotes import find
from rubricflow.tasks.core.text.templates import Templates
from rubricflow.tasks.core.text.tokens import tokens, whole
from rubricflow.tasks.grading.rubrics.findings import RULES, RubricFinding, Severity, decided
from rubricflow.tasks.grading.rubrics.item_analysis import MarkedAnswer, MarksOfRubric
from rubricflow.tasks.grading.rubrics.revision import Problem, Reasons

PROMPTS = Templates(Path(__file__).with_name("prompts"))
KINDS: Mapping[str, str] = {
    **RULES,
    "not_in_guide": "the guide asks for nothing of the kind",
    "missing": "the guide pays for what no criterion names",
    "too_strict": "right answers by the guide do not meet it",
    "too_generous": "wrong answers by the guide meet it",
    "unclear": "judges will read it differently",
}
_WRONG = frozenset(KINDS) - {"two_facts", "overlap", "middle_level", "comparison", "unclear"}
MOST_REMARKS, MOST_CRITERIA, MOST_GROUPS, MOST_NOTES = 24, 60, 12, 12
_SHOWN = 6
"""Answers, and groups of sentences, that a reviser is shown at most."""
_LONGEST = 1_500
"""Characters of an answer that it is shown."""
_COPIED = 8
"""Words in a row that a note may not share with an answer."""
_TOKENS, _TOKENS_PER_CRITERION = 1_024, 160
_ID = r"^[A-Za-z][A-Za-z0-9_]{0,23}$"
T = TypeVar("T")


@dataclass(frozen=True)
class ReviewedRubric:
    """What is asked about; the `data` of its request."""

    rubric: Rubric
    """With the guide in its text."""
    question: str
    """Of its item, where it has a single one; else empty."""
    base: Rubric
    """What a revision starts from: the rubric with what code has mended."""
    findings: tuple[RubricFinding, ...] = ()
    """What a revision is told of."""
    marks: MarksOfRubric | None = None
    """What marks say of answers that a reviser may see."""
    marked: tuple[MarkedAnswer, ...] = ()
    """Such answers with the scores that people gave."""


@dataclass(frozen=True)
class Reviewer:
    """Who is asked, and how."""

    backend: Backend
    replies: Replies
    sampling: Sampling
    structured: bool


def critiques(subjects: Sequence[ReviewedRubric], judge: Reviewer) -> list[RubricFinding]:
    """The judge's remarks on each rubric, as findings. InputError where no reply can be used."""
    kinds = "\n".join(f"- {name}: {words}" for name, words in KINDS.items())
    requests = []
    for subject in subjects:
        values = {"kinds": kinds, "checklist": compact(checklist(subject.rubric))}
        requests.append(_request("critique", subject, judge, critique_schema(subject.rubric), values))
    return [finding for found in _asked(requests, judge, check_critique, "critique") for finding in found]


def revisions(subjects: Sequence[ReviewedRubric], judge: Reviewer, problem: Problem) -> list[tuple[Rubric, Reasons]]:
    """A revised rubric for each, which can be locked, and why it is as it is. InputError where no reply can be used."""
    requests = [
        _request("revise", subject, judge, revision_schema(subject.base), _shown(subject)) for subject in subjects
    ]
    return _asked(requests, judge, lambda request, reply: check_revision(request, reply, problem), "revision")


def _asked(
    requests: Sequence[Request], judge: Reviewer, check: Callable[[Request, Reply], Checked[T]], name: str
) -> list[T]:
    answers = ask_amending(requests, judge.backend, judge.replies, check, all_again(PROMPTS))
    return [usable(answer, name, "ask another model, or leave --ask out") for answer in answers]


def _request(
    role: str, subject: ReviewedRubric, judge: Reviewer, contract: JsonDict, values: dict[str, str]
) -> Request:
    rubric = subject.rubric
    low, high, step = rubric.scale.bounds
    filled = {
        "title": rubric.title or rubric.rubric_id,
        "question": f"\nThe question:\n{subject.question}\n" if subject.question else "",
        "guide": rubric.guide.strip() or "(there is none but the checklist)",
        "scale": f"{low:g} to {high:g} in steps of {step:g}",
        "shape": form(contract),
        "answers": "",
        "marked": "",
        **values,
    }
    longest = _TOKENS + _TOKENS_PER_CRITERION * len(rubric.criteria)
    sections = {name for name in ("answers", "marked") if filled[name]}
    content = PROMPTS.fill(role, filled, frozenset({*sections, "shown" if sections else "unshown"}))
    about = {"role": role, "subject": rubric.rubric_id, "data": subject}
    return contract_request(content, contract, judge.sampling, longest, judge.structured, **about)


def checklist(rubric: Rubric) -> JsonDict:
    """A rubric in the form in which a judge is shown it and gives it back: {"groups": […], "criteria": […]}."""
    decides = {criterion.id for criterion in decided(rubric)}
    groups, criteria = [], []
    for one in rubric.criteria:
        place: JsonDict = {"id": one.id, "trait": one.trait, "group": one.parent or ""}
        if one.id not in decides:
            count = one.count
            points = list(map(whole, count.points if count else (0.0, one.weight)))
            groups.append(place | {"text": one.text, "points": points, "needs": list(count.needs) if count else []})
        else:
            own = {} if one.parent else {"points": whole(one.weight)}
            criteria.append(place | {"text": one.text, "levels": list(one.levels), "evidence": one.evidence} | own)
    return {"groups": groups, "criteria": criteria}


# The critique.


def critique_schema(rubric: Rubric) -> JsonDict:
    """The contract: {"remarks": [{"criteria": [id], "kind", "quote", "remark", "wording"}]}; quote and wording may be
    empty."""
    ids = {"type": "string", "enum": [criterion.id for criterion in rubric.criteria]}
    remark = {
        "criteria": several(ids, 0, len(rubric.criteria)),
        "kind": {"type": "string", "enum": list(KINDS)},
        "quote": {"type": "string", "maxLength": 400, "description": "words of the guide, or nothing"},
        "remark": text(500, "what is the matter"),
        "wording": {"type": "string", "maxLength": 400, "description": "proposed wording, or nothing"},
    }
    return record({"remarks": several(record(remark), 0, MOST_REMARKS)})


def check_critique(request: Request, reply: Reply) -> Checked[list[RubricFinding]]:
    """The remarks of a reply; violations where it breaks the contract, or one quotes what does not stand in the
    guide."""
    rubric: Rubric = request.data.rubric
    read = artifact_in(reply, critique_schema(rubric))
    if read.value is None:
        return Checked(None, read.violations)
    wrong = []
    found = []
    for number, remark in enumerate(read.value["remarks"], 1):
        kind, words, quote, wording = (remark[key].strip() for key in ("kind", "remark", "quote", "wording"))
        if quote and find(quote, rubric.guide) is None:
            wrong.append(f"remark {number} quotes what does not stand in the guide: '{quote[:80]}'")
        said = f"{words} (guide: “{quote}”)" if quote else words
        severity: Severity = "wrong" if kind in _WRONG else "doubtful"
        found.append(RubricFinding(rubric.rubric_id, tuple(remark["criteria"]), kind, severity, said, wording))
    return Checked(None if wrong else found, tuple(wrong[:5]))


# The revision.


def revision_schema(rubric: Rubric) -> JsonDict:
    """The contract: {"groups": [...], "criteria": [...], "notes": [{"note", "why"}], "reasons": [{"id", "why"}]}, with
    groups and criteria as of `checklist`, and criteria with `from`. A form shows eight members of a shape: none has
    more."""
    name = {"type": "string", "pattern": _ID, "minLength": 1, "maxLength": 24, "description": "id"}
    group_of = {"type": "string", "maxLength": 24, "description": "id of its group, or nothing"}
    old = {"type": "string", "enum": [criterion.id for criterion in rubric.criteria]}
    trait = {"type": "string", "enum": [trait.id for trait in rubric.traits]}
    place = {"id": name, "trait": trait, "group": group_of, "text": text(300, "statement")}
    number = {"type": "number"}
    criterion = {
        "from": several(old, 0, 6),
        "levels": several(text(160, "level"), 2, 4),
        "evidence": {"type": "string", "enum": [kind for kind in get_args(EvidenceType) if kind != "none"]},
        "points": number,
    }
    group = {"points": several(number, 2, 20), "needs": several(name, 0, 5)}
    reasons = several(record({"id": name, "why": text(300, "why")}), 0, MOST_CRITERIA + len(rubric.criteria))
    return record(
        {
            "groups": several(record(place | group), 0, MOST_GROUPS),
            "criteria": several(record(place | criterion), 1, MOST_CRITERIA),
            "notes": several(record({"note": text(400, "rule"), "why": text(300, "why")}), 0, MOST_NOTES),
            "reasons": reasons,
        }
    )


def _shown(subject: ReviewedRubric) -> dict[str, str]:
    """What a reviser is shown of a rubric besides its guide."""
    remarks = []
    for finding in subject.findings:
        about = ", ".join(finding.criteria) or "the checklist"
        proposed = f" Proposed: {finding.wording}" if finding.wording else ""
        if finding.rule != "unnamed":  # what answers say stands among these, as data
            remarks.append(line(f"- {about}: {finding.text}{proposed}"))
    answers = []
    for one in subject.marks.apart[:_SHOWN] if subject.marks else ():
        answers.append({"answer": one.text[:_LONGEST], "people": one.people, "checklist": round(one.checklist, 2)})
    for group in subject.marks.unnamed[:_SHOWN] if subject.marks else ():
        answers.append({"sentence": group.representative[:_LONGEST], "answers": len(group.answers)})
    traits = ", ".join(f"{trait.id} ({trait.name}, {trait.min:g} to {trait.max:g})" for trait in subject.rubric.traits)
    marked = [compact({"score": whole(one.score), "answer": one.text}) for one in subject.marked]
    return {
        "traits": f"Traits: {traits}.",
        "checklist": compact(checklist(subject.base)),
        "remarks": "\n".join(remarks) or "- nothing that was found",
        "answers": "\n".join(map(compact, answers)),
        "marked": "\n".join(marked),
        "top": f"{subject.rubric.scale.max - subject.rubric.scale.min:g}",
    }


def check_revision(request: Request, reply: Reply, problem: Problem) -> Checked[tuple[Rubric, Reasons]]:
    """The rubric of a reply; violations where it breaks the contract, a criterion of the present one is forgotten, an
    id is taken for something else, or the rubric cannot be locked."""
    subject: ReviewedRubric = request.data
    read = artifact_in(reply, revision_schema(subject.base))
    if read.value is None:
        return Checked(None, read.violations)
    try:
        rubric, reasons = _rubric(subject.base, read.value)
    except ValidationError as error:
        first = error.errors()[0]
        return Checked(None, (f"malformed: {first['msg']} at {'.'.join(map(str, first['loc']))}",))
    wrong = list(_misused(subject.base, rubric, reasons))
    marks = subject.marks
    is_shown = subject.marked or (marks and (marks.apart or marks.unnamed))
    theirs = set(chain.from_iterable(_runs(answer.text) for answer in subject.marked))
    for number, note in enumerate(rubric.notes, 1):
        if not theirs.isdisjoint(_runs(note)):  # every judge sees a note, and whoever reads the rubric
            wrong.append(f"note {number} copies {_COPIED} words of a student in a row: say it as a rule")
        if not is_shown and note not in subject.base.notes:
            wrong.append(f"note {number} is new, and no answer was shown that it could rest on: leave it out")
    if not wrong and (broken := problem(rubric)):
        wrong = [f"unusable: {broken}"]
    return Checked(None if wrong else (rubric, reasons), tuple(wrong[:5]))


def _rubric(base: Rubric, artifact: JsonObject) -> tuple[Rubric, Reasons]:
    """The base with the criteria of an artifact, without its examples, which label the old ones."""
    old = {criterion.id: criterion for criterion in base.criteria}
    criteria = []
    sources = {}
    for group in artifact["groups"]:
        sign = -1 if group["id"] in old and old[group["id"]].weight < 0 else 1
        count = {"points": group["points"], "needs": group["needs"]}
        criteria.append(_placed(group) | {"weight": sign * group["points"][-1], "count": count})
    for one in artifact["criteria"]:
        sources[one["id"]] = tuple(dict.fromkeys(one["from"]))
        first = next((old[name] for name in sources[one["id"]]), None)
        weight = 1 if one["group"] else one["points"]
        kind = first.kind if first else "misconception" if weight < 0 else "gold_point"
        own = {"weight": weight, "kind": kind, "levels": one["levels"], "evidence": one["evidence"]}
        if first and not one["group"] and one["levels"] == list(first.levels):
            own["earns"] = first.earns
        criteria.append(_placed(one) | own | {"evidence_from": first.evidence_from if first else "response"})
    whys = {one["id"]: line(one["why"]) for one in artifact["reasons"]}
    notes = {line(one["note"]): line(one["why"]) for one in artifact["notes"]}
    made = tuple(map(Criterion.model_validate, criteria))
    update = {"criteria": made, "examples": (), "notes": tuple(notes)}
    return base.model_copy(update=update), Reasons(sources, whys, notes)


def _placed(one: JsonObject) -> JsonDict:
    return {"id": one["id"], "trait": one["trait"], "parent": one["group"] or None, "text": line(one["text"])}


def line(text: str) -> str:
    """A text on one line."""
    return " ".join(text.split())


def _misused(base: Rubric, new: Rubric, reasons: Reasons) -> Iterator[str]:
    """Criteria that are forgotten; ids that meant something else; groups of nothing."""
    old = {one.id for one in base.criteria}
    was_decided = {one.id for one in decided(base)}
    used = {name for names in reasons.sources.values() for name in names}
    if forgotten := sorted(was_decided - used - reasons.whys.keys()):
        yield f"nothing is said of {', '.join(forgotten)}: name it in a 'from', or under 'reasons' why it is left out"
    for name, names in reasons.sources.items():
        if name in old and name not in names:
            yield f"'{name}' was another criterion's id: take a new one"
    groups = {one.id for one in new.criteria} - reasons.sources.keys()
    if lost := sorted(groups - {one.parent for one in new.criteria}):
        yield f"group {', '.join(lost)} has no member"


def _runs(words: str) -> Iterator[tuple[str, ...]]:
    """Every run of as many words as nobody has in common by chance."""
    return zip(*(tokens(words)[start:] for start in range(_COPIED)), strict=False)

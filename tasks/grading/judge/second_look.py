"""The second look at the shards of a judge: what is looked at again, what a further judge says of it, and the tables
that what it stated gives way to."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.dataset as ds

from rubricflow.tasks.core.contracts.backends import BACKENDS, PromptedModel
from rubricflow.tasks.core.contracts.errors import BackendError
from rubricflow.tasks.core.contracts.schema import Row, TableRef
from rubricflow.tasks.core.contracts.settings.engine import Sampling
from rubricflow.tasks.core.contracts.settings.judge import Judge
from rubricflow.tasks.core.contracts.tables.data import CALIBRATES
from rubricflow.tasks.core.contracts.tables.judging import Attempts, Gradings, Judgments, Supports
from rubricflow.tasks.core.llm.ask import Checked, artifact_in, ask
from rubricflow.tasks.core.llm.backend import KeyOf
from rubricflow.tasks.core.llm.encoder import minilm
from rubricflow.tasks.core.llm.opening import open_backend
from rubricflow.tasks.core.llm.reply_store import open_replies
from rubricflow.tasks.core.llm.request import Reply, Request, contract_request
from rubricflow.tasks.core.llm.schema import JsonDict, compact, form, record, several
from rubricflow.tasks.core.store.warehouse import Run
from rubricflow.tasks.core.text.digest import nonce
from rubricflow.tasks.grading.judge import prompt, support
from rubricflow.tasks.grading.judge.rows import Called, Rater, attempts
from rubricflow.tasks.grading.judge.stored_cases import Sheet, case_of

PER_CALL = 10
"""Credits in one question to a further judge: at most one call more for ten credits."""
_LONGEST = 1_200
"""Characters of a criterion and of a passage that a further judge is shown."""
_TOKENS = 64


class JudgedAnswers(NamedTuple):
    """What a judge stated, with what is known of its answers."""

    run: Run
    sheets: Mapping[str, Sheet]
    responses: TableRef
    people: TableRef
    """Human judgments, of which those of the calibration split alone are looked at."""
    judgments: TableRef
    others: Sequence[TableRef]
    """Other jurors' judgments."""


def write_second_look(judged: JudgedAnswers, plan: Judge, base: Path, stage: str, key_of: KeyOf) -> str | None:
    """Write a judge's shards after the second look that its plan asks for, under the name of a stage; what came of it,
    in words, or None where all shards are there. BackendError where the further judge gave no reply that can be used.
    """
    run = judged.run
    rule = plan.support
    before = judged.judgments.stage
    names = sorted(run.shards(before))
    assert rule is not None
    if run.finished(stage, names) == set(names):
        return None
    shard_of = dict[str, str]()
    looks = []
    for name in names:
        rows = run.shard(Judgments, before, name).to_pylist()
        shard_of |= {row["response_id"]: name for row in rows}
        looks += _looks(judged, rows)
    of_judged = ds.field("response_id").isin(list(shard_of))
    known = run.read(judged.responses, ["response_id", "author_id", "split"], of_judged).to_pylist()
    cluster = {row["response_id"]: row["author_id"] or row["response_id"] for row in known}
    marked = ds.field("response_id").isin([row["response_id"] for row in known if row["split"] in CALIBRATES])
    marks = run.read(judged.people, ["response_id", "criterion_id", "decision"], marked).to_pylist()
    credited = support.credited(marks)
    by, called = None, list[Called]()
    if plan.support_by:
        by, called = _asked(run, plan.support_by, base, support.asked(looks, credited, cluster, rule), key_of)
    found = support.second_look(looks, credited, cluster, rule, called)
    bundle_of = {item: bundle for item, (_, bundle, _) in judged.sheets.items()}
    for name in names:
        rows = run.shard(Judgments, before, name).to_pylist()
        graded = run.shard(Gradings, before, name).to_pylist(maps_as_pydicts="strict")
        calls = [run.shard(Attempts, before, name)]
        if by:
            calls.append(attempts(by, [call for call in called if shard_of[call.response_id] == name]))
        own = [row for row in found if shard_of[row["response_id"]] == name]
        rows, graded = support.settled(rows, graded, bundle_of, own, rule.failed)
        tables: dict[type[Row], Any] = {Judgments: rows, Gradings: graded}
        run.commit(stage, name, tables | {Attempts: pa.concat_tables(calls), Supports: own})
    kinds = Counter((row["kind"], row["doubted"]) for row in found)
    credits = kinds["credit", True] + kinds["credit", False]
    asked = f", {len(called):,} questions to {by.rater_id}" if by else ""
    proposed = f"{kinds['missing', True]:,} sentences that may have been missed"
    return f"{stage}: {credits:,} credits looked at again, {kinds['credit', True]:,} doubted{asked}; {proposed}"


def _looks(judged: JudgedAnswers, rows: support.Rows) -> list[support.SupportCase]:
    """The looks at a shard's decisions."""
    run = judged.run
    mine = ds.field("response_id").isin(sorted({row["response_id"] for row in rows}))
    cases = {}
    for row in run.read(judged.responses, ["response_id", "item_id", "text", "made_from"], mine).to_pylist():
        cases[row["response_id"]] = case_of(row, *judged.sheets[row["item_id"]])
    of_case = defaultdict[tuple[str, int], list[Any]](list)
    by_others = defaultdict[str, list[Any]](list)
    for row in rows:
        of_case[row["response_id"], row["sample"]].append(row)
    for table in judged.others:
        for row in run.read(table, where=mine).to_pylist():
            by_others[row["response_id"]].append(row)
    distinct = sorted(set[str]().union(*(support.texts(cases[name], own) for (name, _), own in of_case.items())))
    vectors = dict(zip(distinct, minilm()(distinct), strict=True))
    looks = []
    for (name, _), own in of_case.items():
        looks += support.looks(cases[name], own, by_others[name], vectors)
    return looks


def _asked(
    run: Run, judge: PromptedModel, base: Path, some: Sequence[support.SupportCase], key_of: KeyOf
) -> tuple[Rater, list[Called]]:
    """The further judge, and what it said of some looks."""
    with open_replies(run.warehouse.replies) as replies:
        backend = open_backend(judge, base, replies, key_of)
        is_structured = judge.engine is None or judge.engine.structured
        answers = ask(requests(some, judge.sampling, is_structured), backend, replies, check)
    if answers and not any(answer.value for answer in answers):
        last = answers[0].attempts[-1]
        wrong = last.reply.error or "; ".join(last.checked.violations)
        raise BackendError(f"judge.support_by: none of {len(answers):,} questions has a usable reply: {wrong}")
    by = Rater(f"{judge.backend}:{backend.model}:support", BACKENDS[judge.backend].rater_kind, backend)
    return by, [Called(one.request.subject, f"support {n}", one) for n, one in enumerate(answers, 1)]


# The question.


def contract(count: int) -> JsonDict:
    """{"cases": [{"case": number, "lacks": text, "percent": 0 to 100}]}, one for each of so many."""
    case = {
        "case": {"type": "integer", "minimum": 1, "maximum": count},
        "lacks": {"type": "string", "maxLength": 200, "description": "at most twelve words, or nothing"},
        "percent": {"type": "integer", "minimum": 0, "maximum": 100},
    }
    return record({"cases": several(record(case), count, count)})


def requests(asked: Sequence[support.SupportCase], sampling: Sampling, structured: bool) -> list[Request]:
    """The questions about some looks, `PER_CALL` in each; the `data` of each are its looks."""
    made = []
    for some in (tuple(asked[first : first + PER_CALL]) for first in range(0, len(asked), PER_CALL)):
        shape = contract(len(some))
        cases = []
        for number, look in enumerate(some, 1):
            case = {"case": number, "looked_for": _line(look.looked_for), "passage": _line(look.passage)}
            cases.append(compact(case))
        lines = "\n".join(cases)
        about = {"role": "support", "subject": some[0].response_id, "data": some}
        content = prompt.fill("support", {"cases": lines, "nonce": nonce(lines), "form": form(shape)})
        made.append(contract_request(content, shape, sampling, 128 + _TOKENS * len(some), structured, **about))
    return made


def _line(text: str) -> str:
    """A text on one line, whatever breaks a line in it."""
    return " ".join(text.split())[:_LONGEST]


def check(request: Request, reply: Reply) -> Checked[dict[int, tuple[int, str]]]:
    """Case → percent and what the passage lacks; a violation where a case is missing or named twice."""
    read = artifact_in(reply, contract(len(request.data)))
    if read.value is None:
        return Checked(None, read.violations)
    said = {case["case"]: (case["percent"], _line(case["lacks"])) for case in read.value["cases"]}
    if missing := sorted(set(range(1, len(request.data) + 1)) - said.keys()):
        return Checked(None, tuple(f"malformed: case {number} is missing" for number in missing[:5]))
    return Checked(said, ())

"""A graded run's tables as a gradebook."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import duckdb

from rubricflow.tasks.core.contracts.bundle import Bundle, unlocked
from rubricflow.tasks.core.contracts.errors import ContractError, InputError
from rubricflow.tasks.core.contracts.tables.judging import STANDING
from rubricflow.tasks.core.display import say
from rubricflow.tasks.core.display.quotes import WORTH_OF_QUOTES, WorthOfQuotes
from rubricflow.tasks.core.display.verdict import FINAL_SCORES, verdict, wrong_words
from rubricflow.tasks.core.store.catalogue import catalogue, manifest_of
from rubricflow.tasks.core.store.warehouse import Run
from rubricflow.tasks.grading.gradebook.book import CriterionLevel, Gradebook, GradedAnswer, GradedQuestion, Quotation

Row = Mapping[str, Any]
Points = Callable[[Bundle, Mapping[str, int | None]], float | None]


def read_gradebook(run: Run, points: Points | None = None, language: str | None = None) -> Gradebook:
    """The gradebook of a finished run, its answers in the order of the data; StoreError where it did not finish.

    points: what levels come to by a rubric, by criterion; without it, nothing follows from levels that people set.
    language: that by which students are sorted by name instead, as in de or sv; InputError for one that is not known.
    """
    manifest = manifest_of(run)
    with catalogue(run) as tables:
        questions = _questions(tables)
        judged: dict[str, dict[str, Row]] = defaultdict(dict)
        for row in _rows(tables, _JUDGMENTS):
            judged[row["response_id"]][row["criterion_id"]] = row
        answers = []
        for row in _rows(tables, _ANSWERS):
            bundle = questions[row["item_id"]].bundle
            answers.append(_answer(row, bundle, judged.get(row["response_id"], {}), points))
        names = tables.sql("SELECT response_id FROM responses").fetchall()
        places = {name: place for place, (name,) in enumerate(names)}
        promises = tuple(_rows(tables, "SELECT * FROM release_rules ORDER BY scope"))
        answers.sort(key=lambda answer: places[answer.response_id])
        if language is not None:
            keys = _name_keys(tables, answers, language)
            answers.sort(key=lambda answer: keys[answer.student_name or answer.student])
        gates, (worth,) = _rows(tables, "SELECT * FROM verdicts"), _rows(tables, WORTH_OF_QUOTES)
        scales = [question.scale.bounds for question in questions.values()]
        wrong = wrong_words(promises[0]["tolerance"] if promises else 0.0, scales)
        found = verdict(_rows(tables, FINAL_SCORES), promises, gates, wrong)
        raters = [row["rater_id"] for row in _rows(tables, "SELECT DISTINCT rater_id FROM predictions")]
    if len(raters) > 1:
        raise ContractError(f"run {run.run_id} holds scores of {len(raters)} raters; a gradebook is of one")
    return Gradebook(
        run_id=run.run_id,
        study=manifest["identity"]["study"]["name"],
        graded_on=manifest["written"][:10],
        rater="".join(raters),
        verdict=found,
        promises=promises,
        quotes=WorthOfQuotes(worth),
        questions=questions,
        answers=tuple(answers),
    )


_ANSWERS = """
SELECT f.*, r.author_id, r.author_name, r.text, r.groups
FROM final_scores AS f
JOIN responses AS r USING (response_id)
"""
_JUDGMENTS = """
SELECT j.response_id, j.criterion_id, j.decision, j.evidence
FROM judgments AS j
JOIN predictions AS p USING (response_id, rater_id)
QUALIFY j.sample = min(j.sample) OVER (PARTITION BY j.response_id)
"""


def _rows(tables: duckdb.DuckDBPyConnection, query: str) -> list[dict[str, Any]]:
    return list(tables.sql(query).to_arrow_table().to_pylist(maps_as_pydicts="strict"))


def _questions(tables: duckdb.DuckDBPyConnection) -> dict[str, GradedQuestion]:
    bundles = unlocked(_rows(tables, "SELECT * FROM bundles"))
    questions = {}
    for row in _rows(tables, "SELECT item_id, question, rubric_id FROM items"):
        questions[row["item_id"]] = GradedQuestion(row["item_id"], row["question"], bundles[row["rubric_id"]])
    # A wide file's first student need not have been asked the first question.
    numbered = all(re.fullmatch("Q[0-9]+", item) for item in questions)
    return dict(sorted(questions.items(), key=lambda item: say.in_order(item[0]) if numbered else []))


def _answer(row: Row, bundle: Bundle, judgments: Mapping[str, Row], points: Points | None) -> GradedAnswer:
    """judgments: of the answer, by criterion. A quote shows no level that a person took away."""
    peoples = row["settled_levels"] or {}
    text = row["text"]
    levels = []
    for criterion in bundle.criteria:
        judgment = judgments.get(criterion.id)
        if judgment is None and criterion.id not in peoples:
            continue
        level = peoples.get(criterion.id, judgment["decision"] if judgment else None)
        quotations = tuple(_quotations(judgment, text)) if judgment and level else ()
        levels.append(CriterionLevel(criterion, level, quotations))
    criteria_score = points and points(bundle, {level.criterion.id: level.level for level in levels})
    if not peoples and (points is None or criteria_score is not None):
        criteria_score = row["judge_score"]  # of all repetitions, not of the first
    as_they_are = ["response_id", "item_id", "final_score", "decided_by", "settled_by", "judge_score", "machine_score"]
    as_they_are += ["low", "high", "route", "route_reason", "note", "unscored_reason"]
    return GradedAnswer(
        **{name: row[name] for name in as_they_are},
        student=row["author_id"],
        student_name=(row["author_name"] or "").strip() or None,
        section={name.casefold(): group for name, group in row["groups"].items()}.get("section"),
        text=text,
        history=tuple(row["history"] or ()),
        levels=tuple(levels),
        levels_are_peoples=bool(peoples),
        criteria_score=criteria_score,
        marks=row["marks"] or {},
    )


def _quotations(judgment: Row, text: str) -> Iterator[Quotation]:
    for quote in judgment["evidence"] or ():
        start, end = quote["start"], quote["end"]
        if quote["status"] in STANDING and start is not None and 0 <= start < end <= len(text):
            yield Quotation(text[start:end], start, end)


def _name_keys(
    tables: duckdb.DuckDBPyConnection, answers: Sequence[GradedAnswer], language: str
) -> dict[str | None, tuple[bool, str]]:
    """What a student is called → a key by which the language sorts the last name first; nameless ones come last."""
    known = {name for (name,) in tables.sql("SELECT collname FROM pragma_collations()").fetchall()}
    if language not in known:
        rule = f"'{language[:20]}' is no language by which names are sorted"
        raise InputError(rule, field="--by-name", hint="name it by two letters, as in de, fr or sv")
    names = {answer.student_name or answer.student for answer in answers}
    query = "SELECT icu_sort_key(?, ?)"
    keys: dict[str | None, tuple[bool, str]] = {None: (True, "")}
    for name in names - {None}:
        first, _, last = str(name).strip().rpartition(" ")
        # 'Ada Böhm' as 'Böhm, Ada'; a name with a comma as it stands.
        sorted_by = str(name) if "," in str(name) or not first else f"{last}, {first}"
        ((key,),) = tables.execute(query, [sorted_by, language]).fetchall()
        keys[name] = False, key
    return keys

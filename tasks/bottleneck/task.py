"""The door of bottleneck: responses and concept labels in; trained graders, what they are worth and the first of them
as a file out."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow.compute as pc
from prefect import task

from tasks.bottleneck.arm import Arm, Ground, Outcome, arms
from tasks.bottleneck.arm import run as run_arm
from tasks.bottleneck.backbone import Backbone, load
from tasks.bottleneck.card import card
from tasks.bottleneck.data import MISSING, Floats, Ints
from tasks.bottleneck.grader import load as load_grader
from tasks.bottleneck.grader import save
from tasks.bottleneck.labelled import grades_of, labelled, levels_of, marks_of, one_of, weighed
from tasks.bottleneck.measures import human_rows
from tasks.bottleneck.prompted import drawn, prompted
from tasks.bottleneck.states import Cached, Encoder, Tuned, encode
from tasks.bottleneck.states import load as load_states
from tasks.bottleneck.trace import contribution_error
from tasks.contracts.bottleneck import Bottleneck, Prompting
from tasks.contracts.bottleneck_tables import ConceptLinks, Interventions, Models, Traces, Trials
from tasks.contracts.bundle import Bundle, unlocked
from tasks.contracts.grader import Answered
from tasks.contracts.study import Study
from tasks.contracts.table import Row
from tasks.contracts.tables import Gradings, Judgments, TableRef
from tasks.llm.backend import Backend
from tasks.llm.backends.replay import Replay
from tasks.llm.encoder import minilm
from tasks.llm.engines import open_engine
from tasks.llm.replies import ReplyStore
from tasks.stats.target import target_scores
from tasks.store.manifest import digest_of
from tasks.store.naming import named
from tasks.store.warehouse import Run, write_atomically

STAGE = "bottleneck"
TABLES: tuple[type[Row], ...] = (Models, Trials, Interventions, ConceptLinks, Judgments, Gradings, Traces)
KeyOf = Callable[[str], str | None]


class Taught(NamedTuple):
    """What bottleneck writes; judgments, gradings and traces are those of the exported grader."""

    models: TableRef
    trials: TableRef
    interventions: TableRef
    links: TableRef
    judgments: TableRef
    gradings: TableRef
    traces: TableRef


@task(task_run_name=named(STAGE))
def train(
    run: Run,
    study: Study,
    base: Path,
    items: TableRef,
    responses: TableRef,
    people: TableRef,
    marks: TableRef,
    bundles: TableRef,
    labels: TableRef | None,
    key_of: KeyOf = os.environ.get,
) -> Taught:
    """Train and measure every grader of the study, a shard for each; finished ones are passed over.

    people, marks: gradings and judgments of the data. labels: the final labels of the study's annotation, where it
    learns from those. key_of: name of a credential → its value, see `Engine.key`. InputError where rubrics differ in
    their concepts, or the labels do not suffice.
    """
    plan = study.bottleneck
    assert plan is not None  # or the flow would have refused the study
    todo = [arm for arm in arms(plan) if not run.done(STAGE, arm.name)]
    shown = plan.prompted.shots if plan.prompted else ()
    asked = [shots for shots in shown if not run.done(STAGE, f"prompted-{shots}")]
    if todo or asked or not run.done(STAGE, "people"):
        class_set = _class_set(run, study, base, items, responses, people, marks, bundles, labels)
        run.commit(STAGE, "people", {row: [] for row in TABLES} | {Trials: list(_people_rows(class_set))})
        for number, arm in enumerate(todo, 1):
            outcome = run_arm(arm, class_set.ground)
            tables = dict(outcome.tables)
            if arm == arms(plan)[0] and outcome.trained.concept_encoder is not None:
                tables |= _exported(run, study, base, class_set, arm, outcome)
            run.commit(STAGE, arm.name, tables)
            print(_line(arm, outcome, number, len(todo)))
        for shots in asked:
            assert plan.prompted is not None
            rows = _prompted_rows(run, study, base, class_set, plan.prompted, shots, key_of)
            run.commit(STAGE, f"prompted-{shots}", {Trials: rows})
    return Taught(*(run.ref(row, STAGE) for row in TABLES))


@dataclass(frozen=True)
class ClassSet:
    """A study's responses with everything that is known about them, in the order of their ids."""

    ground: Ground
    backbone: Backbone
    bundle: Bundle
    bundle_id: str
    item_ids: tuple[str, ...]
    answered: tuple[Answered, ...]
    marks: Mapping[str, Floats]
    """Rater of the data → its levels (n, K)."""
    scores: Mapping[str, Floats]
    """Rater of the data → its scores (n,), NaN where there is none."""
    kinds: Mapping[str, str]
    """Rater of the data → human, adjudication or replayed."""


def _class_set(
    run: Run,
    study: Study,
    base: Path,
    items: TableRef,
    responses: TableRef,
    people: TableRef,
    marks: TableRef,
    bundles: TableRef,
    labels: TableRef | None,
) -> ClassSet:
    plan = study.bottleneck
    assert plan is not None
    locked = run.read(bundles).to_pylist()
    bundle = one_of(unlocked(locked))
    rows = run.read(responses, ["response_id", "item_id", "text", "split"]).sort_by("response_id")
    ids = rows["response_id"].to_pylist()
    gradings, judgments = run.read(people), run.read(marks)
    kinds = {one["rater_id"]: one["rater_kind"] for table in (gradings, judgments) for one in _raters(table)}
    known = marks_of(judgments, gradings, bundle, ids)
    persons = [name for name, kind in kinds.items() if kind == "human"]
    weights = None
    if labels is not None:
        levels = _final(run, labels, bundle, ids)
    elif set(plan.methods) <= {"plm", "cb_llm"} and not known:  # neither learns from labels of concepts
        levels = np.full((len(ids), len(bundle.criteria)), np.nan)
    elif plan.rater_noise:
        levels, weights, notes = weighed(known, persons, np.array([c.top for c in bundle.criteria]))
        for note in notes:
            print(f"bottleneck: {note}")
    else:
        levels = levels_of(known, plan.labels, persons)
    target = target_scores(gradings, study.evaluation.target)
    scores = dict(zip(target["response_id"].to_pylist(), target["score"].to_pylist(), strict=True))
    data = labelled(rows, bundle, levels, scores, plan.bands, weights)
    sheets = {one["item_id"]: one for one in run.read(items).to_pylist()}
    item_ids, texts = rows["item_id"].to_pylist(), rows["text"].to_pylist()
    answered = tuple(_answered(sheets[item], text) for item, text in zip(item_ids, texts, strict=True))
    name = str(base / plan.backbone) if (base / plan.backbone).is_dir() else plan.backbone
    backbone = load(name, plan.max_tokens, plan.match)
    ground = Ground(data, _encoder(run, plan, backbone, answered), texts, minilm(), backbone.name, plan)
    by_rater = {name: _scores_of(gradings, name, ids) for name in kinds}
    return ClassSet(ground, backbone, bundle, locked[0]["bundle_id"], tuple(item_ids), answered, known, by_rater, kinds)


def _raters(table: Any) -> list[dict[str, str]]:
    kinds = table.select(["rater_id", "rater_kind"]).group_by(["rater_id", "rater_kind"]).aggregate([])
    return sorted(kinds.to_pylist(), key=lambda one: str(one["rater_id"]))


def _answered(item: Mapping[str, Any], text: str) -> Answered:
    return Answered(item["question"], text, item["reference_answer"], item["context"])


def _final(run: Run, labels: TableRef, bundle: Bundle, ids: list[str]) -> Floats:
    """(n, K) final labels, NaN where one is open."""
    row = {name: at for at, name in enumerate(ids)}
    column = {c.id: at for at, c in enumerate(bundle.criteria)}
    found = np.full((len(row), len(column)), np.nan)
    for one in run.read(labels, ["response_id", "criterion_id", "level"]).to_pylist():
        if one["level"] is not None:
            found[row[one["response_id"]], column[one["criterion_id"]]] = one["level"]
    return found


def _scores_of(gradings: Any, rater: str, ids: list[str]) -> Floats:
    mine = gradings.filter(pc.equal(gradings["rater_id"], rater))
    given = dict(zip(mine["response_id"].to_pylist(), mine["score"].to_pylist(), strict=True))
    return np.array([given.get(name) for name in ids], np.float64)


def _encoder(run: Run, plan: Bottleneck, backbone: Backbone, answered: tuple[Answered, ...]) -> Callable[[], Encoder]:
    """Makes the encoder of an arm. The states of a frozen one are kept in the warehouse, under a digest of backbone and
    tokens, for all runs."""
    tokens = backbone.tokenize(answered)
    if plan.encoder == "tuned":
        return partial(Tuned, backbone, tokens, plan.arithmetic == "bfloat16")
    folder = run.warehouse.root / "states" / digest_of([backbone.name, tokens.digest])[:16]
    states = load_states(folder) or encode(backbone, tokens, print, folder)
    return partial(Cached, states)


def _exported(
    run: Run, study: Study, base: Path, of: ClassSet, arm: Arm, outcome: Outcome
) -> dict[type[Row], list[dict[str, Any]]]:
    """Writes the grader with its card, in the run and where the study wants it; its rows."""
    plan, data, head = of.ground.plan, of.ground.data, outcome.head
    assert head is not None  # a method with concepts has one
    place = run.folder / "grader.safetensors"
    digest = save(place, outcome.trained, head, arm.training, data, of.bundle, of.backbone, plan.backbone)
    grader = load_grader(place, base)
    rows = data.rows("test")
    human = {
        data.response_ids[row]: None if data.grades[row] == MISSING else float(data.scores[data.grades[row]])
        for row in rows
    }
    traced = [
        row | {"human": human[row["response_id"]]}
        for row in grader.traces(list(human), [of.answered[row] for row in rows])
    ]
    off = {"split": "test", "metric": "contribution_error", "criterion_id": "", "value": contribution_error(traced)}
    tested = {"method": arm.method, "seed": arm.seed, "setting": arm.setting, "n": len(rows), "note": None}
    trials = [*outcome.tables[Trials], tested | off]
    wanted = base / plan.grader if plan.grader else run.warehouse.root / "graders" / f"{study.name}.safetensors"
    about = card(grader.about, digest, plan.grader or str(wanted), [*trials, *_people_rows(of)]).encode()
    write_atomically(wanted, place.read_bytes())
    for path in (place, wanted):
        write_atomically(path.with_suffix(".md"), about)
    print(f"bottleneck: the grader is in {wanted}, its card beside it")
    (model,) = outcome.tables[Models]
    told = {"path": str(place.relative_to(run.warehouse.root)), "digest": digest, "head": grader.head_json()}
    return {
        Models: [model | told],
        Trials: trials,
        Traces: traced,
        Judgments: list(_judgments(of, outcome, grader.name)),
        Gradings: list(_gradings(of, outcome, grader.name)),
    }


def _judgments(of: ClassSet, outcome: Outcome, rater: str) -> Iterator[dict[str, Any]]:
    """The level of every concept of every response, those that it learned from too."""
    levels, chosen = outcome.estimates.levels, outcome.estimates.chosen()
    assert levels is not None
    for row, response in enumerate(of.ground.data.response_ids):
        for k, criterion in enumerate(of.bundle.criteria):
            yield {
                "response_id": response,
                "criterion_id": criterion.id,
                "rater_id": rater,
                "rater_kind": "trained",
                "sample": 0,
                "bundle_id": of.bundle_id,
                "decision": int(chosen[row, k]),
                "stated": int(chosen[row, k]),
                "level_probabilities": levels[row, k, : criterion.top + 1].tolist(),
                "evidence": [],
                "action": "none",
            }


def _gradings(of: ClassSet, outcome: Outcome, rater: str) -> Iterator[dict[str, Any]]:
    """The score of every response."""
    data, head = of.ground.data, outcome.head
    assert head is not None
    likely = head.probabilities(outcome.estimates.shares(data.concepts.tops))
    for row, response in enumerate(data.response_ids):
        grade = int(likely[row].argmax())
        yield {
            "response_id": response,
            "item_id": of.item_ids[row],
            "rater_id": rater,
            "rater_kind": "trained",
            "sample": 0,
            "bundle_id": of.bundle_id,
            "score": float(data.scores[grade]),
            "trait_scores": {},
            "signals": {"grade_probability": float(likely[row, grade])},
            "confidence": float(likely[row, grade]),
            "status": "scored",
        }


def _people_rows(of: ClassSet) -> Iterator[dict[str, Any]]:
    """What one person is worth by another on the test split, and what a machine recorded is worth by the labels."""
    data = of.ground.data
    persons = [name for name, kind in of.kinds.items() if kind == "human"]
    for seed, (a, b) in enumerate(combinations(persons, 2)):
        for row in _against(of, _marked(of, a), _marked(of, b)):
            yield row | {"seed": seed, "note": f"{a} and {b}" + (f"; {row['note']}" if row["note"] else "")}
    for name in (name for name, kind in of.kinds.items() if kind == "replayed"):
        for row in _against(of, (data.levels, data.grades), _marked(of, name)):
            yield row | {"method": name}


def _marked(of: ClassSet, rater: str) -> tuple[Ints, Ints]:
    """A rater's levels and grades as classes."""
    data, none = of.ground.data, np.full(of.ground.data.levels.shape, np.nan)
    levels = of.marks.get(rater, none)
    scores = of.scores.get(rater, np.full(len(levels), np.nan))
    grades = grades_of(scores, of.bundle.scale, of.ground.plan.bands)
    return np.where(np.isnan(levels), MISSING, levels).astype(np.int64), np.asarray(grades[: len(data.grades)])


def _against(of: ClassSet, a: tuple[Ints, Ints], b: tuple[Ints, Ints]) -> list[dict[str, Any]]:
    data = of.ground.data
    rows = data.rows("test")
    (levels_a, grades_a), (levels_b, grades_b) = a, b
    found = human_rows(
        levels_a[rows], levels_b[rows], grades_a[rows], grades_b[rows], data.concepts, data.scores, "test"
    )
    return [row for row in found if row["n"]]


def _prompted_rows(
    run: Run, study: Study, base: Path, of: ClassSet, plan: Prompting, shots: int, key_of: KeyOf
) -> list[dict[str, Any]]:
    """What a prompted language model is worth on the test split."""
    data = of.ground.data
    rows = data.rows("test")
    given = np.where(data.grades == MISSING, np.nan, data.scores[data.grades])
    examples = drawn(of.answered, given, data.rows("train"), shots, seed=plan.sampling.seed)
    with ReplyStore(run.warehouse.replies) as replies:
        said = prompted(
            [of.answered[row] for row in rows],
            examples,
            of.bundle.scale,
            _backend(plan, base, replies, key_of),
            replies,
            response_ids=[data.response_ids[row] for row in rows],
            rubric=of.bundle.text,
            sampling=plan.sampling,
            structured=plan.engine.structured if plan.engine else True,
        )
    scores = np.array([np.nan if score is None else score for score in said.scores], np.float64)
    grades = np.full(len(data.grades), MISSING)
    grades[rows] = grades_of(scores, of.bundle.scale, of.ground.plan.bands)
    unknown = np.full_like(data.levels, MISSING)
    method = f"prompted_{shots}_shot"
    return [row | {"method": method} for row in _against(of, (data.levels, data.grades), (unknown, grades))]


def _backend(plan: Prompting, base: Path, replies: ReplyStore, key_of: KeyOf) -> Backend:
    if plan.backend != "replay" and plan.engine:
        return open_engine(plan.backend, plan.engine, key_of, base)
    assert plan.model is not None  # the contract demands it
    return Replay(replies, plan.model)


def _line(arm: Arm, outcome: Outcome, number: int, of: int) -> str:
    worth = {row["metric"]: row["value"] for row in outcome.tables[Trials] if row["split"] == "test"}
    names = [name for name in ("task_macro_f1", "task_qwk") if worth.get(name) is not None]
    shown = ", ".join(f"{name} {worth[name]:.3f}" for name in names)
    what = f"{arm.method}{' ' + arm.setting if arm.setting else ''}, seed {arm.seed}"
    return f"bottleneck: {number} of {of}: {what}: {shown} on the test split, {outcome.trained.seconds:.0f} s"

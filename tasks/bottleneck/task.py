"""The door of bottleneck: responses and concept labels in; trained graders, what they are worth and the first of them
as a file out."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow.compute as pc
from prefect import task

from tasks.bottleneck.arm import Arm, Ground, Outcome, arms
from tasks.bottleneck.arm import run as run_arm
from tasks.bottleneck.backbone import Backbone, load
from tasks.bottleneck.card import card
from tasks.bottleneck.class_set import ClassSet, against, grading_rows, judgment_rows, people_rows
from tasks.bottleneck.data import MISSING
from tasks.bottleneck.grader import load as load_grader
from tasks.bottleneck.grader import save
from tasks.bottleneck.labelled import grades_of, labelled, levels_of, marks_of, one_of, weighed
from tasks.bottleneck.prompted import drawn, prompted
from tasks.bottleneck.states import Cached, Encoder, Tuned, encode
from tasks.bottleneck.states import load as load_states
from tasks.bottleneck.trace import contribution_error
from tasks.contracts.bundle import Bundle, unlocked
from tasks.contracts.grader import Answered
from tasks.contracts.reference import TableRef
from tasks.contracts.schema import Row
from tasks.contracts.settings.bottleneck import Bottleneck, Prompting
from tasks.contracts.settings.study import Study
from tasks.contracts.tables.bottleneck import ConceptLinks, Interventions, Models, Traces, Trials
from tasks.contracts.tables.judging import Gradings, Judgments
from tasks.llm.encoder import minilm
from tasks.llm.opening import KeyOf, open_backend
from tasks.llm.replies import ReplyStore
from tasks.stats.arrays import Floats
from tasks.stats.target import target_scores
from tasks.store.digest import digest_of
from tasks.store.naming import named
from tasks.store.warehouse import Run, write_atomically

STAGE = "bottleneck"
TABLES: tuple[type[Row], ...] = (Models, Trials, Interventions, ConceptLinks, Judgments, Gradings, Traces)


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
        run.commit(STAGE, "people", {row: [] for row in TABLES} | {Trials: list(people_rows(class_set))})
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
    given = np.array([scores.get(name) for name in ids], np.float64)
    by_rater = {name: _scores_of(gradings, name, ids) for name in kinds}
    return ClassSet(
        ground, backbone, bundle, locked[0]["bundle_id"], tuple(item_ids), answered, given, known, by_rater, kinds
    )


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
    about = card(grader.about, digest, plan.grader or str(wanted), [*trials, *people_rows(of)]).encode()
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
        Judgments: list(judgment_rows(of, outcome, grader.name)),
        Gradings: list(grading_rows(of, outcome, grader.name)),
    }


def _prompted_rows(
    run: Run, study: Study, base: Path, of: ClassSet, plan: Prompting, shots: int, key_of: KeyOf
) -> list[dict[str, Any]]:
    """What a prompted language model is worth on the test split."""
    data = of.ground.data
    rows = data.rows("test")
    examples = drawn(of.answered, of.target, data.rows("train"), shots, seed=plan.sampling.seed)
    with ReplyStore(run.warehouse.replies) as replies:
        said = prompted(
            [of.answered[row] for row in rows],
            examples,
            of.bundle.scale,
            open_backend(plan, base, replies, key_of),
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
    return [row | {"method": method} for row in against(of, (data.levels, data.grades), (unknown, grades))]


def _line(arm: Arm, outcome: Outcome, number: int, of: int) -> str:
    worth = {row["metric"]: row["value"] for row in outcome.tables[Trials] if row["split"] == "test"}
    names = [name for name in ("task_macro_f1", "task_qwk") if worth.get(name) is not None]
    shown = ", ".join(f"{name} {worth[name]:.3f}" for name in names)
    what = f"{arm.method}{' ' + arm.setting if arm.setting else ''}, seed {arm.seed}"
    return f"bottleneck: {number} of {of}: {what}: {shown} on the test split, {outcome.trained.seconds:.0f} s"

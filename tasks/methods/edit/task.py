"""The entry point of edit and the course of a run: responses with target scores in; arms of a trained grader and what
they are worth out.

A seed's arms learn from rollouts of the base policy on the train split, their signals, the steps that these select, and
revisions. An arm is trained supervised on its pool, or by reinforcement from its start, and then measured on the test
split: greedy, under edited schemes, and by how far its beliefs lie from its start's.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from rubricflow.tasks.core.contracts import Fields, Record
from rubricflow.tasks.core.contracts.bundle import unlocked
from rubricflow.tasks.core.contracts.errors import InputError
from rubricflow.tasks.core.contracts.schema import Row, TableRef
from rubricflow.tasks.core.contracts.settings.methods import STARTS, TUNED
from rubricflow.tasks.core.contracts.settings.study import Study
from rubricflow.tasks.core.contracts.tables.edit import (
    TESTED,
    Arm,
    ArmDifferences,
    ArmMetrics,
    Demonstrations,
    Learning,
    Policies,
    Revisions,
    Rollouts,
    RuleFaithfulness,
    RuleTests,
    Separations,
    Steps,
)
from rubricflow.tasks.core.contracts.tables.judging import Gradings
from rubricflow.tasks.core.llm.backend import KeyOf
from rubricflow.tasks.core.llm.mailbox import asking_together
from rubricflow.tasks.core.monitor.runs import task
from rubricflow.tasks.core.stats.scores import target_scores
from rubricflow.tasks.core.store.files import file_digest, named
from rubricflow.tasks.core.store.warehouse import Run, Tables
from rubricflow.tasks.methods.edit.belief import Write, beliefs, supports
from rubricflow.tasks.methods.edit.locality import checklist_tokens
from rubricflow.tasks.methods.edit.measures import difference_rows, metric_rows, probe_rows, spaced
from rubricflow.tasks.methods.edit.phases import (
    SIGNALLED,
    grading_row,
    is_wrong,
    learning_row,
    pooled,
    repaired,
    revised,
    revision_row,
    rolled,
    selected,
    separated,
    step_rows,
    steps_to_mend,
)
from rubricflow.tasks.methods.edit.policy import Policy
from rubricflow.tasks.methods.edit.revise import Reviser
from rubricflow.tasks.methods.edit.rl import Method, reinforce
from rubricflow.tasks.methods.edit.rollout import Sample, grading_samples, read_mark
from rubricflow.tasks.methods.edit.rule_edits import edits, faithfulness, rule_tests
from rubricflow.tasks.methods.edit.tuning import Tuned, check_fits, fine_tune
from rubricflow.tasks.methods.edit.workspace import (
    STAGE,
    TrainingProgress,
    Workspace,
    attempts_of,
    chunks,
    in_chunks,
    of_arm,
    rows_of,
    sampling_seed,
    table_of,
    written,
)

TABLES: tuple[type[Row], ...] = (Rollouts, Steps, Separations, Revisions, Demonstrations, Policies, Learning, Gradings)
TABLES += (RuleTests, RuleFaithfulness, ArmMetrics, ArmDifferences)
"""What edit writes; gradings are those of every arm on the test split."""


@task(task_run_name=named(STAGE))
def train(
    run: Run,
    study: Study,
    base: Path,
    items: TableRef,
    responses: TableRef,
    people: TableRef,
    bundles: TableRef,
    key_of: KeyOf = os.environ.get,
) -> tuple[TableRef, ...]:
    """Train and measure every arm of the study with every seed. What is finished is passed over, and a training goes on
    from its last checkpoint.

    people: gradings of the data. key_of: name of a credential → its value. InputError for target scores that are no
    whole marks from 0, a train or test split without responses, a prompt longer than the policy reads, or schemes that
    rule faithfulness cannot edit; BackendError for a policy that cannot be loaded.
    """
    if not run.done(STAGE, "worth"):
        assert study.edit is not None  # or the flow would have refused the study
        run.commit(STAGE, "start", {row: [] for row in TABLES})
        target = target_scores(run.read(people), study.evaluation.target)
        gold = dict(zip(target["response_id"].to_pylist(), target["score"].to_pylist(), strict=True))
        rows = run.read(responses, ["response_id", "item_id", "text", "split"]).to_pylist()
        locked = unlocked(run.read(bundles).to_pylist())
        samples = grading_samples(rows, run.read(items).to_pylist(), locked, gold)
        workspace = Workspace(run, study.edit, base, samples, key_of)
        prove(workspace)
        prepare(workspace)
        for seed in study.edit.seeds:
            for arm in study.edit.arms_in_order():  # each after its own start; base is the same for all seeds
                if arm != "base" or seed == study.edit.seeds[0]:
                    _train_arm(workspace, arm, seed)
                    _measure_arm(workspace, arm, seed)
        run.commit(STAGE, "worth", worth(workspace, study.evaluation.draws, study.evaluation.seed))
    return tuple(run.ref(row, STAGE) for row in TABLES)


METHODS: dict[Arm, Method] = {"dgpo": "dgpo", "edit_rl": "edit", "edit_rl_on_base": "edit"}
"""Arms of RL that are more than GRPO."""


def prove(workspace: Workspace) -> None:
    """Refuse at once what would fail after hours: InputError for a prompt that is longer than the policy reads, or a
    scheme that rule faithfulness cannot edit."""
    plan, samples = workspace.plan, workspace.samples
    revises = plan.revising.by is None and any(arm in TUNED for arm in plan.arms_in_order())
    for sample in (*samples.train, *samples.test):
        # The longest prompt is the reviser's: it holds a rollout and a checklist.
        added = plan.max_tokens
        if revises:
            verbatim = plan.revising.checklist == "verbatim"
            added += plan.max_tokens + checklist_tokens(sample.scheme, plan.max_tokens, verbatim)
        tokens = len(workspace.policy.prompt_ids(workspace.prompts.grade(sample))) + added
        check_fits(workspace.policy, tokens, f"response '{sample.response_id}' with its rollouts")
    if plan.faithfulness:
        for item_id in dict.fromkeys(sample.item_id for sample in samples.test):
            edits(samples.bundles[item_id])
    left_out = f", {samples.unlabelled:,} without a target score left out" if samples.unlabelled else ""
    print(f"edit: {len(samples.train):,} responses to train on{left_out}, {len(samples.test):,} to test on")


def prepare(workspace: Workspace) -> None:
    """What the supervised arms of every seed learn from. Seeds and arms ask who revises together."""
    tuned = [arm for arm in workspace.plan.arms_in_order() if arm in TUNED]
    if not tuned:
        return
    with workspace.reviser() as by, asking_together() as piece:
        for seed in workspace.plan.seeds:
            _sample_rollouts(workspace, seed)
            if any(arm in SIGNALLED for arm in tuned):
                _measure_signals(workspace, seed)
                _select_steps(workspace, seed)
            for arm in tuned:
                with piece():
                    _revise(workspace, arm, seed, by)


def worth(workspace: Workspace, draws: int, seed: int) -> Tables:
    """What all arms are worth, and the last points of their learning curves. draws, seed: of the bootstrap."""
    graded: dict[tuple[Arm, int], list[Fields]] = {}
    for row in rows_of(workspace.run, Rollouts, pc.field("part") != "train"):
        graded.setdefault((row["arm"], row["seed"]), []).append(row)
    metrics = list(metric_rows(graded, draws, seed))
    policies = rows_of(workspace.run, Policies)
    updates = {(row["arm"], row["seed"]): row["updates"] for row in policies if row["arm"] in STARTS}
    trained = [(row, (row["arm"], row["seed"])) for row in metrics]
    return {
        ArmMetrics: metrics,
        ArmDifferences: list(difference_rows(graded, draws, seed)),
        RuleFaithfulness: faithfulness(rows_of(workspace.run, RuleTests), draws, seed),
        Learning: [learning_row(row, updates[arm]) for row, arm in trained if arm in updates],
    }


def _sample_rollouts(workspace: Workspace, seed: int) -> None:
    plan = workspace.plan.revising
    count, temperature = plan.rollouts, plan.temperature

    def fill(shard: str, samples: Sequence[Sample]) -> Tables:
        return {Rollouts: written(workspace, shard, "base", seed, workspace.policy, samples, count, temperature)}

    in_chunks(workspace.run, f"rollouts-{seed}", workspace.samples.train, fill, f"seed {seed}: rollouts", count)


def _measure_signals(workspace: Workspace, seed: int) -> None:
    """What the base policy believes at every boundary of its rollouts, and what every step rests on."""

    def fill(_: str, samples: Sequence[Sample]) -> Tables:
        attempts = attempts_of(workspace, seed, samples)
        texts = [(attempt.sample, attempt.text) for attempt in attempts]
        believed = beliefs(workspace.policy, workspace.prompts, texts)
        rested = supports(workspace.policy, workspace.prompts, texts)
        rows: list[Record] = []
        for attempt, belief, support in zip(attempts, believed, rested, strict=True):
            rows += step_rows("base", seed, attempt, belief, support)
        return {Steps: rows}

    label = f"seed {seed}: signals of rollouts"
    count = workspace.plan.revising.rollouts
    in_chunks(workspace.run, f"signals-{seed}", workspace.samples.train, fill, label, count)


def _select_steps(workspace: Workspace, seed: int) -> None:
    """Adds to the signals what only all of them tell. That rests on columns which a shard has with and without it, so a
    kill between two shards does no harm."""
    run = workspace.run
    plan = workspace.plan
    train = workspace.samples.train
    if run.done(STAGE, f"selection-{seed}"):
        return
    attempts = attempts_of(workspace, seed, train)
    wrong = [attempt.key for attempt in attempts if is_wrong(attempt)]
    steps = selected(table_of(run, Steps, of_arm("base", seed)), wrong, plan.revising)
    for shard, samples in chunks(f"signals-{seed}", train):
        in_shard = pc.is_in(steps["response_id"], pa.array([sample.response_id for sample in samples]))
        run.commit(STAGE, shard, {Steps: steps.filter(in_shard)})
    # How the signals tell kinds of steps apart, where the plan has a pattern for these
    texts = {attempt.key: attempt.text for attempt in attempts}
    separations = separated(steps, texts, plan.synthesis, seed) if plan.synthesis else []
    run.commit(STAGE, f"selection-{seed}", {Separations: separations})
    fates = steps["fate"].drop_null().value_counts().to_pylist()
    counts = ", ".join(f"{fate['counts']:,} {fate['values']}" for fate in fates) or "none"
    print(f"edit: seed {seed}: {len(wrong):,} rollouts are wrong; their steps: {counts}")


def _revise(workspace: Workspace, arm: Arm, seed: int, by: Write | None) -> None:
    """Attempts to mend the wrong rollouts for the arm's pool, and what is believed along those that succeed. by: who
    revises in the policy's place."""
    run = workspace.run
    plan = workspace.plan
    policy = workspace.policy
    prompts = workspace.prompts

    def fill(shard: str, samples: Sequence[Sample]) -> Tables:
        attempts = [attempt for attempt in attempts_of(workspace, seed, samples) if is_wrong(attempt)]
        steps = steps_to_mend(rows_of(run, Steps, of_arm("base", seed, samples))) if arm in SIGNALLED else {}
        reviser = Reviser(prompts, policy.write, plan.revising, plan.max_tokens, sampling_seed(shard), by)
        revisions = revised(arm, attempts, steps, reviser)
        wrong = {attempt.key: attempt for attempt in attempts}
        revision_rows = [revision_row(arm, seed, revision) for revision in revisions]
        texts = repaired(revision_rows) if arm != "int_sft" else []
        mended = [wrong[text.response_id, text.sample]._replace(text=text.completion) for text in texts]
        believed = beliefs(policy, prompts, [(attempt.sample, attempt.text) for attempt in mended])
        rows: list[Record] = []
        for attempt, belief in zip(mended, believed, strict=True):
            rows += step_rows(arm, seed, attempt, belief)
        return {Revisions: revision_rows, Steps: rows}

    label = f"seed {seed}: {arm}: revisions of responses"
    in_chunks(run, f"revisions-{arm}-{seed}", workspace.samples.train, fill, label)


def _train_arm(workspace: Workspace, arm: Arm, seed: int) -> None:
    """The arm's adapter, its pool, and what training logged; the other arms go on where one cannot be trained."""
    shard = f"policy-{arm}-{seed}"
    if workspace.run.done(STAGE, shard):
        return
    row: Record = {"arm": arm, "seed": seed, "start": None if arm == "base" else STARTS.get(arm, "base")}
    row |= {"path": None, "note": None, "parameters": 0, "updates": 0, "demonstrations": 0, "seconds": 0.0}
    tables: Tables = {}
    tuned = None
    if arm in STARTS:
        tuned = _reinforce(workspace, arm, seed)
        if tuned is None:
            row["note"] = f"{STARTS[arm]}, which it begins with, was not trained"
    elif arm in TUNED:
        attempts = attempts_of(workspace, seed, workspace.samples.train)
        revisions = rows_of(workspace.run, Revisions, of_arm(arm, seed))
        try:
            texts, row["note"] = pooled(arm, revisions, attempts, workspace.plan.revising.natural, seed)
        except InputError as empty:
            row["note"] = empty.rule
        else:
            print(f"edit: seed {seed}: {arm}: fine-tuning on {len(texts):,} texts")
            prompts = {sample.response_id: workspace.prompts.grade(sample) for sample in workspace.samples.train}
            pairs = [(prompts[text.response_id], text.completion, text.ends) for text in texts]
            plan = workspace.plan
            folder = workspace.folder(arm, seed)
            tuned = fine_tune(workspace.policy, pairs, plan.fine_tuning, plan.adapter, seed=seed, folder=folder)
            row["demonstrations"] = len(texts)
            tables[Demonstrations] = [{"arm": arm, "seed": seed, **text._asdict()} for text in texts]
    if tuned is not None:
        warehouse = workspace.run.warehouse
        warehouse.share(tuned.adapter.parent)
        row["path"] = tuned.adapter.relative_to(warehouse.root).as_posix()
        row["digest"] = file_digest(tuned.adapter / "adapter_model.safetensors")
        row |= {"parameters": tuned.parameters, "updates": tuned.steps, "seconds": tuned.seconds}
        curve = {"arm": arm, "seed": seed, "part": "train"}
        history = [entry for entry in tuned.history if entry[1] != "seconds"]  # times are no result
        tables[Learning] = [curve | {"step": step, "metric": name, "value": value} for step, name, value in history]
    workspace.run.commit(STAGE, shard, {**tables, Policies: [row]})
    if arm != "base":
        done = f"{row['updates']:,} updates in {row['seconds']:.0f} s" if row["path"] else "not trained"
        print(f"edit: seed {seed}: {arm}: {done}" + (f": {row['note']}" if row["note"] else ""))


def _reinforce(workspace: Workspace, arm: Arm, seed: int) -> Tuned | None:
    """An arm of RL, which prints how far it is, and looks at the test split now and then; the last look is the arm's
    test itself. None where the arm that it begins with was not trained."""
    adapters = workspace.adapters(STARTS[arm], seed)
    if adapters is None:
        return None
    plan = workspace.plan.reinforcement
    progress = TrainingProgress(f"seed {seed}: {arm}: update", plan.steps)

    def look(step: int, policy: Policy) -> None:
        progress.reached(step)
        shard = f"look-{arm}-{seed}-{step:06d}"
        if step % plan.look_every or step == plan.steps or workspace.run.done(STAGE, shard):
            return
        rows = written(workspace, shard, arm, seed, policy, workspace.samples.test)
        points = [learning_row(row, step) for row in metric_rows({(arm, seed): rows}, 0, 0)]
        workspace.run.commit(STAGE, shard, {Learning: points})

    return reinforce(
        workspace.policy_with(adapters),
        workspace.samples.train,
        workspace.prompts,
        plan.model_copy(update={"look_every": 1}),  # after every update, for the progress; `look` keeps to the plan's
        workspace.plan.adapter,
        method=METHODS.get(arm, "grpo"),
        seed=seed,
        folder=workspace.folder(arm, seed),
        max_tokens=workspace.plan.max_tokens,
        look=look,
    )


def _measure_arm(workspace: Workspace, arm: Arm, seed: int) -> None:
    """Everything that is measured of an arm; nothing of one that was not trained."""
    adapters = workspace.adapters(arm, seed)
    if adapters is None:
        return
    policy = cache(lambda: workspace.policy_with(adapters))
    run = workspace.run
    plan = workspace.plan
    prompts = workspace.prompts
    samples = workspace.samples

    def greedy(shard: str, part: Sequence[Sample]) -> Tables:
        rows = written(workspace, shard, arm, seed, policy(), part)
        gradings = [grading_row(row, samples.bundles[row["item_id"]].bundle_id) for row in rows]
        return {Rollouts: rows, Gradings: gradings}

    def rules(_: str, part: Sequence[Sample]) -> Tables:
        """The arm's marks under edited schemes; a case that its greedy rollout already marks is not asked for again."""
        marks = {row["response_id"]: row["mark"] for row in rows_of(run, Rollouts, of_arm(arm, seed, part))}
        known: dict[Sample, int | None] = {sample: marks[sample.response_id] for sample in part}

        def mark_of(tests: Sequence[Sample]) -> list[int | None]:
            new = [sample for sample in tests if sample not in known]
            attempts = rolled(policy().write, prompts, new, 1, temperature=0.0, max_tokens=plan.max_tokens, seed=0)
            found = {attempt.sample: read_mark(attempt.text, attempt.sample.top).mark for attempt in attempts}
            return [(known | found)[sample] for sample in tests]

        return {RuleTests: rule_tests(part, samples.bundles, mark_of, f"{arm}-{seed}")}

    label = f"seed {seed}: {arm}:"
    in_chunks(run, f"greedy-{arm}-{seed}", samples.test, greedy, f"{label} test responses")
    if plan.faithfulness:
        in_chunks(run, f"rules-{arm}-{seed}", samples.test, rules, f"{label} rule tests of responses")
    start = STARTS.get(arm, "base")
    shard = f"probe-{arm}-{seed}"
    if start == "base" or run.done(STAGE, shard):
        return
    # How far the arm's beliefs moved from its start's, on the start's greedy rollouts
    by_id = {sample.response_id: sample for sample in samples.test}
    before = workspace.policy_with(workspace.adapters(start, seed) or [])
    greedy_rows = rows_of(run, Rollouts, of_arm(start, seed, samples.test))
    probed: list[Record] = []
    for part in TESTED:
        rollouts = [(by_id[row["response_id"]], row["text"]) for row in spaced(greedy_rows, part)]
        if rollouts:
            reached = beliefs(policy(), prompts, rollouts)
            initial = beliefs(before, prompts, rollouts)
            probed += probe_rows(arm, seed, part, reached, initial)
    run.commit(STAGE, shard, {ArmMetrics: probed})

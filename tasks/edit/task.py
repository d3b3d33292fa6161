"""The door of edit: responses and their target scores in; arms of a trained grader and what they are worth out."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from prefect import task

from tasks.contracts.bundle import unlocked
from tasks.contracts.errors import BackendError, InputError
from tasks.contracts.reference import TableRef
from tasks.contracts.schema import Row
from tasks.contracts.settings.edit import STARTS, TUNED, Arm, Edit
from tasks.contracts.settings.study import Study
from tasks.contracts.tables.edit import (
    TESTED,
    ArmDifferences,
    ArmMetrics,
    Demonstrations,
    Learning,
    Policies,
    Revisions,
    Rollouts,
    Separations,
    Steps,
)
from tasks.contracts.tables.judging import Gradings
from tasks.contracts.tables.rules import RuleFaithfulness, RuleTests
from tasks.edit.belief import beliefs
from tasks.edit.cases import Cases, cases
from tasks.edit.compared import difference_rows, metric_rows, probe_rows, spaced
from tasks.edit.faithful import faithfulness, rule_tests
from tasks.edit.grounding import supports
from tasks.edit.phases import (
    SIGNALLED,
    Record,
    chosen,
    curve_rows,
    demonstration_row,
    grading_row,
    is_wrong,
    learning_row,
    pooled,
    revised,
    revision_of,
    revision_row,
    rolled,
    rollout_row,
    selected,
    separated,
    step_rows,
)
from tasks.edit.policy import Policy
from tasks.edit.pool import repaired
from tasks.edit.progress import Progress
from tasks.edit.prompt import Prompts
from tasks.edit.revise import Attempt
from tasks.edit.rl import Method, reinforce
from tasks.edit.rollout import Sample, read_mark
from tasks.edit.rule_edits import edits
from tasks.edit.sft import fine_tune
from tasks.edit.tuning import Tuned, fits
from tasks.stats.target import target_scores
from tasks.store.digest import digest_of, file_digest
from tasks.store.naming import named
from tasks.store.warehouse import Rows, Run

STAGE = "edit"
TABLES: tuple[type[Row], ...] = (
    Rollouts,
    Steps,
    Separations,
    Revisions,
    Demonstrations,
    Policies,
    Learning,
    Gradings,
    RuleTests,
    RuleFaithfulness,
    ArmMetrics,
    ArmDifferences,
)
CHUNK = 128
"""Responses that are worked on together; after a kill at most so many of one phase are worked on again."""
METHODS: dict[Arm, Method] = {"dgpo": "dgpo", "edit_rl": "edit", "edit_rl_on_base": "edit"}
"""Arms of RL that are more than GRPO."""
Made = dict[type[Row], Rows]
Work = Callable[[str, Sequence[Sample]], Made]
"""Name of a shard and its samples → its tables."""


class Trained(NamedTuple):
    """What edit writes; gradings are those of every arm on the test split."""

    rollouts: TableRef
    steps: TableRef
    separations: TableRef
    revisions: TableRef
    demonstrations: TableRef
    policies: TableRef
    learning: TableRef
    gradings: TableRef
    rule_tests: TableRef
    faithfulness: TableRef
    metrics: TableRef
    differences: TableRef


@task(task_run_name=named(STAGE))
def train(
    run: Run, study: Study, base: Path, items: TableRef, responses: TableRef, people: TableRef, bundles: TableRef
) -> Trained:
    """Train and measure every arm of the study with every seed. What is finished is passed over, and a training goes on
    from its last checkpoint.

    people: gradings of the data. InputError for target scores that are no whole marks from 0, a train or test split
    without responses, a prompt longer than the policy reads, or schemes that rule faithfulness cannot edit;
    BackendError for a policy that cannot be loaded.
    """
    if not run.done(STAGE, "worth"):
        assert study.edit is not None  # or the flow would have refused the study
        run.commit(STAGE, "start", {row: [] for row in TABLES})
        course = _Course(run, study.edit, base, _cases(run, study, items, responses, people, bundles))
        course.prove()
        for seed in study.edit.seeds:
            course.train(seed)
        run.commit(STAGE, "worth", course.worth(study.evaluation.draws, study.evaluation.seed))
    return Trained(*(run.ref(row, STAGE) for row in TABLES))


def _cases(run: Run, study: Study, items: TableRef, responses: TableRef, people: TableRef, bundles: TableRef) -> Cases:
    target = target_scores(run.read(people), study.evaluation.target)
    gold = dict(zip(target["response_id"].to_pylist(), target["score"].to_pylist(), strict=True))
    rows = run.read(responses, ["response_id", "item_id", "text", "split"]).to_pylist()
    locked = unlocked(run.read(bundles).to_pylist())
    return cases(rows, run.read(items).to_pylist(), locked, gold)


@dataclass(frozen=True)
class _Course:
    """The trainings of one run. Each phase writes shards and passes over those that are there."""

    run: Run
    plan: Edit
    base: Path
    given: Cases

    @cached_property
    def prompts(self) -> Prompts:
        return Prompts(self.plan.prompts)

    @cached_property
    def policy(self) -> Policy:
        """The policy as it came. Trainings borrow it and give it back as it was."""
        return self._load([])

    def _load(self, adapters: Sequence[Path]) -> Policy:
        folder = self.base / self.plan.policy
        if find_spec("trl") is None or find_spec("peft") is None:
            raise BackendError("training a policy needs the extra: pip install 'rubricflow[embedded,train]'")
        loaded = Policy.load(folder if folder.is_dir() else self.plan.policy, adapters)
        # Its name tells trainings apart, and says nothing of where it lies.
        return replace(loaded, name="/".join([self.plan.policy, *(one.parent.name for one in adapters)]))

    def prove(self) -> None:
        """Refuse at once what would fail after hours."""
        # The longest prompt is the reviser's: it holds a rollout and a checklist.
        more = self.plan.max_tokens * (3 if any(arm in TUNED for arm in self.plan.wanted()) else 1)
        for sample in (*self.given.train, *self.given.test):
            tokens = len(self.policy.prompt_ids(self.prompts.grade(sample))) + more
            fits(self.policy, tokens, f"response '{sample.response_id}' with its rollouts")
        if self.plan.faithfulness:
            for item_id in dict.fromkeys(sample.item_id for sample in self.given.test):
                edits(self.given.bundles[item_id])
        left = f", {self.given.unlabelled:,} without a target score left out" if self.given.unlabelled else ""
        print(f"edit: {len(self.given.train):,} responses to train on{left}, {len(self.given.test):,} to test on")

    def train(self, seed: int) -> None:
        """Every arm of a seed, each after its own start. Base is the same for all seeds but the sampling."""
        arms = self.plan.wanted()
        if any(arm in TUNED for arm in arms):
            self._rollouts(seed)
        if any(arm in SIGNALLED for arm in arms):
            self._signals(seed)
            self._selection(seed)
        for arm in arms:
            if arm in TUNED:
                self._revisions(arm, seed)
            if arm != "base" or seed == self.plan.seeds[0]:
                self._training(arm, seed)
                self._testing(arm, seed)

    def worth(self, draws: int, luck: int) -> Made:
        """What all arms are worth, and the last points of their learning curves."""
        graded: dict[tuple[Arm, int], list[Record]] = {}
        for row in self._rows(Rollouts, pc.field("part") != "train"):
            graded.setdefault((row["arm"], row["seed"]), []).append(row)
        metrics = list(metric_rows(graded, draws, luck))
        updates = {(row["arm"], row["seed"]): row["updates"] for row in self._rows(Policies) if row["arm"] in STARTS}
        last = ((row, updates.get((row["arm"], row["seed"]))) for row in metrics)
        return {
            ArmMetrics: metrics,
            ArmDifferences: list(difference_rows(graded, draws, luck)),
            RuleFaithfulness: faithfulness(self._rows(RuleTests), draws, luck),
            Learning: [learning_row(row, step) for row, step in last if step is not None],
        }

    def _rollouts(self, seed: int) -> None:
        """Rollouts of the base policy on the train split."""
        plan = self.plan.revising

        def work(shard: str, samples: Sequence[Sample]) -> Made:
            return {Rollouts: self._written(shard, "base", seed, self.policy, samples, plan.rollouts, plan.temperature)}

        self._in_chunks(f"rollouts-{seed}", self.given.train, work, f"seed {seed}: rollouts", plan.rollouts)

    def _signals(self, seed: int) -> None:
        """What the base policy believes at every boundary of its rollouts, and what every step rests on."""

        def work(_: str, samples: Sequence[Sample]) -> Made:
            attempts = self._attempts(seed, samples)
            read = [(one.sample, one.text) for one in attempts]
            believed = beliefs(self.policy, self.prompts, read)
            found = zip(attempts, believed, supports(self.policy, self.prompts, read), strict=True)
            return {Steps: [row for case in found for row in step_rows("base", seed, *case)]}

        count = self.plan.revising.rollouts
        self._in_chunks(f"signals-{seed}", self.given.train, work, f"seed {seed}: signals of rollouts", count)

    def _selection(self, seed: int) -> None:
        """Adds to the signals what only all of them tell. That rests on columns which a shard has with and without it,
        so a kill between two shards does no harm."""
        if self.run.done(STAGE, f"selection-{seed}"):
            return
        wrong = [one for one in self._attempts(seed, self.given.train) if is_wrong(one)]
        keys = [(one.sample.response_id, one.number) for one in wrong]
        whole = selected(self._table(Steps, _of("base", seed)), keys, self.plan.revising)
        for shard, samples in _chunks(f"signals-{seed}", self.given.train):
            mine = pc.is_in(whole["response_id"], pa.array([sample.response_id for sample in samples]))
            self.run.commit(STAGE, shard, {Steps: whole.filter(mine)})
        known = {(row["response_id"], row["sample"]): row["text"] for row in self._rows(Rollouts, _of("base", seed))}
        kinds = self.plan.synthesis
        rows = separated(whole, known, kinds, seed) if kinds else []
        self.run.commit(STAGE, f"selection-{seed}", {Separations: rows})
        fates = {one["values"]: one["counts"] for one in whole["fate"].drop_null().value_counts().to_pylist()}
        told = ", ".join(f"{count:,} {fate}" for fate, count in fates.items()) or "none"
        print(f"edit: seed {seed}: {len(wrong):,} rollouts are wrong; their steps: {told}")

    def _revisions(self, arm: Arm, seed: int) -> None:
        """Attempts to mend the wrong rollouts for the arm's pool, and what is believed along those that succeed."""

        def work(shard: str, samples: Sequence[Sample]) -> Made:
            wrong = {
                (one.sample.response_id, one.number): one for one in self._attempts(seed, samples) if is_wrong(one)
            }
            found = chosen(self._rows(Steps, _of("base", seed, samples))) if arm in SIGNALLED else {}
            more: dict[str, Any] = {"max_tokens": self.plan.max_tokens, "seed": _luck(shard)}
            asked = self.prompts, self.policy.write, self.plan.revising
            made = revised(arm, list(wrong.values()), found, *asked, **more)
            mended = [
                wrong[one.response_id, one.sample]._replace(text=one.completion)
                for one in (repaired(made) if arm != "int_sft" else [])
            ]
            believed = beliefs(self.policy, self.prompts, [(one.sample, one.text) for one in mended])
            return {
                Revisions: [revision_row(arm, seed, one) for one in made],
                Steps: [row for case in zip(mended, believed, strict=True) for row in step_rows(arm, seed, *case)],
            }

        self._in_chunks(
            f"revisions-{arm}-{seed}", self.given.train, work, f"seed {seed}: {arm}: revisions of responses"
        )

    def _training(self, arm: Arm, seed: int) -> None:
        """The arm's adapter, its pool, and what training logged."""
        shard = f"policy-{arm}-{seed}"
        if self.run.done(STAGE, shard):
            return
        row: dict[str, Any] = {"arm": arm, "seed": seed, "start": None if arm == "base" else STARTS.get(arm, "base")}
        row |= {"path": None, "note": None, "parameters": 0, "updates": 0, "demonstrations": 0, "seconds": 0.0}
        made = self._tuned(arm, seed, row) if arm in TUNED else self._reinforced(arm, seed, row) if row["start"] else {}
        self.run.commit(STAGE, shard, {**made, Policies: [row]})
        if arm != "base":
            done = f"{row['updates']:,} updates in {row['seconds']:.0f} s" if row["path"] else "not trained"
            print(f"edit: seed {seed}: {arm}: {done}" + (f": {row['note']}" if row["note"] else ""))

    def _tuned(self, arm: Arm, seed: int, row: dict[str, Any]) -> Made:
        """An arm of supervised fine-tuning; completes its row of `policies`."""
        attempts = {(one.sample.response_id, one.number): one for one in self._attempts(seed, self.given.train)}
        made = [
            revision_of(one, attempts[one["response_id"], one["sample"]])
            for one in self._rows(Revisions, _of(arm, seed))
        ]
        try:
            pool = pooled(arm, made, list(attempts.values()), self.plan.revising.natural, seed)
        except InputError as empty:  # the other arms go on
            row |= {"note": empty.rule}
            return {}
        texts = pool.demonstrations
        prompts = {sample.response_id: self.prompts.grade(sample) for sample in self.given.train}
        pairs = [(prompts[one.response_id], one.completion, one.ends) for one in texts]
        print(f"edit: seed {seed}: {arm}: fine-tuning on {len(pairs):,} texts")
        place = self._folder(arm, seed)
        tuned = fine_tune(self.policy, pairs, self.plan.fine_tuning, self.plan.adapter, seed=seed, folder=place)
        row |= {"note": pool.note, "demonstrations": len(texts)} | self._told(tuned)
        rows = [demonstration_row(arm, seed, one) for one in texts]
        return {Demonstrations: rows, Learning: list(curve_rows(arm, seed, tuned))}

    def _reinforced(self, arm: Arm, seed: int, row: dict[str, Any]) -> Made:
        """An arm of RL; completes its row of `policies`."""
        adapters = self._adapters(STARTS[arm], seed)
        if adapters is None:
            row |= {"note": f"{STARTS[arm]}, which it begins with, was not trained"}
            return {}
        tuned = reinforce(
            self._with(adapters),
            self.given.train,
            self.prompts,
            # Looked at after every update, to say how far it is; `_look` keeps to the study's number.
            self.plan.reinforcement.model_copy(update={"look_every": 1}),
            self.plan.adapter,
            method=METHODS.get(arm, "grpo"),
            seed=seed,
            folder=self._folder(arm, seed),
            max_tokens=self.plan.max_tokens,
            look=self._look(arm, seed),
        )
        row |= self._told(tuned)
        return {Learning: list(curve_rows(arm, seed, tuned))}

    def _look(self, arm: Arm, seed: int) -> Callable[[int, Policy], None]:
        """Says how far RL is, and looks at the test split now and then; the last look is the arm's test itself."""
        plan = self.plan.reinforcement
        progress = Progress(f"seed {seed}: {arm}: update", plan.steps)

        def look(step: int, policy: Policy) -> None:
            progress.reached(step)
            shard = f"look-{arm}-{seed}-{step:06d}"
            if step % plan.look_every or step == plan.steps or self.run.done(STAGE, shard):
                return
            rows = self._written(shard, arm, seed, policy, self.given.test)
            points = [learning_row(row, step) for row in metric_rows({(arm, seed): rows}, 0, 0)]
            self.run.commit(STAGE, shard, {Learning: points})

        return look

    def _testing(self, arm: Arm, seed: int) -> None:
        """The arm on the test split: greedy, under edited schemes, and what it believes beside its start."""
        adapters = self._adapters(arm, seed)
        if adapters is None:
            return
        policy = cache(lambda: self._with(adapters))
        what, test = f"seed {seed}: {arm}:", self.given.test
        self._in_chunks(f"greedy-{arm}-{seed}", test, self._greedy(arm, seed, policy), f"{what} test responses")
        if self.plan.faithfulness:
            rules = self._rules(arm, seed, policy)
            self._in_chunks(f"rules-{arm}-{seed}", test, rules, f"{what} rule tests of responses")
        start, shard = STARTS.get(arm, "base"), f"probe-{arm}-{seed}"
        if start != "base" and not self.run.done(STAGE, shard):
            self.run.commit(STAGE, shard, {ArmMetrics: list(self._probed(arm, start, seed, policy()))})

    def _greedy(self, arm: Arm, seed: int, policy: Callable[[], Policy]) -> Work:
        ids = {item: bundle.bundle_id for item, bundle in self.given.bundles.items()}

        def work(shard: str, samples: Sequence[Sample]) -> Made:
            rows = self._written(shard, arm, seed, policy(), samples)
            return {Rollouts: rows, Gradings: [grading_row(row, ids[row["item_id"]]) for row in rows]}

        return work

    def _rules(self, arm: Arm, seed: int, policy: Callable[[], Policy]) -> Work:
        def work(_: str, samples: Sequence[Sample]) -> Made:
            rows = {row["response_id"]: row["mark"] for row in self._rows(Rollouts, _of(arm, seed, samples))}
            known = {sample: rows[sample.response_id] for sample in samples}

            def mark_of(asked: Sequence[Sample]) -> list[int | None]:
                new = [sample for sample in asked if sample not in known]
                more: dict[str, Any] = {"temperature": 0.0, "max_tokens": self.plan.max_tokens, "seed": 0}
                made = rolled(policy().write, self.prompts, new, 1, **more)
                marks = known | {one.sample: read_mark(one.text, one.sample.top).mark for one in made}
                return [marks[sample] for sample in asked]

            return {RuleTests: rule_tests(samples, self.given.bundles, mark_of, f"{arm}-{seed}")}

        return work

    def _probed(self, arm: Arm, start: Arm, seed: int, policy: Policy) -> Iterator[dict[str, Any]]:
        """How far the arm's beliefs moved from its start's, on the start's greedy rollouts."""
        samples = {sample.response_id: sample for sample in self.given.test}
        before = self._with(self._adapters(start, seed) or [])
        rows = self._rows(Rollouts, _of(start, seed, self.given.test))
        for part in TESTED:
            read = [(samples[row["response_id"]], row["text"]) for row in spaced(rows, part)]
            if read:
                yield from probe_rows(
                    arm, seed, part, beliefs(policy, self.prompts, read), beliefs(before, self.prompts, read)
                )

    def _adapters(self, arm: Arm, seed: int) -> list[Path] | None:
        """The adapters that make up an arm, in order; None for one that was not trained."""
        if arm == "base":
            return []
        before = self._adapters(STARTS.get(arm, "base"), seed)
        folder = self._folder(arm, seed)
        return [*before, folder / "adapter"] if before is not None and (folder / "done.json").exists() else None

    def _with(self, adapters: Sequence[Path]) -> Policy:
        return self._load(adapters) if adapters else self.policy

    def _folder(self, arm: Arm, seed: int) -> Path:
        return self.run.folder / "edit" / f"{arm}-{seed}"

    def _told(self, tuned: Tuned) -> dict[str, Any]:
        """What `policies` says of a training."""
        return {
            "path": tuned.adapter.relative_to(self.run.warehouse.root).as_posix(),
            "digest": file_digest(tuned.adapter / "adapter_model.safetensors"),
            "parameters": tuned.parameters,
            "updates": tuned.steps,
            "seconds": tuned.seconds,
        }

    def _written(
        self,
        shard: str,
        arm: Arm,
        seed: int,
        policy: Policy,
        samples: Sequence[Sample],
        count: int = 1,
        temperature: float = 0.0,
    ) -> list[dict[str, Any]]:
        """Rollouts newly written, as rows: several of each sample, or the greedy one."""
        start = time.monotonic()
        more: dict[str, Any] = {"temperature": temperature, "max_tokens": self.plan.max_tokens, "seed": _luck(shard)}
        made = rolled(policy.write, self.prompts, samples, count, **more)
        seconds = (time.monotonic() - start) / len(made)
        return [rollout_row(arm, seed, self.given.part[one.sample.response_id], one, seconds) for one in made]

    def _attempts(self, seed: int, samples: Sequence[Sample]) -> list[Attempt]:
        """The base policy's rollouts of training samples."""
        of = {sample.response_id: sample for sample in samples}
        rows = self._rows(Rollouts, _of("base", seed, samples))
        return [Attempt(of[row["response_id"]], row["sample"], row["text"]) for row in rows]

    def _rows(self, row: type[Row], where: pc.Expression | None = None) -> list[Record]:
        return list(self._table(row, where).to_pylist())

    def _table(self, row: type[Row], where: pc.Expression | None = None) -> pa.Table:
        """Rows of this stage, shard by shard."""
        return self.run.read(self.run.ref(row, STAGE), where=where)

    def _in_chunks(self, name: str, samples: Sequence[Sample], work: Work, what: str, each: int = 1) -> None:
        """Does the work on every chunk that is not done; `each`: what a sample counts in the line about it."""
        todo = [(shard, part) for shard, part in _chunks(name, samples) if not self.run.done(STAGE, shard)]
        done = len(samples) - sum(len(part) for _, part in todo)
        progress = Progress(what, len(samples) * each, done * each)
        for shard, part in todo:
            self.run.commit(STAGE, shard, work(shard, part))
            done += len(part)
            progress.reached(done * each)


def _chunks(name: str, samples: Sequence[Sample]) -> list[tuple[str, Sequence[Sample]]]:
    """Shards of a phase with their samples."""
    starts = range(0, len(samples), CHUNK)
    return [(f"{name}-{number:05d}", samples[start : start + CHUNK]) for number, start in enumerate(starts)]


def _of(arm: Arm, seed: int, samples: Sequence[Sample] | None = None) -> pc.Expression:
    """Rows of an arm and a seed, on these samples where they are given."""
    mine = (pc.field("arm") == arm) & (pc.field("seed") == seed)
    ids = [sample.response_id for sample in samples or ()]
    return mine if samples is None else mine & pc.field("response_id").isin(ids)


def _luck(shard: str) -> int:
    """The seed of a shard's sampling: by its name, so that it is the same whatever was done before it."""
    return int(digest_of([STAGE, shard])[:8], 16)

"""Edit-SFT with another model as reviser: do its mended rollouts teach a small policy more than the policy's own?

`python tests/studies/reviser.py STUDY RUN --warehouse DIR [--seeds 0 1]`, after `rubricflow batch STUDY --work edit`
has brought the revisions of RUN's first seed. Trained and tested, greedy on the test split, by the run's own functions,
each with every seed: `mended`, the pool of the arm edit_sft; `right`, rollouts that came to the gold mark by themselves
(rejection sampling); `own`, as many rollouts as `mended` has texts, as they came. What is trained and tested stays in
the run's folder and is not done again. Printed are each arm's figures and the differences
that matter, paired over answers.

`--audit FILE` reads an auditor's replies, one a line ({"id": "ARM-SEED/RESPONSE", "reply": {"steps": [{"sound": ...},
...], "pass": ...}}), and prints the share of rollouts that pass and of steps that are sound; of the base's training
rollouts (arm `train`) also how much oftener the step that the belief chose is at fault than the others.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.metrics import roc_auc_score

from rubricflow.tasks.core.contracts.bundle import unlocked
from rubricflow.tasks.core.contracts.settings.study import load_study
from rubricflow.tasks.core.contracts.tables.data import Items, Responses
from rubricflow.tasks.core.contracts.tables.edit import Revisions, Steps
from rubricflow.tasks.core.contracts.tables.judging import Gradings
from rubricflow.tasks.core.contracts.tables.rubrics import Bundles
from rubricflow.tasks.core.stats.scores import target_scores
from rubricflow.tasks.core.store.warehouse import Warehouse
from rubricflow.tasks.methods.edit.measures import differences, figures, marks_of
from rubricflow.tasks.methods.edit.phases import Demonstration, is_wrong, pooled
from rubricflow.tasks.methods.edit.rollout import grading_samples, up_to_mark
from rubricflow.tasks.methods.edit.tuning import fine_tune
from rubricflow.tasks.methods.edit.workspace import Workspace, attempts_of, of_arm, rows_of, written

ARMS = ("mended", "right", "own")


def workspace_of(study_file: Path, run_id: str, warehouse: Path) -> Workspace:
    study = load_study(study_file)
    assert study.edit is not None
    run = Warehouse.open(warehouse).run(run_id)
    target = target_scores(run.table(Gradings, "ingest"), study.evaluation.target)
    gold = dict(zip(target["response_id"].to_pylist(), target["score"].to_pylist(), strict=True))
    tables = [run.table(row, stage).to_pylist() for row, stage in ((Responses, "ingest"), (Items, "ingest"))]
    samples = grading_samples(*tables, unlocked(run.table(Bundles, "lock").to_pylist()), gold)
    return Workspace(run, study.edit, study_file.parent, samples)


def texts_of(workspace: Workspace, arm: str, seed: int) -> Sequence[Demonstration]:
    """The pool of an arm. seed: of the draw, where not all rollouts fit in."""
    first = workspace.plan.seeds[0]
    attempts = attempts_of(workspace, first, workspace.samples.train)
    revisions = rows_of(workspace.run, Revisions, of_arm("edit_sft", first))
    mended, _ = pooled("edit_sft", revisions, attempts, workspace.plan.revising.natural, seed)
    if arm == "mended":
        return mended
    drawn = [attempt for attempt in attempts if arm == "own" or not is_wrong(attempt)]
    drawn = [drawn[number] for number in np.random.default_rng(seed).permutation(len(drawn))[: len(mended)]]
    return [Demonstration(*one.key, "natural", up_to_mark(one.text, one.sample.top), True) for one in sorted(drawn)]


def tested(workspace: Workspace, arm: str, seed: int) -> list[dict[str, Any]]:
    """An arm's greedy rollouts on the test split, after its training."""
    folder = workspace.run.folder / "reviser" / f"{arm}-{seed}"
    file = folder / "rollouts.json"
    if file.exists():
        return list(json.loads(file.read_text()))
    plan, policy = workspace.plan, workspace.policy
    if arm != "base":
        prompts = {sample.response_id: workspace.prompts.grade(sample) for sample in workspace.samples.train}
        texts = texts_of(workspace, arm, seed)
        pairs = [(prompts[text.response_id], text.completion, text.ends) for text in texts]
        tuned = fine_tune(policy, pairs, plan.fine_tuning, plan.adapter, seed=seed, folder=folder / "policy")
        print(f"{arm}, seed {seed}: {len(texts)} texts, {tuned.steps} updates in {tuned.seconds:.0f} s", flush=True)
        policy = workspace.policy_with([tuned.adapter])
    rows = written(workspace, f"{arm}-{seed}", "base", seed, policy, workspace.samples.test)
    folder.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(rows))
    return rows


def measure(workspace: Workspace, arms: Sequence[str], seeds: Sequence[int]) -> None:
    graded = {("base", 0): tested(workspace, "base", 0)}
    graded |= {(arm, seed): tested(workspace, arm, seed) for seed in seeds for arm in arms}
    marks = {}
    for key, rows in graded.items():
        marks[key] = marks_of(rows, "seen")
    of_arm = [{"arm": arm, "seed": seed, **row} for (arm, seed), one in marks.items() if one for row in figures(one)]
    print(shown(of_arm, ["arm", "seed"]))
    less: list[dict[str, Any]] = []
    for (arm, seed), one in marks.items():
        for other in ("base", "right", "own"):
            against = marks.get((other, 0 if other == "base" else seed))
            if one and against and (arm == "mended" or (other == "base" and arm != "base")):
                less += [{"less": f"{arm} − {other}", "seed": seed, **row} for row in differences(one, against)]
    if less:
        print(shown(less, ["less", "seed"]))


def shown(rows: list[dict[str, Any]], index: list[str]) -> str:
    frame = pd.DataFrame(rows)
    ends = zip(frame["value"], frame["low"], frame["high"], frame["n"], strict=True)
    frame["figure"] = [f"{value:.3f} [{low:.3f}, {high:.3f}], n {n}" for value, low, high, n in ends]
    return str(frame.pivot(index=index, columns="metric", values="figure").to_string())


def audited(workspace: Workspace, files: Sequence[Path]) -> None:
    """What an auditor says of rollouts and of their steps."""
    said = [json.loads(line) for file in files for line in file.read_text().splitlines() if line.strip()]
    steps = [
        {"arm": one["id"].partition("/")[0], "response_id": one["id"].partition("/")[2], "step": place, **step}
        for one in said
        for place, step in enumerate(one["reply"]["steps"], 1)
    ]
    frame = pd.DataFrame(steps)
    for arm, rows in frame.groupby("arm"):
        passed = [one["reply"]["pass"] for one in said if one["id"].startswith(f"{arm}/")]
        by_rollout = rows.groupby("response_id")["sound"].agg(["sum", "size"]).to_numpy()
        print(f"{arm}: rollouts that pass {share(np.column_stack([passed, np.ones(len(passed))]))}; ", end="")
        print(f"steps that are sound {share(by_rollout)}")
    signals = pd.DataFrame(rows_of(workspace.run, Steps, of_arm("base", workspace.plan.seeds[0])))
    found = frame[frame["arm"] == "train"].merge(signals, on=["response_id", "step"])
    found = found.assign(fault=~found["sound"].astype(bool), chosen=found["fate"] == "chosen")
    wrong = found[found.groupby("response_id")["chosen"].transform("any")]
    print(f"steps at fault, chosen by the belief less the others: {resampled(wrong, gap)}")
    print(f"of steps that judge the answer: {resampled(wrong[wrong['kind'] == 'grounding'], gap)}")
    print(f"less the others at the same place: {resampled(wrong, gap_by_place)}")
    for signal in ("change", "grounding_answer", "grounding_scheme", "prefix_residual"):
        auc = resampled(found, lambda rows, of=signal: (roc_auc_score(rows["fault"], -rows[of]),))
        print(f"AUC of little {signal} for a step at fault: {auc}, n {len(found)}")


def gap(rows: pd.DataFrame) -> tuple[float, ...]:
    """The difference of two shares of steps at fault, and the shares."""
    one, other = (rows.loc[rows["chosen"] == is_chosen, "fault"].mean() for is_chosen in (True, False))
    return one - other, one, other


def gap_by_place(rows: pd.DataFrame) -> tuple[float, ...]:
    """The same, the others weighted as the chosen ones lie in their rollouts."""
    chosen = rows[rows["chosen"]]
    other = rows[~rows["chosen"]].groupby("step")["fault"].mean().reindex(chosen["step"]).mean()
    return chosen["fault"].mean() - other, chosen["fault"].mean(), other


def resampled(rows: pd.DataFrame, figure: Callable[[pd.DataFrame], tuple[float, ...]]) -> str:
    """A figure with its interval by rollouts, and what it is made of."""
    rng, of = np.random.default_rng(0), list(rows.groupby("response_id").indices.values())
    draws = [np.concatenate([of[place] for place in rng.integers(0, len(of), len(of))]) for _ in range(500)]
    drawn = [figure(rows.iloc[places])[0] for places in draws]
    low, high = np.nanquantile(drawn, [0.025, 0.975])
    value, *parts = figure(rows)
    return f"{value:.3f} [{low:.3f}, {high:.3f}]" + "".join(f", {part:.3f}" for part in parts)


def share(counts: np.ndarray) -> str:
    """A share with its interval by rollouts. counts: (n, 2) hits and cases of each."""
    counts = counts.astype(float)
    drawn = counts[np.random.default_rng(0).integers(0, len(counts), (10_000, len(counts)))].sum(axis=1)
    low, high = np.quantile(drawn[:, 0] / drawn[:, 1], [0.025, 0.975])
    total = counts.sum(axis=0)
    return f"{total[0] / total[1]:.3f} [{low:.3f}, {high:.3f}], {total[0]:.0f} of {total[1]:.0f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("study", type=Path)
    parser.add_argument("run")
    parser.add_argument("--warehouse", type=Path, default=Path("data/warehouse"))
    parser.add_argument("--arms", nargs="*", default=ARMS, choices=ARMS)
    parser.add_argument("--seeds", nargs="*", type=int, default=[0, 1])
    parser.add_argument("--audit", nargs="*", type=Path)
    given = parser.parse_args()
    workspace = workspace_of(given.study, given.run, given.warehouse)
    if given.audit:
        audited(workspace, given.audit)
    else:
        measure(workspace, given.arms, given.seeds)


if __name__ == "__main__":
    main()

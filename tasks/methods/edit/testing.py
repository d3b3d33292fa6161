"""An arm on the test split: greedy, under edited schemes, and what it believes beside its start; and what all arms are
worth by that."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np
import pyarrow.compute as pc

from rubricflow.tasks.core.contracts.bundle import Bundle
from rubricflow.tasks.core.contracts.settings.edit import STARTS, Arm
from rubricflow.tasks.core.contracts.tables.edit import TESTED, ArmDifferences, ArmMetrics, Learning, Policies, Rollouts
from rubricflow.tasks.core.contracts.tables.judging import Gradings
from rubricflow.tasks.core.contracts.tables.rules import RuleEdit, RuleFaithfulness, RuleTests
from rubricflow.tasks.core.stats.arrays import Floats
from rubricflow.tasks.core.stats.bootstrap import cluster_codes, draw_totals, interval, sums_by_code
from rubricflow.tasks.methods.edit.belief import beliefs
from rubricflow.tasks.methods.edit.measures import difference_rows, metric_rows, probe_rows, spaced
from rubricflow.tasks.methods.edit.phases import Record, grading_row, learning_row, rolled
from rubricflow.tasks.methods.edit.policy import Policy
from rubricflow.tasks.methods.edit.rollout import Sample, printed, read_mark
from rubricflow.tasks.methods.edit.rule_edits import Edited, edits
from rubricflow.tasks.methods.edit.workspace import STAGE, Tables, Workspace, in_chunks, of_arm, rows_of, written


class Ratio(NamedTuple):
    """A ratio of sums with its 95% interval; without a value it says why."""

    value: float | None
    low: float | None = None
    high: float | None = None
    note: str | None = None


def measure(workspace: Workspace, arm: Arm, seed: int) -> None:
    """Everything that is measured of an arm; nothing of one that was not trained."""
    adapters = workspace.adapters(arm, seed)
    if adapters is None:
        return
    policy = cache(lambda: workspace.policy_with(adapters))
    label, test = f"seed {seed}: {arm}:", workspace.samples.test

    def greedy(shard: str, samples: Sequence[Sample]) -> Tables:
        return _greedy(workspace, arm, seed, policy(), shard, samples)

    def rules(_: str, samples: Sequence[Sample]) -> Tables:
        return {RuleTests: _rule_tests(workspace, arm, seed, policy, samples)}

    in_chunks(workspace.run, f"greedy-{arm}-{seed}", test, greedy, f"{label} test responses")
    if workspace.plan.faithfulness:
        in_chunks(workspace.run, f"rules-{arm}-{seed}", test, rules, f"{label} rule tests of responses")
    start, shard = STARTS.get(arm, "base"), f"probe-{arm}-{seed}"
    if start != "base" and not workspace.run.done(STAGE, shard):
        workspace.run.commit(STAGE, shard, {ArmMetrics: list(_probed(workspace, arm, start, seed, policy()))})


def worth(workspace: Workspace, draws: int, seed: int) -> Tables:
    """What all arms are worth, and the last points of their learning curves. draws, seed: of the bootstrap."""
    graded: dict[tuple[Arm, int], list[Record]] = {}
    for row in rows_of(workspace.run, Rollouts, pc.field("part") != "train"):
        graded.setdefault((row["arm"], row["seed"]), []).append(row)
    metrics = list(metric_rows(graded, draws, seed))
    policies = rows_of(workspace.run, Policies)
    updates = {(row["arm"], row["seed"]): row["updates"] for row in policies if row["arm"] in STARTS}
    last_points = []
    for row in metrics:
        step = updates.get((row["arm"], row["seed"]))
        if step is not None:
            last_points.append(learning_row(row, step))
    return {
        ArmMetrics: metrics,
        ArmDifferences: list(difference_rows(graded, draws, seed)),
        RuleFaithfulness: faithfulness(rows_of(workspace.run, RuleTests), draws, seed),
        Learning: last_points,
    }


def _greedy(workspace: Workspace, arm: Arm, seed: int, policy: Policy, shard: str, samples: Sequence[Sample]) -> Tables:
    rows = written(workspace, shard, arm, seed, policy, samples)
    ids = {item: bundle.bundle_id for item, bundle in workspace.samples.bundles.items()}
    return {Rollouts: rows, Gradings: [grading_row(row, ids[row["item_id"]]) for row in rows]}


def _rule_tests(
    workspace: Workspace, arm: Arm, seed: int, policy: Callable[[], Policy], samples: Sequence[Sample]
) -> list[dict[str, Any]]:
    """The arm's marks under edited schemes; a case that its greedy rollout already marks is not asked for again."""
    marks = {row["response_id"]: row["mark"] for row in rows_of(workspace.run, Rollouts, of_arm(arm, seed, samples))}
    greedy = {sample: marks[sample.response_id] for sample in samples}

    def mark_of(tests: Sequence[Sample]) -> list[int | None]:
        new = [sample for sample in tests if sample not in greedy]
        marks_by_sample = greedy | _marks(workspace, policy(), new)
        return [marks_by_sample[sample] for sample in tests]

    return rule_tests(samples, workspace.samples.bundles, mark_of, f"{arm}-{seed}")


def _marks(workspace: Workspace, policy: Policy, samples: Sequence[Sample]) -> dict[Sample, int | None]:
    """The marks of greedy rollouts."""
    longest = workspace.plan.max_tokens
    attempts = rolled(policy.write, workspace.prompts, samples, 1, temperature=0.0, max_tokens=longest, seed=0)
    return {attempt.sample: read_mark(attempt.text, attempt.sample.top).mark for attempt in attempts}


def _probed(workspace: Workspace, arm: Arm, start: Arm, seed: int, policy: Policy) -> Iterator[dict[str, Any]]:
    """How far the arm's beliefs moved from its start's, on the start's greedy rollouts."""
    samples = {sample.response_id: sample for sample in workspace.samples.test}
    before = workspace.policy_with(workspace.adapters(start, seed) or [])
    rows = rows_of(workspace.run, Rollouts, of_arm(start, seed, workspace.samples.test))
    for part in TESTED:
        rollouts = [(samples[row["response_id"]], row["text"]) for row in spaced(rows, part)]
        if rollouts:
            reached = beliefs(policy, workspace.prompts, rollouts)
            initial = beliefs(before, workspace.prompts, rollouts)
            yield from probe_rows(arm, seed, part, reached, initial)


# Rule faithfulness: whether a grader's marks follow edits of the mark scheme (section 3.4 and appendix E).


def rule_tests(
    samples: Sequence[Sample],
    bundles: Mapping[str, Bundle],
    mark_of: Callable[[Sequence[Sample]], Sequence[int | None]],
    rater_id: str,
) -> list[dict[str, Any]]:
    """Rows of `rule_tests` of a grader that states the total: every sample marked as it is and under every edit.

    samples: those without a gold mark are left out. bundles: item → its scheme. mark_of: the marks of samples in their
    order, None where the grader gives none; it is called once. InputError as in `edits`.
    """
    labelled = [sample for sample in samples if sample.gold is not None]
    items = list(dict.fromkeys(sample.item_id for sample in labelled))
    schemes = {item: edits(bundles[item]) for item in items}
    plain = {item: printed(bundles[item]) for item in items}
    before = [replace(sample, scheme=plain[sample.item_id]) for sample in labelled]
    tests: list[tuple[int, Edited]] = []
    for number, sample in enumerate(labelled):
        tests += [(number, edited) for edited in schemes[sample.item_id]]
    after = [_under(edited, labelled[number]) for number, edited in tests]
    marks = mark_of([*before, *after])
    rows = []
    for (number, edited), mark in zip(tests, marks[len(before) :], strict=True):
        sample, predicted = labelled[number], (marks[number], mark)
        row = edited.row(rater_id, sample.response_id, sample.item_id, sample.gold or 0, predicted, "stated")
        rows.append(row)
    return rows


def _under(edited: Edited, sample: Sample) -> Sample:
    """The sample under an edited scheme."""
    return replace(sample, scheme=edited.bundle.text, top=edited.marks[-1], gold=edited.marks[sample.gold or 0])


def faithfulness(tests: Iterable[Mapping[str, Any]], draws: int = 2000, seed: int = 0) -> list[dict[str, Any]]:
    """Rows of `rule_faithfulness`: one for every grader and edit in rows of `rule_tests`, in their order.

    Floor rate: share of marks under the edited scheme that are 0. RSR = mean |Δpred| / mean |Δgold|, a ratio of means;
    in-rubric RSR: the same over rows whose mark under the edited scheme is not 0. Marks count as the grader gave them;
    one that is no whole number is 0 where it rounds to that, half up. Rows without one of the grader's marks are left
    out and counted. Intervals resample responses, `draws` times; none where that is 0.
    """
    grouped: defaultdict[tuple[str, RuleEdit], list[Mapping[str, Any]]] = defaultdict(list)
    for row in tests:
        grouped[row["rater_id"], row["edit"]].append(row)
    return [_followed(rows, draws, seed) for rows in grouped.values()]


def _followed(rows: Sequence[Mapping[str, Any]], draws: int, seed: int) -> dict[str, Any]:
    """The row of one grader and edit."""
    scored = [row for row in rows if row["predicted"] is not None and row["predicted_edited"] is not None]
    terms = _terms(scored)
    n, floored, gold, pred, inside, gold_inside, pred_inside = terms.sum(axis=0)
    responses = [row["response_id"] for row in scored]
    drawn, clusters = _drawn(terms, responses, draws, seed), len(set(responses))
    floor = _ratio(floored, n, drawn[:, [1, 0]], clusters, "no response has both marks")
    rsr = _ratio(pred, gold, drawn[:, [3, 2]], clusters, _note(n, "response has both marks"))
    inside_clusters = len({response for response, mark in zip(responses, terms[:, 4], strict=True) if mark})
    note = _note(inside, "mark under the edited scheme is above 0")
    within = _ratio(pred_inside, gold_inside, drawn[:, [6, 5]], inside_clusters, note)
    first = {name: rows[0][name] for name in ("rater_id", "edit", "family", "totals")}
    gold_change = float(gold / n) if n else None
    counts = {"n": len(scored), "unscored": len(rows) - len(scored), "gold_change": gold_change}
    floor_columns = {"floor_rate": floor.value, "floor_low": floor.low, "floor_high": floor.high}
    rsr_columns = dict(zip(("rsr", "rsr_low", "rsr_high", "rsr_note"), rsr, strict=True))
    in_rubric = dict(zip(("in_rubric", "in_rubric_low", "in_rubric_high", "in_rubric_note"), within, strict=True))
    return {**first, **counts, **floor_columns, **rsr_columns, **in_rubric, "in_rubric_n": int(inside)}


def _terms(rows: Sequence[Mapping[str, Any]]) -> Floats:
    """1, floored, |Δgold|, |Δpred|, not floored, and the changes where not floored; shape (rows, 7)."""
    cells = map(itemgetter("gold", "gold_edited", "predicted", "predicted_edited"), rows)
    marks = np.array(list(cells), np.float64).reshape(-1, 4)
    gold, gold_edited, predicted, predicted_edited = marks.T
    gold_change, change = np.abs(gold_edited - gold), np.abs(predicted_edited - predicted)
    inside = (predicted_edited >= 0.5).astype(np.float64)
    everywhere = [np.ones_like(gold), 1 - inside, gold_change, change]
    return np.stack([*everywhere, inside, gold_change * inside, change * inside], axis=1)


def _drawn(terms: Floats, responses: Sequence[str], draws: int, seed: int) -> Floats:
    """Sums of every draw, shape (draws, columns)."""
    if not draws or not responses:
        return np.full((1, terms.shape[1]), np.nan)
    codes, size = cluster_codes(responses)
    return draw_totals([sums_by_code(terms, codes, size)], draws, seed)[0]


def _note(rows: float, needed: str) -> str:
    """Why a ratio over so many rows has no value."""
    return f"undefined: the edit changes no human mark of {rows:.0f}" if rows else f"undefined: no {needed}"


def _ratio(top: float, bottom: float, drawn: Floats, responses: int, note: str) -> Ratio:
    """A ratio of sums; a draw, of (draws, 2), in which the lower sum is 0 has none. responses: how many it rests on."""
    if not bottom:
        return Ratio(None, note=note)
    above, below = drawn.T
    ends = interval(np.divide(above, below, out=np.full_like(above, np.nan), where=below > 0), responses)
    return Ratio(float(top / bottom), ends.low, ends.high)

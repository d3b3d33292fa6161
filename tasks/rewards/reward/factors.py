"""Edge-specific retention factors: read from a table, or learned from a study's own human scores, and what the learned
ones gain on responses that they were not fitted to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from scipy.optimize import nnls

from rubricflow.tasks.core.contracts import Record, ScaleBounds
from rubricflow.tasks.core.contracts.errors import InputError
from rubricflow.tasks.core.contracts.graph import Graph
from rubricflow.tasks.core.contracts.settings.reward import Learn, Reward
from rubricflow.tasks.core.stats.agreement import pearson, qwk, rmse, spearman
from rubricflow.tasks.core.stats.arrays import Floats
from rubricflow.tasks.core.stats.bootstrap import Difference, paired_bootstrap
from rubricflow.tasks.core.store.cells import as_number, need, quoted, text_or_none
from rubricflow.tasks.core.store.source import chunks
from rubricflow.tasks.rewards.reward.aggregate import aggregate
from rubricflow.tasks.rewards.reward.compiled import Batch, CompiledGraph, some_of, untyped
from rubricflow.tasks.rewards.reward.figures import Resampling, RewardFigure, ratio, record
from rubricflow.tasks.rewards.reward.leakage import edge_cases
from rubricflow.tasks.rewards.reward.learn import Learned, complete, learn, line, paying, rewards_and_slopes
from rubricflow.tasks.rewards.reward.local import Locals

Factors = dict[str, dict[tuple[str, str], float]]
"""Rubric → (parent, child) → retention factor before η."""


def read_factors(path: Path, graphs: Mapping[str, Graph]) -> Factors:
    """The factors of a table with rubric_id, parent, child and retention, such as `retentions`.

    InputError names file, row, field and rule: a rubric or edge that there is not, one given twice, a factor outside
    [0, 1].
    """
    edges = {name: {(edge.parent, edge.child) for edge in graph.edges} for name, graph in graphs.items()}
    factors: Factors = {}
    for frame in chunks(path):
        for name in ("rubric_id", "parent", "child", "retention"):
            need(frame, name, path)
        for number, cells in zip(frame.index.tolist(), frame.to_dict("records"), strict=True):
            row = int(number) + 1
            rubric, parent, child = (text_or_none(cells[name]) or "" for name in ("rubric_id", "parent", "child"))
            if rubric not in edges:
                raise InputError(f"there is no rubric {quoted(rubric)}", file=path, row=row, field="rubric_id")
            if (parent, child) not in edges[rubric]:
                rule = f"rubric {quoted(rubric)} has no edge {parent} → {child}"
                raise InputError(rule, file=path, row=row, field="child")
            of_rubric = factors.setdefault(rubric, {})
            if (parent, child) in of_rubric:
                raise InputError(f"edge {parent} → {child} is given twice", file=path, row=row, field="child")
            value = as_number(cells["retention"], path, row, "retention")
            if value is None or not 0 <= value <= 1:
                raise InputError(
                    f"{quoted(cells['retention'])} is not in [0, 1]", file=path, row=row, field="retention"
                )
            of_rubric[parent, child] = value
    return factors


class Lesson(NamedTuple):
    """What a study's human scores teach."""

    retentions: list[Record]
    """Rows of `retentions`, without the rubrics for which nothing could be fitted."""
    diagnostics: list[Record]
    """Rows of `diagnostics`: each method's error and agreement on the test split, and what learning gains there."""


def taught_by_marks(
    judged: Locals, compiled: Mapping[str, CompiledGraph], people: Locals, split: NDArray[Any], settings: Reward
) -> Lesson:
    """Factors by people's marks of criteria in the calibration split, tried on the test split: `credit error` is the
    mean squared difference of a supported child's share from people's mark of it, where a parent fails.

    people: their marks as local scores; split: (n,) of the judged responses. InputError where there is no case to learn
    from: a child that is credited and marked, with a parent that is not credited.
    """
    plan = settings.learn
    assert plan is not None  # or nothing is to be learned
    graphs = [compiled[graph.rubric_id] for graph in judged.batch.compiled]
    marks = marks_on(judged, people)
    cells = np.repeat(split == "calibration", np.diff(judged.batch.start))
    batch = replace(judged.batch, compiled=tuple(graphs))
    learned = paying(batch, np.where(cells, marks, np.nan), settings.threshold)
    if not any(cases.any() for _, cases in learned):
        rule = f"'{plan.target}' marked no credited criterion of the calibration split whose parent fails"
        hint = "only responses with a score are dealt to the calibration split"
        raise InputError(rule, field="reward.learn", hint=hint)
    rows = []
    for graph, (factors, cases) in zip(graphs, learned, strict=True):
        rows += _retentions(graph, factors.tolist(), cases.tolist(), plan.target)
    by_edges = [replace(graph, retention=factors) for graph, (factors, _) in zip(graphs, learned, strict=True)]
    methods = {"flat": [replace(graph, retention=np.ones_like(graph.retention)) for graph in graphs]}
    methods |= {"typed": graphs, "learned": by_edges}
    resampling = Resampling.plan(judged, settings)
    figures = []
    for name, retained in methods.items():
        share = aggregate(replace(batch, compiled=tuple(retained)), "gear").marginal
        tried = edge_cases(batch, share, settings.threshold)
        tested = np.flatnonzero(tried.violated & ~np.isnan(marks[tried.child]) & (split[tried.response] == "test"))
        tested = tested[np.unique(tried.child[tested], return_index=True)[1]]
        missed = (tried.effective[tested] - marks[tried.child[tested]]) ** 2
        figure = resampling.figure(ratio, tried.response[tested], [missed, np.ones(len(tested))])
        figures.append(record("credit error", name, figure, len(tested), tried.left_out, per="child"))
    return Lesson(rows, figures)


def marks_on(judged: Locals, people: Locals) -> Floats:
    """(Σk,) people's local scores of the judged responses' criteria, NaN where there is none; of several markings of a
    response the first."""
    marks = np.full(len(judged.batch.local), np.nan)
    place = pc.index_in(judged.response_id, value_set=people.response_id).to_numpy(zero_copy_only=False)
    for row in np.flatnonzero(~np.isnan(place.astype(float))).tolist():
        at = int(place[row])
        mine = slice(*judged.batch.start[row : row + 2])
        theirs = slice(*people.batch.start[at : at + 2])
        marks[mine] = np.where(people.batch.scored[theirs], people.batch.local[theirs], np.nan)
    return marks


@dataclass(frozen=True)
class HumanScores:
    """Human scores of the n responses of a batch."""

    score: Floats
    """(n,) on the scale of the response's rubric; NaN where there is none."""
    cluster: NDArray[Any]
    """(n,) ids of what stays together in folds and draws, such as authors."""
    split: NDArray[Any]
    """(n,) train, calibration or test."""
    scale: ScaleBounds
    """(low, high, step) that all scores are on."""


def taught(
    judged: Locals, compiled: Mapping[str, CompiledGraph], human: HumanScores, plan: Learn, draws: int
) -> Lesson:
    """Factors fitted on the calibration split and tried on the test split.

    compiled: each rubric at η = 1 with the relations' factors. InputError where no response of the calibration split
    has a human score: a set for evaluation only has none, whatever it is.
    """
    rubrics = [compiled[graph.rubric_id] for graph in judged.batch.compiled]
    fitted_on = (human.split == "calibration") & ~np.isnan(human.score)
    if not fitted_on.any():
        rule = f"no response of the calibration split has a score by '{plan.target}' to learn from"
        raise InputError(rule, field="reward.learn")
    held_out = human.split == "test"
    train = some_of(judged.batch, fitted_on, rubrics)
    test = some_of(judged.batch, held_out, rubrics)
    learned = learn(train, human.score[fitted_on], human.cluster[fitted_on], plan.folds, plan.seed)
    predicted = predict(train, human.score[fitted_on], learned, test)
    labelled = int((~np.isnan(human.score[held_out])).sum())
    figures = gains(human.score[held_out], predicted, human.cluster[held_out], human.scale, draws, plan.seed)
    for of_method in figures:
        of_method["unscored"] = labelled - of_method["n"]  # labelled test responses without a prediction
    # How many rubrics could not be fitted, and why the first could not.
    without = [rubric for rubric in learned if rubric.factors is None]
    note = f"{without[0].rubric_id}: {without[0].note}" if without else None
    unfitted = RewardFigure(float(len(without)), None, None, note)
    figures.append(record("rubrics without learned factors", "learned", unfitted, len(learned), 0, per="graph"))
    rows = []
    for graph, of_rubric in zip(rubrics, learned, strict=True):
        factors = list((of_rubric.factors or {}).values())
        if factors:
            rows += _retentions(graph, factors, [of_rubric.n] * len(factors), plan.target)
    return Lesson(rows, figures)


def _retentions(graph: CompiledGraph, factors: list[float], cases: list[int], target: str) -> list[Record]:
    """Rows of `retentions` of a graph at η = 1 with the relations' factors; factors, cases: (e,) what was learned."""
    columns = graph.edges, graph.relation, factors, graph.retention.tolist(), cases
    names = ("relation", "retention", "by_relation", "n")
    return [
        {"rubric_id": graph.rubric_id, "parent": parent, "child": child, "target": target}
        | dict(zip(names, values, strict=True))
        for (parent, child), *values in zip(*columns, strict=True)
    ]


def split_of(judged: Locals, responses: pa.Table) -> NDArray[Any]:
    """(n,) The split of each judged response. responses: response_id, split."""
    places = pc.index_in(judged.response_id, value_set=responses["response_id"].combine_chunks())
    return np.asarray(responses["split"].take(places))


def human_scores(judged: Locals, people: pa.Table, responses: pa.Table, scale: ScaleBounds) -> HumanScores:
    """Human scores in the order of a batch. people: response_id and score; responses: response_id, author_id, split."""
    places = pc.index_in(judged.response_id, value_set=responses["response_id"].combine_chunks())
    rows = responses.take(places)
    cluster = pc.coalesce(rows["author_id"], rows["response_id"])
    place = pc.index_in(judged.response_id, value_set=people["response_id"].combine_chunks())
    score = np.asarray(people["score"].take(place), dtype=np.float64)
    return HumanScores(score, np.asarray(cluster), np.asarray(rows["split"]), scale)


Method = Literal["flat", "typed", "untyped", "learned", "weights"]
"""flat: no dependencies (Eq. 2); typed: the relations' factors; untyped: one factor for all edges; learned: the edges'
own; weights: no dependencies, but a weight of its own sign refitted for each criterion, which is what learning
dependencies has to beat."""
METHODS: tuple[Method, ...] = ("flat", "typed", "untyped", "learned", "weights")
PAIRS: tuple[tuple[Method, Method], ...] = (
    ("flat", "typed"),
    ("flat", "learned"),
    ("typed", "learned"),
    ("untyped", "learned"),
    ("weights", "learned"),
)
"""Compared: what the second gains over the first."""


def predict(train: Batch, scores: Floats, learned: list[Learned], test: Batch) -> dict[Method, Floats]:
    """The human score of each response of `test`, (m,), by each method, everything fitted to `train` alone.

    Both batches have the same rubrics, with the relations' factors; scores: (n,) as `learn` took them; learned: what it
    gave. NaN where a criterion is unscored or nothing could be fitted for the rubric.
    """
    predicted: dict[Method, Floats] = {method: np.full(len(test.rubric_index), np.nan) for method in METHODS}
    shared = untyped(train.compiled)
    for rubric, (compiled, of_rubric) in enumerate(zip(train.compiled, learned, strict=True)):
        if of_rubric.factors is None:
            continue
        rows, local = complete(train, rubric)
        labelled = ~np.isnan(scores[rows])
        y = scores[rows[labelled]]
        local = local[:, labelled]
        places, unseen = complete(test, rubric)
        of_methods: dict[Method, Floats] = {
            "flat": np.ones_like(compiled.retention),
            "typed": compiled.retention,
            "untyped": shared[rubric].retention,
            "learned": np.array([of_rubric.factors[edge] for edge in compiled.edges]),
        }
        for method, factors in of_methods.items():
            intercept, slope = line(rewards_and_slopes(compiled, local, factors)[0], y)
            predicted[method][places] = intercept + slope * rewards_and_slopes(compiled, unseen, factors)[0]
        # Scores of unseen responses (m,) by the least-squares weights of the rubric's signs, fitted to local (k, n).
        signed = local * np.sign(compiled.weights)[:, None]
        middle = signed.mean(axis=1)
        level = y.mean()
        weights, _ = nnls((signed - middle[:, None]).T, y - level)
        predicted["weights"][places] = np.asarray(
            level + weights @ (unseen * np.sign(compiled.weights)[:, None] - middle[:, None])
        )
    return predicted


def gains(
    scores: Floats,
    predicted: dict[Method, Floats],
    clusters: NDArray[Any],
    scale: ScaleBounds,
    draws: int = 2000,
    seed: int = 0,
) -> list[Record]:
    """The rows of `diagnostics` with each method's figures, then the differences of PAIRS, over the responses that have
    a score and a prediction.

    scores: (m,) human scores, NaN where there is none; clusters: (m,) ids of what is resampled together; scale: (low,
    high, step) of the human score. Statistics are rmse (score units; a difference below 0 is a gain), pearson,
    spearman, and qwk of scores rounded to the scale's steps; differences but spearman's have a 95% interval. Empty
    where no response can be compared.
    """
    compared = ~np.isnan(scores) & np.all([~np.isnan(values) for values in predicted.values()], axis=0)
    if not compared.any():
        return []
    y = scores[compared]
    n = int(compared.sum())
    values: dict[Method, dict[str, float | None]] = {}
    figures = []

    def add(metric: str, method: Method, value: float | None, ends: Difference | None = None) -> None:
        low, high, clusters = (ends.low, ends.high, ends.clusters) if ends else (None, None, None)
        shown = RewardFigure(value, low, high, "is not defined" if value is None else None, clusters)
        figures.append(record(metric, method, shown, n, 0))

    for method in METHODS:
        ours = predicted[method][compared]
        stats = {"rmse": rmse(y, ours), "pearson": pearson(y, ours), "spearman": spearman(y, ours)}
        stats["qwk"] = qwk(y, ours, *scale)
        values[method] = {name: stat.value for name, stat in stats.items()}
        for name, value in values[method].items():
            add(f"predicts people: {name}", method, value)
    for over, method in PAIRS:
        first = predicted[over][compared]
        second = predicted[method][compared]
        resampled = paired_bootstrap(y, first, second, clusters[compared], scale, draws=draws, seed=seed)
        for name, mine in values[method].items():
            theirs = values[over][name]
            difference = None if mine is None or theirs is None else mine - theirs
            add(f"gain over {over}: {name}", method, difference, resampled.get(name))
    return figures

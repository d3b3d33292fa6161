"""What `plan STUDY --error` says: which cascade to make of the judges that have judged a study's marked answers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from rubricflow.flows.review import runs_of
from rubricflow.tasks.core.contracts.bundle import unlocked
from rubricflow.tasks.core.contracts.errors import UserError
from rubricflow.tasks.core.contracts.settings.study import Release, Study
from rubricflow.tasks.core.contracts.tables.data import Items, Responses
from rubricflow.tasks.core.contracts.tables.judging import Gradings
from rubricflow.tasks.core.contracts.tables.rubrics import JurorBundles
from rubricflow.tasks.core.display import say
from rubricflow.tasks.core.display.worth import QUERIES, rater_costs
from rubricflow.tasks.core.llm.prices import money
from rubricflow.tasks.core.monitor.runs import log
from rubricflow.tasks.core.stats.agreement import SLACK
from rubricflow.tasks.core.store.catalogue import catalogue
from rubricflow.tasks.core.store.manifest import study_of
from rubricflow.tasks.core.store.warehouse import Run, Warehouse, pairs
from rubricflow.tasks.grading.calibrate.fit import fit_items
from rubricflow.tasks.grading.calibrate.rows import GRADING, graded_items, only_rater
from rubricflow.tasks.grading.cascade.limits import NEVER, StepRisks, foreseen_cost, least_cost, least_costs, stopping
from rubricflow.tasks.grading.cascade.scopes import PEOPLE, cascade_labels, cascade_terms, joined

MOST_JUDGES, MOST_STEPS = 6, 3
"""Of the judges those that cost least are looked at, in cascades of so many steps."""
DRAWS = 100
SHARED = 0.8
"""Share of the marked answers that a judge has to have scored."""
_MARKED = ["item_id", "response_id", "human"]
Line = tuple[str, str, str]
"""What, how much, and what that rests on."""


class KnownJudge(NamedTuple):
    """A judge of a finished run: rows of `label_risks`, and what an answer costs."""

    rater_id: str
    run_id: str
    rows: pd.DataFrame
    cost: float


def proposal(study: Study, warehouse: str, error: float, budget_usd: float | None) -> Iterator[Line]:
    """The cascade that by the risks alone costs least with people, tested on the marked answers, and how sure that is.

    error: share of what goes out that may be wrong; budget_usd: what judging all answers may cost. UserError without a
    finished run whose answers are marked, or where a budget is given and prices are not known.
    """
    own = runs_of(warehouse, study.name)
    if not own:
        raise UserError(f"{study.name}: no finished run in {warehouse}: grade it once by each judge, or by a jury")
    opened = Warehouse.open(warehouse)
    answers = own[-1].ref(Responses, "ingest").rows
    judged, unit = _judged([opened.run(name) for name in opened.runs()], own[-1], study.release.tolerance)
    if not judged:
        raise UserError(f"run {own[-1].run_id}: no marked answers with risks: people have to mark some answers first")
    if budget_usd is not None and unit != "usd":
        raise UserError("--budget-usd: what these judges cost is not known; say engine.price of each model")
    release = study.release.model_copy(update={"risk": error})
    most = np.inf if budget_usd is None else budget_usd / answers
    tried = []
    for size in range(1, MOST_STEPS + 1):
        for steps in combinations(judged, size):
            rows = _rows(steps, release)
            terms = cascade_terms([step.cost for step in steps], release, most=most)
            by_people = PEOPLE * (max(one.cost for one in judged) or 1.0)
            tried.append((foreseen_cost(rows, terms._replace(by_people=by_people)), steps, rows))
    _, steps, rows = min(tried, key=lambda one: (one[0], len(one[1])))
    yield from _told(steps, rows, release, most, answers, unit, [one.rater_id for one in judged])


def _told(
    steps: Sequence[KnownJudge],
    rows: StepRisks,
    release: Release,
    most: float,
    answers: int,
    unit: str,
    every: Sequence[str],
) -> Iterator[Line]:
    terms = cascade_terms([step.cost for step in steps], release, most=most)
    n = len(rows.risk)
    made = least_cost(rows, terms)
    basis = f"{say.count(n)} marked answers; of {say.plural(len(every), 'judge')}"
    if made is None:
        fewest = "they do not show of any cascade of these judges that it keeps that"
        yield "proposal", "none", f"{basis}: {fewest}; mark more answers, or allow more errors"
        return
    place = stopping(rows.risk, rows.open, made.limits)
    for number, (step, limit) in enumerate(zip(steps, made.limits, strict=True), 1):
        rule = f"stops up to risk {limit:.3f}" if limit > NEVER else "stops nothing"
        here = int((place == number - 1).sum())
        yield f"step {number}", f"{step.rater_id} of run {step.run_id}", f"{rule}: {here} of {n} marked answers"
    log(f"{DRAWS} draws of {say.plural(n, 'marked answer')}, to say how sure that is")
    times = _draws(rows)
    drawn_limits = zip(least_costs(rows, times, terms), times.sum(axis=0), strict=True)
    found = [(one.asking, 1 - one.released / size) for one, size in drawn_limits if one is not None]
    low, high = np.quantile(found, [0.025, 0.975], axis=0) if found else np.full((2, 2), np.nan)
    yield (
        "wrong of what goes out",
        f"{made.wrong} of {made.released}",
        (f"at most {say.share(made.upper)} with {release.confidence:.0%} confidence; {basis}"),
    )

    def shown(cost: float) -> str:
        return money(cost * answers) if unit == "usd" else f"{cost * answers:,.0f} {unit}"

    drawn = f"{DRAWS} draws of the marked answers, of which {len(found) / DRAWS:.0%} allow a promise"
    yield (
        "judging",
        shown(made.asking),
        (f"{say.count(answers)} answers; 95% interval {shown(low[0])} to {shown(high[0])}, {drawn}"),
    )
    yield "to people", say.share(1 - made.released / n), f"{say.share(low[1])} to {say.share(high[1])}, {drawn}"


def _draws(rows: StepRisks) -> npt.NDArray[np.float32]:
    """(n, DRAWS) How often each answer is in a draw of as many authors, with replacement."""
    names, codes = np.unique(rows.cluster, return_inverse=True)
    luck = np.random.default_rng(0)
    drawn = luck.multinomial(len(names), np.full(len(names), 1 / len(names)), DRAWS)
    return np.asarray(drawn.T[codes], dtype=np.float32)


def _rows(steps: Sequence[KnownJudge], release: Release) -> StepRisks:
    labels, idle = cascade_labels([step.rows for step in steps], release.tolerance)
    asking = [labels[item] for item in sorted(labels) if item not in idle]
    return joined(asking or list(labels.values())).rows


def _judged(runs: Sequence[Run], own: Run, tolerance: float) -> tuple[list[KnownJudge], str]:
    """Judges of finished runs that scored the marked answers of this one, cheapest first, and the unit of their costs;
    of a judge in several runs, which said the same there, alone or as a step, the latest."""
    found: dict[object, KnownJudge] = {}
    units = set[str]()
    wanted = pd.DataFrame(columns=_MARKED)
    for run in [own, *reversed(runs)]:
        with catalogue(run) as tables:
            told = {name: tables.sql(query).df() for name, query in QUERIES.items() if name != "lines"}
        risks = pd.concat([told["label_risks"], *_of_jurors(run)])
        if wanted.empty:
            wanted = risks[_MARKED].drop_duplicates()
        risks = risks.merge(wanted, on=_MARKED)  # another class may number its answers alike
        raters = [*map(str, risks["rater_id"].unique())]
        costs, unit = rater_costs(raters, told["cost_of_rater"], told["cascade_limits"])
        for rater in raters:
            rows = risks[risks["rater_id"] == rater]
            wrong = ((rows["human"] - rows["score"]).abs() / rows["step"]) > tolerance + SLACK
            rows = rows.assign(wrong=wrong)
            if not rater.startswith("cascade-") and len(wanted) and len(rows) >= SHARED * len(wanted):
                said = frozenset(zip(rows["response_id"], rows["score"], strict=True))
                if rater not in found and said not in found:
                    cost = costs.get(rater)
                    units.add("answers" if cost is None else unit)
                    found[said] = found[rater] = KnownJudge(rater, run.run_id, rows, cost or 0.0)
    unit = units.pop() if len(units) == 1 else "answers"
    every = {one.rater_id: one if unit != "answers" else one._replace(cost=1.0) for one in found.values()}
    return sorted(every.values(), key=lambda one: (one.cost, one.rater_id))[:MOST_JUDGES], unit


def _of_jurors(run: Run) -> Iterator[pd.DataFrame]:
    """The risks of marked answers by each juror of a run's jury alone, fitted here by what it judged without texts."""
    if not run.stages(JurorBundles):  # an earlier version's settings may be no study of this one
        return
    study = study_of(run)
    if not study.judge.jury or study.judge.escalate:
        return
    content = [row for stage in run.stages(JurorBundles) for row in run.table(JurorBundles, stage).to_pylist()]
    rubric_of = dict(pairs(run.table(Items, "ingest", ["item_id", "rubric_id"])))
    responses = run.table(Responses, "ingest", ["response_id", "split", "author_id"])
    people = run.table(Gradings, "ingest", ["response_id", "rater_id", "rater_kind", "score"])
    for name in study.judge.jury:
        graded = run.table(Gradings, f"judge-{name}")
        own = set(graded["bundle_id"].unique().to_pylist())
        locked = unlocked([row for row in content if row["bundle_id"] in own])
        bundle_of = {item: locked[rubric] for item, rubric in rubric_of.items() if rubric in locked}
        items = graded_items(bundle_of, graded.select(GRADING), responses, people, study.evaluation.target)
        rater = only_rater(graded["rater_id"].unique().to_pylist())
        yield pd.DataFrame(fit_items(items, rater, study).label_risks)

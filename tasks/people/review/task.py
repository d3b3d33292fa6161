"""The stage entry points of review: annotators' judgments and people's acts in; queue, votes and final labels out.

Cells are a frame with a row for every concept of every response: `response_id`, `criterion_id` and `top`, the highest
level. An annotator's labels are a frame with a row for each cell: `level`, missing where it gives none; its
`probability`, missing where that is not told; `ungrounded`, whether the level's evidence does not hold. Why a case is
asked about is said without any level or score, as those who vote blind read it, too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import ArrayLike

from rubricflow.tasks.core.contracts import Record
from rubricflow.tasks.core.contracts.bundle import Bundle, Criterion
from rubricflow.tasks.core.contracts.errors import ContractError
from rubricflow.tasks.core.contracts.schema import TableRef
from rubricflow.tasks.core.contracts.settings.judge import Doubt
from rubricflow.tasks.core.contracts.settings.study import Study
from rubricflow.tasks.core.contracts.tables.people import Doubtful, Labels, Queue, Votes
from rubricflow.tasks.core.monitor.runs import task
from rubricflow.tasks.core.stats.arrays import Floats
from rubricflow.tasks.core.stats.scores import target_scores
from rubricflow.tasks.core.store.files import named
from rubricflow.tasks.core.store.warehouse import Run
from rubricflow.tasks.core.text.digest import digest_bytes
from rubricflow.tasks.people.review.board import chance_of, digests_of, rubrics
from rubricflow.tasks.people.review.ledger import ActSnapshot, acts_of
from rubricflow.tasks.people.review.settle import settle, valid_acts, vote_rows


class SettledTables(NamedTuple):
    labels: TableRef
    votes: TableRef


@task(task_run_name=named("queue"))
def queue(
    run: Run,
    study: Study,
    items: TableRef,
    responses: TableRef,
    people: TableRef,
    bundles: TableRef,
    annotated: Mapping[str, TableRef],
) -> TableRef:
    """Queue the responses whose labels are in doubt, the most telling first. annotated: annotator → its judgments."""

    def make() -> dict[Any, Any]:
        assert study.annotation is not None  # or the flow would have refused the study
        locked, rubric_of = rubrics(run, items, responses, bundles)
        cells, labels = _labelled(run, locked, rubric_of, annotated)
        target = target_scores(run.read(people), study.evaluation.target)
        shares = {}
        for row in target.filter(pc.is_valid(target["score"])).select(["response_id", "score"]).to_pylist():
            scale = locked[rubric_of[row["response_id"]]].scale
            shares[row["response_id"]] = (row["score"] - scale.min) / (scale.max - scale.min)
        return {Queue: label_queue(cells, [*labels.values()], shares, study.annotation.doubt)}

    run.once("queue", make)
    return run.ref(Queue, "queue")


@task(task_run_name=named("adjudicate"))
def adjudicate(
    run: Run,
    study: Study,
    until: ActSnapshot,
    items: TableRef,
    responses: TableRef,
    bundles: TableRef,
    annotated: Mapping[str, TableRef],
) -> SettledTables:
    """Settle the label of every concept by annotators, votes and adjudications up to a moment.

    Prints how many votes do not count any more, because what they were about has changed.
    """

    def make() -> dict[Any, Any]:
        locked, rubric_of = rubrics(run, items, responses, bundles)
        cells, annotators = _labelled(run, locked, rubric_of, annotated)
        answers = run.read(responses, ["response_id", "text"]).to_pylist()
        acts = acts_of(run.warehouse.root, study.name)
        counted = [act for act in acts if act.number <= until.until and act.subject_kind == "label"]
        valid = valid_acts(counted, digests_of(answers, locked, rubric_of))
        if valid.stale:
            print(f"adjudicate: {len(valid.stale)} votes do not count: what they were about has changed")
        return {Labels: settle(cells, annotators, valid), Votes: vote_rows(valid)}

    run.once("adjudicate", make)
    return SettledTables(run.ref(Labels, "adjudicate"), run.ref(Votes, "adjudicate"))


def _labelled(
    run: Run, locked: Mapping[str, Bundle], rubric_of: Mapping[str, str], annotated: Mapping[str, TableRef]
) -> tuple[pd.DataFrame, dict[str, pd.DataFrame]]:
    """Every response by every criterion of its rubric, and what each annotator gives, under the name that the study
    has for it; as in `queue`."""
    cells = cells_of(rubric_of, {name: bundle.criteria for name, bundle in locked.items()})
    return cells, {name: cell_labels(cells, run.read(judgments), name) for name, judgments in annotated.items()}


# Labels of a data set, and which cases people are asked about.

UNGROUNDED = 0.25
"""What an annotator's level without evidence that holds adds to the doubt: mostly the words are missing, not the
level."""
_ALONE = 0.5
"""Doubt where one annotator alone gives a level: nobody bears it out."""
AUDITED = "Drawn as a check; nothing speaks against its labels"


def cells_of(rubric_of: Mapping[str, str], criteria: Mapping[str, Sequence[Criterion]]) -> pd.DataFrame:
    """The cells of responses (response → rubric), in the order of their ids, under their rubrics (rubric → its
    concepts), in their order."""
    concepts = [(rubric, one.id, one.top) for rubric, given in criteria.items() for one in given]
    responses = pd.DataFrame(sorted(rubric_of.items()), columns=["response_id", "rubric_id"])
    return responses.merge(pd.DataFrame(concepts, columns=["rubric_id", "criterion_id", "top"]), on="rubric_id")


def cell_labels(cells: pd.DataFrame, judgments: pa.Table, name: str) -> pd.DataFrame:
    """What the annotator of this name gives in the cells, by its rows of table `judgments`; of several repetitions the
    first counts, and rows of no cell are passed over. ContractError where the rows are not of one rater, a cell has
    two, or a level lies off its scale."""
    on = ["response_id", "criterion_id"]
    raters = pc.unique(judgments["rater_id"]).to_pylist()
    if len(raters) != 1:
        raise ContractError(f"annotator {name}: judgments of one rater were wanted, not of {sorted(raters)}")
    first = judgments.filter(pc.equal(judgments["sample"], 0))
    told = first.select([*on, "decision", "verified"]).to_pandas()
    for twice in told[told.duplicated(on)].head(1).itertuples():
        where = f"{twice.criterion_id} of response {twice.response_id}"
        raise ContractError(f"annotator {name}: {where} is judged twice by {raters[0]}")
    levels, chances = (first[column].to_pylist() for column in ("decision", "level_probabilities"))
    told["probability"] = np.array(list(map(chance_of, levels, chances)), float)
    labels = cells.merge(told, "left", on=on).rename(columns={"decision": "level"}).astype({"level": float})
    for off in labels[labels["level"] > labels["top"]].head(1).itertuples():
        where = f"{off.criterion_id} of response {off.response_id}"
        raise ContractError(f"annotator {name}: level {off.level:g} of {where} is above the highest")
    labels["ungrounded"] = labels["verified"].eq(False) & labels["level"].notna()
    return labels[["level", "probability", "ungrounded"]]


def label_queue(
    cells: pd.DataFrame, annotators: Sequence[pd.DataFrame], human_share: Mapping[str, float], plan: Doubt
) -> list[Record]:
    """The responses whose labels by two annotators are in doubt, those with the most labels expected to be wrong first.

    The doubt of a cell, in [0, 1], is the chance that a label there would be wrong, were one annotator simply believed;
    what speaks for that is taken as independent (1 less the product of what is left by each):

    - the annotators differ: (1 + |a − b| / M) / 2. One of them at least is wrong, at opposite ends nothing is known;
    - one gives no level: 1/2; neither does: 1;
    - a level's evidence does not hold: `UNGROUNDED` for each;
    - the product over the annotators of 1 less the probability of their level, 1/2 for one who gives none; nothing
      where neither does.

    A response's priority is the sum over its cells: the expected number of wrong labels. Where the annotators' mean
    share of the levels lies further than `plan.human_gap` from the human score's share of its scale (human_share, by
    response; those without are left out), the distance is added as doubt about one more label. A response is queued for
    a reason: annotators that differ, a missing level, failed evidence, a probability below `plan.probability`, that
    distance; of all others, a share `plan.audit` is drawn by a hash of the seed and the response's id, which does not
    depend on who else is there. `plan.most` keeps the first so many, of which the audit gets its share.
    """
    level, probability = (np.stack([labels[name] for labels in annotators]) for name in ("level", "probability"))
    top = np.maximum(cells["top"].to_numpy(), 1)
    missing = np.isnan(level).sum(axis=0)
    gap = np.nan_to_num(np.abs(level[0] - level[1]))
    failed = np.sum([labels["ungrounded"] for labels in annotators], axis=0)
    unsure = np.where(np.isnan(probability), 0.5, 1 - probability).prod(axis=0)
    # The chance that the label of each cell is wrong by each kind of evidence, and whether that is a reason to ask.
    parts: dict[Doubtful, Floats] = {
        "annotators_disagree": np.where(gap > 0, (1 + gap / top) / 2, 0),
        "ungrounded": 1 - (1 - UNGROUNDED) ** failed,
        "unscored": np.choose(missing, [0, _ALONE, 1]),
        "low_probability": np.where(np.isnan(probability).all(axis=0), 0, unsure),
    }
    raised = pd.DataFrame(parts) > 0
    raised["low_probability"] = np.any(probability < plan.probability, axis=0)  # False for NaN
    doubt = 1 - np.prod([1 - part for part in parts.values()], axis=0)
    figures = cells.assign(**parts, doubt=doubt, gap=gap, missing=missing, least=np.fmin(*probability))

    response_of, responses = pd.factorize(cells["response_id"])

    def total(of_cells: ArrayLike) -> Floats:
        """Sums over the cells of each response."""
        return np.asarray(np.bincount(response_of, of_cells, len(responses)), dtype=np.float64)

    with np.errstate(invalid="ignore"):
        share = sum(map(total, np.nan_to_num(level) / top)) / total(2 - missing)
    distance = np.abs(share - np.array([human_share.get(response, np.nan) for response in responses], float))
    against_human = np.where(distance > plan.human_gap, distance, 0)  # NaN is not above it
    # Rounded, so that the order of summation breaks no tie.
    priority = np.round(total(doubt) + against_human, 9)
    weights = {kind: total(np.where(raised[kind], part, 0)) for kind, part in parts.items()}
    weights["against_human"] = against_human
    is_reason = {kind: total(of_cells) > 0 for kind, of_cells in raised.items()} | {"against_human": against_human > 0}
    doubtful = np.any(list(is_reason.values()), axis=0)
    queued = np.flatnonzero(doubtful)
    queued = queued[np.argsort(-priority[queued], kind="stable")]
    # Those that the audit draws: by chance but always the same ones, in an order that is by chance too
    number = {name: digest_bytes(f"{plan.seed}:{name}")[:8] for name in responses[~doubtful]}
    chosen = [name for name, drawn in number.items() if int.from_bytes(drawn, "big") < plan.audit * 2**64]
    checked = sorted(chosen, key=number.__getitem__)
    if plan.most is not None:
        places = min(len(checked), max(int(plan.audit * plan.most), plan.most - len(queued)))
        queued, checked = queued[: plan.most - places], checked[:places]
    rows = []
    for i in queued.tolist():
        own = slice(*np.searchsorted(response_of, [i, i + 1]))
        in_doubt = figures[own][raised[own].any(axis=1)].sort_values("doubt", ascending=False, kind="stable")
        reasons = [kind for kind in weights if is_reason[kind][i]]
        reasons.sort(key=lambda kind: -weights[kind][i])
        why = f"Annotators' levels lie {against_human[i]:.0%} of the scale from the human score"
        if reasons[0] != "against_human":
            why = _why(reasons[0], figures[own][raised[own][reasons[0]]])
        row = {"response_id": responses[i], "priority": float(priority[i]), "reasons": reasons, "why": why}
        rows.append(row | {"criteria": in_doubt["criterion_id"].to_list()})
    audited = {"priority": 0.0, "criteria": [], "reasons": ["audit"], "why": AUDITED}
    rows += [{"response_id": response, **audited} for response in sorted(checked)]
    return [{**row, "subject_kind": "label", "rank": rank} for rank, row in enumerate(rows, 1)]


def _why(kind: Doubtful, raising: pd.DataFrame) -> str:
    """The doubt of this kind about a response in words. raising: figures of its cells that raise it."""
    worst = raising.sort_values(kind, ascending=False, kind="stable").iloc[0]
    words = {
        "annotators_disagree": f"Annotators {worst['gap']:g} {'level' if worst['gap'] == 1 else 'levels'} apart on",
        "ungrounded": "Evidence does not hold for",
        "unscored": f"No level from {'one annotator' if worst['missing'] == 1 else 'both annotators'} for",
        "low_probability": f"Probability {worst['least']:.2f} of the level of",
    }
    more = f" and {len(raising) - 1} more" if len(raising) > 1 else ""
    return f"{words[kind]} {worst['criterion_id']}{more}"

"""Table `next_labels`: which responses of a graded run people should score next, and why; what the labels support now.

Some responses are chosen because they teach the mapping most, the others are drawn by chance. A label that was chosen
may teach a mapping, but does not stand for the responses that were not chosen.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from scipy.stats import zscore

from rubricflow.tasks.core.contracts.bundle import unlocked
from rubricflow.tasks.core.contracts.settings.study import Release, Study
from rubricflow.tasks.core.contracts.tables.calibration import Predictions, Refusal, ReleaseRules
from rubricflow.tasks.core.contracts.tables.data import MEASURED, SPLITS, Items, Responses
from rubricflow.tasks.core.contracts.tables.evaluation import Metrics
from rubricflow.tasks.core.contracts.tables.judging import Gradings
from rubricflow.tasks.core.contracts.tables.rubrics import Bundles
from rubricflow.tasks.core.display import say
from rubricflow.tasks.core.display.verdict import wanted_words
from rubricflow.tasks.core.stats.agreement import SLACK
from rubricflow.tasks.core.stats.arrays import Bools, Floats, Ints
from rubricflow.tasks.core.stats.promise import PromiseNeeds, labels_for_promise, labels_for_width
from rubricflow.tasks.core.store.warehouse import Run
from rubricflow.tasks.core.text.digest import digest_bytes
from rubricflow.tasks.grading.calibrate.alignment import DIGITS
from rubricflow.tasks.grading.calibrate.features import features
from rubricflow.tasks.grading.calibrate.release import ALL
from rubricflow.tasks.grading.calibrate.rows import GRADING, TAUGHT, Item, graded_items

FEW = 10
"""Labels of an item below which it is said how many there are."""


class HeldOut(NamedTuple):
    """Held-out scores that nothing but their risk keeps from being released, (n,) each."""

    risk: Floats
    wrong: Bools


def read_items(run: Run, study: Study) -> list[Item]:
    """The graded items of a run that have any grading, with the human scores of all splits."""
    locked = unlocked(run.read(run.ref(Bundles, "lock")).to_pylist())
    named = run.read(run.ref(Items, "ingest"), ["item_id", "rubric_id"]).to_pylist()
    items = graded_items(
        {row["item_id"]: locked[row["rubric_id"]] for row in named},
        run.read(run.ref(Gradings, "judge"), GRADING),
        run.read(run.ref(Responses, "ingest"), ["response_id", "split", "author_id"]),
        run.read(run.ref(Gradings, "ingest"), ["response_id", "rater_id", "rater_kind", "score"]),
        study.evaluation.target,
    )
    return [item for item in items if len(item.rows)]


def read_predictions(run: Run) -> pa.Table:
    """Of the run's predictions what the next labels go by."""
    return run.read(run.ref(Predictions, "calibrate"), ["response_id", "score", "risk", "route_reason"])


def next_labels(items: Sequence[Item], predictions: pa.Table, study: Study, count: int) -> list[dict[str, object]]:
    """Rows of `next_labels`, the first to be marked first; fewer than asked for where no more can be asked about.

    Asked about is what was graded with every feature that the judge gives and has no human score that counts. Chosen is
    only a response whose author, where authors are kept on one side of the split, wrote no other one; and none where
    items are: a label that was chosen would take theirs with it.
    """
    if not items:
        return []
    judged = features([(item.rows, item.bundle) for item in items], pooled=len(items) > 1)
    names = ["response_id", "item_id", "author_id", "split", "target"]
    rows = pa.concat_tables([item.rows.select(names) for item in items]).to_pandas()[judged.usable]
    if rows.empty:
        return []
    askable = rows["target"].isna().to_numpy()
    taught = ~askable & rows["split"].isin(TAUGHT.to_pylist()).to_numpy()
    order = by_chance(rows["response_id"].tolist(), study.split.seed)
    is_alone = np.full(len(rows), study.split.by == "response")  # no other response goes with it to its side
    if study.split.by == "author":
        is_alone = ~rows["author_id"].duplicated(keep=False).to_numpy()
    ridge = design(judged.matrix[judged.usable], pd.factorize(rows["item_id"])[0])
    proposed = proposals(ridge, taught, askable, askable & is_alone, order, count)
    label_counts = Counter(rows.loc[taught, "item_id"])
    unseen = predictions.filter(pc.equal(predictions["route_reason"], "level_unseen"))
    level_of = dict(zip(unseen["response_id"].to_pylist(), unseen["score"].to_pylist(), strict=True))
    answers = rows.iloc[[proposal.row for proposal in proposed]][["response_id", "item_id"]].to_dict("records")
    records = []
    for rank, (answer, proposal) in enumerate(zip(answers, proposed, strict=True), 1):
        unseen = level_of.get(answer["response_id"])
        count_of_item = label_counts[answer["item_id"]]
        if proposal.sampled == "drawn":
            why = "drawn by chance: its label counts for the promise and the figures"
        elif unseen is not None:
            why = f"its score, {unseen:g}, is one that no person has given yet"
        elif len(items) > 1 and count_of_item < FEW:
            why = f"its item has {count_of_item} label{'' if count_of_item == 1 else 's'}"
        else:
            why = f"unlike what is labelled: it takes {proposal.gain:.1%} off what the mapping does not know"
        records.append({**answer, "rank": rank, "sampled": proposal.sampled, "gain": proposal.gain, "why": why})
    return records


def drawable(items: Sequence[Item], seed: int) -> list[str]:
    """All responses that may be drawn, labelled or not, in the order in which `next_labels` draws them."""
    if not items:
        return []
    usable = features([(item.rows, item.bundle) for item in items], pooled=len(items) > 1).usable
    names = [name for item in items for name in item.rows["response_id"].to_pylist()]
    kept = [name for name, is_usable in zip(names, usable, strict=True) if is_usable]
    return [kept[place] for place in by_chance(kept, seed)]


def held_out(items: Sequence[Item], predictions: pa.Table, tolerance: float) -> HeldOut:
    """Risk of the held-out labelled scores, and whether each lies more than the tolerance, in steps, from its label."""
    if not items:
        return HeldOut(np.empty(0), np.empty(0, dtype=np.bool_))
    names = ["response_id", "split", "target"]
    rows = pd.concat([item.rows.select(names).to_pandas().assign(step=item.bundle.scale.step) for item in items])
    by_risk_alone = pc.is_in(predictions["route_reason"], value_set=pa.array([None, *get_args(Refusal), "risk"]))
    counted = predictions.filter(pc.and_(by_risk_alone, pc.is_valid(predictions["risk"]))).to_pandas()
    targets = rows[rows["split"].isin(MEASURED) & rows["target"].notna()]
    both = targets.merge(counted, on="response_id").sort_values("response_id")
    off = (both["score"] - both["target"]).abs() / both["step"]
    return HeldOut(both["risk"].to_numpy(float), (off > tolerance + SLACK).to_numpy())


HALF = 0.05
"""Half the width of the interval for agreement that labels are counted for."""
Record = Mapping[str, Any]


def read_agreement(run: Run) -> list[Record]:
    """QWK of the calibrated scores with the target on all held-out responses, and that of people with each other."""
    figures = run.ref(Metrics, "evaluate")
    of_all = (pc.field("metric") == "qwk") & (pc.field("slice") == "all")
    of_stage = (pc.field("stage") == "human") | (
        (pc.field("stage") == "calibrated") & (pc.field("rater_a") == "target")
    )
    return list(run.read(figures, ["stage", "value", "low", "high", "n", "note"], of_all & of_stage).to_pylist())


def read_promises(run: Run) -> list[Record]:
    """Rows of `release_rules`."""
    return list(run.read(run.ref(ReleaseRules, "calibrate")).to_pylist())


def labels(items: Sequence[Item]) -> str:
    """How many labels there are and what becomes of them."""
    splits = Counter[str]()
    for item in items:
        splits.update(item.rows["split"].filter(pc.is_valid(item.rows["target"])).to_pylist())
    counts_in_words = ", ".join(f"{say.count(splits[name])} {name}" for name in SPLITS if splits[name])
    graded = sum(len(item.rows) for item in items)
    of_responses = f"{say.plural(splits.total(), 'label')} of {say.plural(graded, 'graded response')}"
    return f"{of_responses}: {counts_in_words or 'none yet'}"


def agreement(figures: Iterable[Record]) -> str:
    """How well the scores agree with people, how well that is known, and what it takes to know it better."""
    rows = sorted(figures, key=lambda row: -row["n"])
    people = next((row for row in rows if row["stage"] == "human" and row["value"] is not None), None)
    machine = next((row for row in rows if row["stage"] == "calibrated"), None)
    if machine is None or machine["value"] is None:
        return f"agreement: QWK is not known: {machine['note'] if machine else 'no labels are held out'}"
    people_agree = f"; two people: {say.number(people['value'])} on {say.count(people['n'])}" if people else ""
    sentence = f"agreement: QWK {say.number(machine['value'])}"
    if machine["low"] is None or machine["high"] is None:
        return f"{sentence} on {say.plural(machine['n'], 'held-out response')}, without an interval{people_agree}"
    needed = labels_for_width(machine["low"], machine["high"], machine["n"], HALF) - machine["n"]
    precision = f"it within ±{HALF}"
    more = f"about {say.count(needed)} more held out would tell {precision}" if needed else f"they tell {precision}"
    ends = f"[{say.number(machine['low'])}, {say.number(machine['high'])}]"
    return f"{sentence}, 95% interval {ends}, on {say.plural(machine['n'], 'held-out response')}{people_agree}; {more}"


def promise(rules: Sequence[Record], held_out: HeldOut, release: Release, needs: Sequence[PromiseNeeds] = ()) -> str:
    """What may be released by the promise now, how many labels would do at least, and about how many if scores stay as
    often wrong. needs: what every promise wants."""
    target = f"promise of at most {say.rate(release.risk)} wrong at {say.rate(release.confidence)} confidence"
    promises_kept = [rule for rule in rules if rule["threshold"] is not None]
    asking = [rule for rule in rules if rule["refused"] != "asks_nothing"]
    if not asking and rules:
        return f"{target}: nothing may be released; {rules[0]['note']}"
    if not promises_kept:
        wanted = f"{wanted_words(release.risk, release.confidence, needs)}; " if needs else ""
        return f"{target}: nothing may be released; {wanted}{_needed(held_out, release)}"
    if rules[0]["scope"] == ALL:
        rule = rules[0]
        bound = f"{rule['wrong']} wrong, at most {say.share(rule['upper'])}"
        return f"{target}: kept for {rule['released']} of {say.plural(rule['n'], 'label')} ({bound})"
    sentence = f"{target}: kept for {len(promises_kept)} of {say.plural(len(rules), 'item')}"
    return (
        sentence if len(promises_kept) == len(asking) else f"{sentence}; for the others, {_needed(held_out, release)}"
    )


def _needed(held_out: HeldOut, release: Release) -> str:
    """About how many labels a promise takes, by the held-out scores."""
    if not len(held_out.risk):
        return "no held-out score tells how many labels it takes"
    estimate = labels_for_promise(held_out.risk, held_out.wrong, release.risk, release.confidence)
    if estimate is None:
        scores = say.plural(len(held_out.risk), "held-out score")
        return f"by {scores}, the least risky are wrong too often for any number of labels, or too few to tell"
    needed, coverage = estimate
    each = " of each item" if release.by == "item" else ""
    return f"about {say.count(needed)} calibration labels{each} would do for {say.share(coverage)} of the scores"


Sampled = Literal["chosen", "drawn"]
ITEM_PRECISION = 4.0
"""What is known of an item's offset before any label, in labels: its standard deviation is half that of residuals."""


class RidgeDesign(NamedTuple):
    """What a ridge is fitted on, (n, p), and the strength of its penalty on each column, (p,)."""

    terms: Floats
    penalty: Floats


class LabelProposal(NamedTuple):
    """One response to mark.

    row: its place in the design; sampled: how it came to be asked about; gain: share of the mapping's mean variance
    over all responses that can be asked about that its label removes, 0 .. 1.
    """

    row: int
    sampled: Sampled
    gain: float


def design(matrix: Floats, item: Ints) -> RidgeDesign:
    """An intercept, the features in standard deviations and, for several items, a column for each.

    matrix: (n, d) finite features; item: (n,) number of each row's item. The penalties take the features together to
    explain as much as they leave, an item's offset a quarter of that, and the mean to be worth one label.
    """
    rounded = np.round(matrix, DIGITS)
    varies = np.ptp(rounded, axis=0) > 0 if len(rounded) else np.zeros(rounded.shape[1], dtype=np.bool_)
    features = zscore(rounded[:, varies], axis=0)
    offsets = np.equal.outer(item, np.unique(item)).astype(np.float64)
    offsets = offsets if offsets.shape[1] > 1 else offsets[:, :0]
    columns = features.shape[1]
    strength = [1.0] + [float(columns)] * columns + [ITEM_PRECISION] * offsets.shape[1]
    return RidgeDesign(np.column_stack([np.ones(len(matrix)), features, offsets]), np.array(strength))


def proposals(
    ridge: RidgeDesign, taught: Bools, askable: Bools, choosable: Bools, order: Ints, count: int
) -> list[LabelProposal]:
    """The responses to mark next, first to mark first; a longer proposal begins with a shorter one.

    taught: (n,) whether the mapping has the row's label; askable: (n,) whether people can be asked about it; choosable:
    (n,) those of them that may be chosen; order: all rows in an order by chance, in which they are drawn. A chosen row
    is the one whose label lowers the ridge's mean variance over the askable rows most, which no human score has a part
    in (Cohn, Ghahramani and Jordan 1996). With v that mean variance in units of the residual's, v / (1 + v) of a
    prediction's squared error comes from the mapping, and so many of the proposals are chosen: many at first, fewer as
    labels come in.
    """
    if not askable.any():
        return []
    labelled = ridge.terms[taught]
    wanted_terms = ridge.terms[askable]
    leverage = ridge.terms @ np.linalg.inv(labelled.T @ labelled + np.diag(ridge.penalty))  # (n, p): X C
    wanted = wanted_terms.T @ wanted_terms / len(wanted_terms)  # (p, p): the mean of x x' over the askable rows
    variance = (leverage * ridge.terms).sum(axis=1)  # (n,): x' C x, in units of the residual's
    unproposed = askable.copy()
    drawn = iter(order[askable[order]].tolist())
    proposed = []
    owed = 0.0
    for _ in range(min(count, int(askable.sum()))):
        before = float(variance[askable].mean())
        owed += before / (1 + before)
        sampled: Sampled = "chosen" if owed >= 0.5 and (unproposed & choosable).any() else "drawn"
        if sampled == "chosen":
            owed -= 1
            gains = ((leverage @ wanted) * leverage).sum(axis=1) / (1 + variance)  # by how much labels lower the mean
            row = int(np.argmax(np.where(unproposed & choosable, gains, -np.inf)))
        else:
            row = next(row for row in drawn if unproposed[row])
        unproposed[row] = False
        # The row is labelled (Sherman and Morrison 1950).
        shared = leverage @ ridge.terms[row]
        leverage = leverage - np.outer(shared, leverage[row] / (1 + variance[row]))
        variance = variance - shared**2 / (1 + variance[row])
        proposed.append(LabelProposal(row, sampled, max(0.0, 1 - float(variance[askable].mean()) / before)))
    return proposed


def by_chance(response_ids: Sequence[str], seed: int) -> Ints:
    """An order of responses by chance that is always the same, by the SHA-256 of seed and id, and goes its own way
    apart from that of the split."""
    number = [digest_bytes(f"next:{seed}:{name}") for name in response_ids]
    return np.array(sorted(range(len(number)), key=number.__getitem__), dtype=np.int64)

"""Item analysis: a checklist's criteria held against the scores that people gave.

Classical item statistics (Lord and Novick 1968; Henrysson 1963 for the corrected item-total correlation), with the
difference that what counts is people's score: how often each level occurs, how far a criterion's decisions go with that
score and with the other criteria, what the sum loses without it, which criteria are one, and what answers say that
people pay for and no criterion names.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import combinations
from typing import NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.dataset as ds

from rubricflow.tasks.core.contracts.backends import install, is_missing
from rubricflow.tasks.core.contracts.bundle import Bundle, Criterion, Scale
from rubricflow.tasks.core.contracts.composite import composed, composition, level_shares, share_of_points
from rubricflow.tasks.core.contracts.settings.study import Evaluation
from rubricflow.tasks.core.contracts.tables.data import CALIBRATES, Items, Responses
from rubricflow.tasks.core.contracts.tables.judging import STANDING, Gradings, Judgments
from rubricflow.tasks.core.llm.encoder import Encoder, minilm
from rubricflow.tasks.core.stats.agreement import pearson
from rubricflow.tasks.core.stats.arrays import Floats
from rubricflow.tasks.core.stats.bootstrap import Difference, Interval, bootstrap, paired_bootstrap
from rubricflow.tasks.core.stats.scores import target_scores
from rubricflow.tasks.core.store.warehouse import Run
from rubricflow.tasks.core.text.digest import digest_bytes
from rubricflow.tasks.core.text.tokens import tokens
from rubricflow.tasks.core.text.units import units
from rubricflow.tasks.grading.rubrics.findings import RubricFinding

MARK_RULES: Mapping[str, str] = {
    "against_people": "its decisions go against people's scores",
    "constant": "it has one level on all answers",
    "harmful": "the sum agrees better without it",
    "level_worth": "a level is worth more or less than it earns",
    "one_pair": "two criteria are decided alike",
    "unnamed": "what people pay for and no criterion names",
}
FEWEST = 20
"""Answers with a score by people below which nothing is told of a rubric's criteria."""
RARE = 5
"""Answers at another level than most below which a criterion is not held against people's scores."""
_ONE = 0.97
"""Share of equal decisions from which two criteria are one."""
_SAME_MEANING = 0.6
"""Cosine from which two sentences are of one group."""
_FEWEST_WORDS = 3
_MOST = 10
"""Answers, and groups of sentences, that are told."""


class MarkedAnswer(NamedTuple):
    """An answer with the score that people gave."""

    text: str
    score: float


class ScoredAnswers(NamedTuple):
    """Answers to be scored by one bundle, which people scored too."""

    bundle: Bundle
    rows: pd.DataFrame
    """response_id, text, cluster (the author, or the response itself where nobody knows him), score by people on the
    bundle's scale, and credited: the spans [start, end) of quotes that stand, of decisions above 0."""
    levels: pd.DataFrame
    """Of each of the rows the level of each decided criterion, NaN where there is none."""

    @property
    def people(self) -> Floats:
        """(n,)."""
        return self.rows["score"].to_numpy(float)

    @property
    def total(self) -> Floats:
        """(n,) what the checklist comes to, see `checklist_sum`."""
        return checklist_sum(self.bundle, counted_shares(self.bundle, self.levels))


class ItemStatistics(NamedTuple):
    """What marks say of one criterion."""

    criterion: str
    n: int
    """Answers on which it was decided."""
    shares: tuple[float, ...]
    """How often each level occurs, lowest first."""
    with_people: float | None
    """Correlation of its points with people's score, -1 to 1; positive is right, also of what costs points."""
    with_people_interval: Interval
    with_rest: float | None
    """Correlation of its points with the sum of the other criteria, -1 to 1."""
    adds: Difference
    """QWK of the sum with people less that of the sum without it; of some answers where some lack a decision."""
    adds_r2: float | None
    """The same of the squared correlation of the sum, not rounded."""


def counted_shares(bundle: Bundle, levels: Mapping[str, Floats] | pd.DataFrame) -> dict[str, Floats]:
    """Decided criterion → (n,) the share of its weight that it counts for, 0 to 1; NaN where it has no level.

    levels: decided criterion → (n,).
    """
    shares = {}
    for name, worth in level_shares(bundle).items():
        at = np.asarray(levels[name])
        shares[name] = np.where(np.isnan(at), np.nan, np.array(worth)[np.nan_to_num(at).astype(int)])
    return shares


def checklist_sum(bundle: Bundle, shares: Mapping[str, Floats]) -> Floats:
    """The scores that the checklist alone comes to by the bundle's counting rule, not rounded; (n,) NaN where one of
    its criteria is not decided. Where the judge states the score it is the share of weighted points.

    shares: see `counted_shares`.
    """
    reached = composed(composition(bundle), {one.id: shares[one.id] for one in bundle.criteria})

    def onto(criteria: Sequence[Criterion], scale: Scale) -> Floats:
        """The weighted share of criteria on a scale."""
        return scale.min + share_of_points(criteria, reached) * (scale.max - scale.min)

    whole, rule = bundle.whole, bundle.protocol.final_score
    if rule not in ("trait_mean", "trait_sum"):
        return onto(whole, bundle.scale)
    by_trait = []
    for trait in bundle.traits:
        if criteria := [criterion for criterion in whole if criterion.trait == trait.id]:
            by_trait.append(onto(criteria, trait if rule == "trait_sum" else bundle.scale))
    summed: Floats = np.sum(by_trait, axis=0)
    return summed if rule == "trait_sum" else summed / len(by_trait)


def without(bundle: Bundle, name: str) -> Bundle | None:
    """The bundle without a decided criterion, and without composites that then have no sub-points; None where nothing
    is left of a trait."""
    criteria = tuple(criterion for criterion in bundle.criteria if criterion.id != name)
    composites = bundle.composites
    while gone := {one.id for one in composites} - {one.parent for one in (*criteria, *composites)}:
        composites = tuple(one for one in composites if one.id not in gone)
    ids = {one.id for one in (*criteria, *composites)}
    kept = []
    for one in composites:
        if one.count:
            needs = tuple(need for need in one.count.needs if need in ids)
            one = one.model_copy(update={"count": one.count.model_copy(update={"needs": needs})})
        kept.append(one)
    traits = {trait.id for trait in bundle.traits if trait.source == "derived"}
    if traits - {one.trait for one in (*criteria, *kept) if one.parent is None and one.weight}:
        return None
    return bundle.model_copy(update={"criteria": criteria, "composites": tuple(kept)})


def item_statistics(answers: ScoredAnswers, draws: int, seed: int) -> list[ItemStatistics]:
    """Of every criterion that was decided twice, in the bundle's order; intervals resample authors."""
    bundle = answers.bundle
    scale = answers.bundle.scale.bounds
    people = answers.people
    shares = counted_shares(bundle, answers.levels)
    clusters = answers.rows["cluster"].to_numpy(str)
    total = checklist_sum(bundle, shares)
    decided = ~np.isnan(total)
    rows = []
    for criterion in bundle.criteria:
        at = answers.levels[criterion.id].to_numpy()
        own = ~np.isnan(at)
        if own.sum() < 2:
            continue
        points = shares[criterion.id] * (-1 if criterion.weight < 0 else 1)
        of_people = pearson(people[own], points[own]).value
        ends = bootstrap(people[own], points[own], clusters[own], scale, draws, seed)["pearson"]
        rest, adds, r2 = None, Difference(None, None, None, None, 0, 0), None
        fewer = without(bundle, criterion.id)
        if fewer is not None and decided.any():
            others = checklist_sum(fewer, shares)[decided]
            scored = people[decided]
            whole = total[decided]
            rest = pearson(points[decided], others).value
            adds = paired_bootstrap(scored, others, whole, clusters[decided], scale, draws, seed)["qwk"]
            r2 = (pearson(scored, whole).value or 0.0) ** 2 - (pearson(scored, others).value or 0.0) ** 2
        occurs = tuple(float(np.mean(at[own] == level)) for level in range(criterion.top + 1))
        rows.append(ItemStatistics(criterion.id, int(own.sum()), occurs, of_people, ends, rest, adds, r2))
    return rows


def pairs_that_are_one(answers: ScoredAnswers) -> list[tuple[str, str, float]]:
    """(criterion, criterion, share of equal decisions) of the pairs that are decided alike on nearly all answers,
    though neither has one level throughout."""
    found = []
    shares = answers.levels / [criterion.top for criterion in answers.bundle.criteria]
    varying = [name for name in shares if shares[name].nunique() > 1]
    for first, second in combinations(varying, 2):
        a, b = shares[[first, second]].dropna().to_numpy().T
        # Where both are nearly always 0 they are equal by that alone: the answers with either must agree, too.
        either = (a > 0) | (b > 0)
        equal = a == b
        if len(a) >= FEWEST and either.sum() >= 5 and equal[either].mean() >= 0.9 and equal.mean() >= _ONE:
            found.append((str(first), str(second), float(equal.mean())))
    return found


class Apart(NamedTuple):
    """An answer on which checklist and people differ."""

    response_id: str
    text: str
    people: float
    checklist: float


def furthest(answers: ScoredAnswers) -> list[Apart]:
    """The answers on which the checklist's sum, rounded to nothing, and people differ most, by at least half a step."""
    total, people = answers.total, answers.people
    gap = np.nan_to_num(np.abs(total - people))
    apart = answers.rows.assign(total=total, gap=gap)[gap > answers.bundle.scale.step / 2]
    apart = apart.sort_values(["gap", "response_id"], ascending=[False, True])[:_MOST]
    columns = (apart[name] for name in ("response_id", "text", "score", "total"))
    return [Apart(*row) for row in zip(*columns, strict=True)]


class Unnamed(NamedTuple):
    """Sentences of one meaning in answers that people scored higher than the checklist, which no quote covers."""

    representative: str
    answers: tuple[str, ...]
    """Ids of the answers, by id."""


def unnamed(answers: ScoredAnswers, encode: Encoder) -> list[Unnamed]:
    """What answers say that no criterion names: the sentences, without a quote that stands, of answers that people
    scored at least a step higher than the checklist; groups of like meaning, of most answers first."""
    paid_more = np.nan_to_num(answers.people - answers.total) >= answers.bundle.scale.step - 1e-9
    sentences = []
    for response_id, text, credited in answers.rows.loc[paid_more, ["response_id", "text", "credited"]].to_numpy():
        for unit in units(text):
            overlaps = any(start < unit.end and unit.start < end for start, end in credited)
            sentence = " ".join(text[unit.start : unit.end].split())
            if unit.kind == "sentence" and not overlaps and len(tokens(sentence)) >= _FEWEST_WORDS:
                sentences.append((str(response_id), sentence))
    if not sentences:
        return []
    vectors = encode([sentence for _, sentence in sentences])
    alike = vectors @ vectors.T
    left = np.ones(len(sentences), dtype=bool)
    groups = list[Unnamed]()
    while left.any() and len(groups) < _MOST:  # the largest is taken first
        near = (alike >= _SAME_MEANING) & left[None, :] & left[:, None]
        names = [{sentences[j][0] for j in np.flatnonzero(row)} for row in near]
        best = max(np.flatnonzero(left), key=lambda i: (len(names[i]), float(alike[i][near[i]].sum()), -i))
        groups.append(Unnamed(sentences[best][1], tuple(sorted(names[best]))))
        left &= ~near[best]
        left[best] = False
    return groups


class MarksOfRubric(NamedTuple):
    """All that marks say of a rubric."""

    n: int
    """Answers that people scored and the judge decided on."""
    items: list[ItemStatistics]
    pairs: list[tuple[str, str, float]]
    apart: list[Apart]
    unnamed: list[Unnamed]
    """Empty where there is no encoder."""


def analysed(answers: ScoredAnswers, encode: Encoder | None, draws: int, seed: int) -> MarksOfRubric:
    """What marks say of a rubric; of fewer than FEWEST answers nothing but their number."""
    n = len(answers.rows)
    if n < FEWEST:
        return MarksOfRubric(n, [], [], [], [])
    items = item_statistics(answers, draws, seed)
    said = unnamed(answers, encode) if encode else []
    return MarksOfRubric(n, items, pairs_that_are_one(answers), furthest(answers), said)


def mark_findings(rubric_id: str, marks: MarksOfRubric) -> Iterator[RubricFinding]:
    """What marks say for sure, as findings; nothing of criteria that few answers were scored on."""
    for row in marks.items:
        low, high = row.with_people_interval[:2]
        about = (rubric_id, (row.criterion,))
        if row.n < FEWEST:
            continue
        if max(row.shares) == 1:
            text = f"It is at level {row.shares.index(1.0)} on all {row.n} answers: it tells none from another."
            yield RubricFinding(*about, "constant", "doubtful", text)
        elif row.n * (1 - max(row.shares)) < RARE:
            continue  # no resample of so few tells how much hangs on chance
        elif low is not None and high is not None and high < 0:
            interval = f"correlation {row.with_people:.2f}, 95% interval {low:.2f} to {high:.2f}, {row.n} answers"
            text = f"Answers that people score higher meet it less ({interval})."
            yield RubricFinding(*about, "against_people", "wrong", text)
        elif row.adds.high is not None and row.adds.high < 0:
            interval = f"95% interval {-row.adds.high:.3f} to {-(row.adds.low or 0):.3f}"
            text = f"Without it the sum's QWK with people is {-(row.adds.estimate or 0):.3f} higher ({interval})."
            yield RubricFinding(*about, "harmful", "doubtful", text)
    for first, second, share in marks.pairs:
        text = f"They are decided alike on {share:.0%} of the answers: one is paid twice, or both are one thing."
        yield RubricFinding(rubric_id, (first, second), "one_pair", "doubtful", text)
    for group in marks.unnamed:
        if len(group.answers) >= 3:
            count = len(group.answers)
            text = f"{count} answers that people score higher than the checklist say: {group.representative}"
            yield RubricFinding(rubric_id, (), "unnamed", "doubtful", text)


# What is read of a graded run: answers of its calibration split that people scored, with decisions.

_MARKED, _LONGEST, _CHARACTERS = 40, 4_000, 40_000
"""Marked answers that a reviser is shown at most, characters of each, and of all."""


def marks_of(
    run: Run, evaluation: Evaluation, bundles: Mapping[str, Bundle], is_wanted: Callable[[str], bool]
) -> tuple[dict[str, MarksOfRubric], str]:
    """Rubric → what marks say of it, on the calibration split of a finished run; and in words why nothing is
    said, or not all. is_wanted: whether an author's answers may be looked at."""
    if not run.done("evaluate", "all"):
        return {}, "the study is not graded as it is now, so no criterion is held against people's scores"
    encode = None if is_missing("embedded") else minilm()
    answers = scored_answers(run, evaluation.target, bundles, is_wanted)
    marks = {name: analysed(of, encode, evaluation.draws, evaluation.seed) for name, of in answers.items()}
    few = [name for name in bundles if name not in marks or not marks[name].items]
    why = []
    if few:
        lacking = f"fewer than {FEWEST} answers of the calibration split have a score by people and decisions"
        why.append(f"{lacking}: {', '.join(few)}")
    if encode is None:
        why.append(f"what no criterion names is not looked for, which needs the extra: {install('embedded')}")
    return marks, "; ".join(why)


def scored_answers(
    run: Run, target: str, bundles: Mapping[str, Bundle], is_wanted: Callable[[str], bool] = lambda author: True
) -> dict[str, ScoredAnswers]:
    """Rubric → its answers of the calibration split, and of no other, that people scored and the judge decided on; by
    id. Of repeated samples it is the first. A rubric without any is left out.

    target: rater, or 'mean', see `target_scores`; is_wanted: whether an author's answers may be looked at.
    """
    scored = _scored(run, target)
    scored = scored[scored["cluster"].map(is_wanted).astype(bool)]
    mine = ds.field("response_id").isin(pa.array(list(scored["response_id"]), pa.string())) & (ds.field("sample") == 0)
    wanted = ["response_id", "criterion_id", "decision", "evidence"]
    decided = run.read(run.ref(Judgments, "judge"), wanted, mine).to_pandas()
    credited = defaultdict[str, list[tuple[int, int]]](list)
    for row in decided[decided["decision"] > 0].itertuples():
        quotes = [quote for quote in row.evidence if quote["status"] in STANDING]
        credited[row.response_id] += [(quote["start"], quote["end"]) for quote in quotes]
    levels = decided.pivot(index="response_id", columns="criterion_id", values="decision").astype(float)
    scored = scored[scored["response_id"].isin(levels.index)]
    answers = {}
    for name, rows in scored.groupby("rubric_id", sort=False):
        if bundle := bundles.get(str(name)):
            of_rubric = levels.reindex(index=rows["response_id"], columns=[one.id for one in bundle.criteria])
            credits = rows["response_id"].map(lambda response_id: tuple(credited[response_id]))
            answers[str(name)] = ScoredAnswers(bundle, rows.assign(credited=credits), of_rubric)
    return answers


def marked_answers(run: Run, target: str) -> dict[str, tuple[MarkedAnswer, ...]]:
    """Rubric → answers that a reviser may see, of every score that people gave as far as their length allows: from the
    half of the calibration split that is not held back. The run need only have been ingested."""
    scored, chosen = _scored(run, target), {}
    scored["order"] = [digest_bytes(name) for name in scored["response_id"]]
    for name, rows in scored[~scored["cluster"].map(held_back).astype(bool)].groupby("rubric_id", sort=False):
        drawn = rows.sort_values("order")
        turn = drawn.groupby("score").cumcount()
        first = pd.factorize(drawn["score"])[0]
        drawn = drawn.iloc[np.lexsort((first, turn))]
        texts = drawn["text"].str[:_LONGEST]
        fit = min(_MARKED, int((texts.str.len().cumsum() <= _CHARACTERS).sum()))
        shown = map(MarkedAnswer, texts[:fit], drawn["score"][:fit])
        chosen[str(name)] = tuple(sorted(shown, key=lambda one: one.score))
    return chosen


def _scored(run: Run, target: str) -> pd.DataFrame:
    """The answers of the calibration split that people scored, by id: response_id, text, score, rubric_id and cluster,
    the author or the response itself where nobody knows him."""
    columns = ["response_id", "item_id", "author_id", "text"]
    calibrating = ds.field("split").isin(list(CALIBRATES))
    rows = run.read(run.ref(Responses, "ingest"), columns, calibrating)
    mine = ds.field("response_id").isin(rows["response_id"].combine_chunks())
    people = run.read(run.ref(Gradings, "ingest"), ["response_id", "rater_id", "rater_kind", "score"], mine)
    items = run.read(run.ref(Items, "ingest"), ["item_id", "rubric_id"])
    frame: pd.DataFrame = rows.to_pandas().merge(target_scores(people, target).to_pandas(), on="response_id")
    frame = frame.merge(items.to_pandas(), on="item_id").sort_values("response_id", ignore_index=True)
    return frame.assign(cluster=frame["author_id"].fillna(frame["response_id"]))


def held_back(cluster: str) -> bool:
    """Whether an author's answers are of the half of the calibration split that no reviser of a rubric is shown, and on
    which a revised rubric is compared: by a digest, so that it is the same half in every run."""
    return digest_bytes(f"held back {cluster}")[0] % 2 == 0

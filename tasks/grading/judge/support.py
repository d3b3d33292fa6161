"""A second look: does the passage quoted for a credit say what its criterion asks, and which sentence may say what a
judge did not find?

The verifier proves that words stand in a response. Here each credit gets the probability that people credit it, too:
a logistic regression on what the encoder, the words, the place and the other jurors tell of criterion and passage,
fitted on the answers that people marked by criterion, inside folds of authors for these themselves. A further judge may
be asked about the credits nearest the limit, ten in a call; what it says is one more thing to fit on. Where neither
labels nor a further judge speak, there is only a rank by similarity, and no probability.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from operator import attrgetter, itemgetter
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse
from scipy.stats import rankdata
from sklearn.linear_model import LogisticRegression

from rubricflow.tasks.core.contracts.bundle import Bundle, Criterion
from rubricflow.tasks.core.contracts.protocols import SupportRule
from rubricflow.tasks.core.stats.arrays import Floats, defined
from rubricflow.tasks.core.text.digest import text_digest
from rubricflow.tasks.core.text.fold import folded
from rubricflow.tasks.core.text.languages import is_negated
from rubricflow.tasks.core.text.tokens import counts, tokens
from rubricflow.tasks.grading.judge.doubted_quotes import SUPPORTING
from rubricflow.tasks.grading.judge.rows import Called, Case
from rubricflow.tasks.grading.judge.score import level_signals, regraded, score_follows

FEWEST = 8
"""Labels of each kind, supported and not, without which nothing is fitted."""
LOST = 0.03
"""Share of the marked credits that people give which may fall below a limit that is chosen on them."""
UNMARKED = 0.25
"""The limit where nobody marked: below it a further judge's percent lost 1 to 3 % of what was right in three sets."""
SHOWN = 0.2
"""Share of the criteria without credit whose likeliest sentence a person is shown."""
_FOLDS, _STRENGTH, _OF_CRITERION, _FURTHER = 5, 0.03, 1.0, 2.0
"""Folds of authors; C of the regression; how much a criterion's own share of supported credits weighs in it; how much
more than any other feature what a further judge says may, where it was asked about all."""
_NOT_READ = ("paragraph", "system")
"""Kinds of units in which nothing is looked for: sentences are, and turns and steps of a trajectory."""

Rows = Sequence[Mapping[str, Any]]
"""Rows of table `judgments`."""


class SupportCase(NamedTuple):
    """A credit and the passage that it rests on; or a criterion without credit and the sentence that comes closest."""

    response_id: str
    criterion_id: str
    rater_id: str
    sample: int
    is_credit: bool
    unit_id: str | None
    start: int | None
    end: int | None
    looked_for: str
    passage: str
    features: tuple[float, ...]


def looked_for(criterion: Criterion) -> str:
    """What a criterion looks for, in words."""
    return f"{criterion.text} {criterion.levels[-1]}"


def texts(case: Case, judged: Rows) -> set[str]:
    """All that an encoder has to read for `looks`."""
    found = {looked_for(criterion) for criterion in case.bundle.criteria} | {passage(row, case.text) for row in judged}
    return found | {case.text[unit.start : unit.end] for unit in case.units if unit.kind not in _NOT_READ}


def passage(row: Mapping[str, Any], text: str) -> str:
    """The words of a response, or of its context, that a decision rests on; empty where there are none."""
    held = [quote for quote in row["evidence"] if quote["status"] in SUPPORTING]
    return " … ".join(q["quote"] if q["start"] is None else text[q["start"] : q["end"]] for q in held)


def looks(case: Case, judged: Rows, others: Rows, vectors: Mapping[str, Floats]) -> list[SupportCase]:
    """A look for each credit that rests on a passage, and for each criterion that earns points and got none.

    judged: one rater's rows of one response and sample; others: other raters' rows of the response; vectors: text → its
    vector of length 1, for all of `texts`.
    """
    text, bundle = case.text, case.bundle
    sentences = [unit for unit in case.units if unit.kind not in _NOT_READ and counts(text[unit.start : unit.end])]
    wanted = {criterion.id: criterion for criterion in bundle.criteria}
    of_criteria = np.array([vectors[looked_for(criterion)] for criterion in bundle.criteria])
    of_sentences = np.array([vectors[text[unit.start : unit.end]] for unit in sentences])
    places = {row["criterion_id"]: _place(row) for row in judged if row["decision"]}
    found = []
    for row in judged:
        criterion = wanted.get(row["criterion_id"])
        words = passage(row, text) if row["decision"] else ""
        is_credit = bool(row["decision"] and words and row["verified"] is not False)
        if criterion is None or not (is_credit or (row["decision"] == 0 and criterion.weight > 0 and sentences)):
            continue
        own = vectors[looked_for(criterion)]
        near = of_sentences @ own if sentences else np.zeros(1)
        start, end = _place(row)
        unit_id = next((q["unit_id"] for q in row["evidence"] if q["status"] in SUPPORTING), None)
        if not is_credit:
            best = sentences[int(near.argmax())]
            start = best.start
            end = best.end
            unit_id = best.unit_id
            words = text[best.start : best.end]
        cosine = of_criteria @ vectors[words]
        apart = np.delete(cosine, bundle.criteria.index(criterion))
        said = [other for other in others if other["criterion_id"] == criterion.id and other["decision"] is not None]
        shares = np.array([other["decision"] / criterion.top for other in said])
        same = [_overlap(_place(other), (start, end)) for other in said]
        sharing = [name for name, at in places.items() if name != criterion.id and _overlap(at, (start, end))]
        likely, level = row["level_probabilities"], row["decision"]
        opposed = is_negated(folded(words)) != is_negated(folded(criterion.text))
        features = (
            float(own @ vectors[words]),
            float(near.max()),
            float(own @ vectors[words] - apart.max()) if len(apart) else 0.0,
            *_shared_words(looked_for(criterion), words, text),
            float(opposed),
            float(np.log1p(len(words))),
            (start or 0) / max(1, len(text)),
            float(np.log1p(len(sharing))),
            level / criterion.top,
            likely[level] if likely else 0.5,
            *(float(np.mean(of_others)) if said else 0.5 for of_others in (shares > 0, shares, same)),
        )
        about = row["response_id"], criterion.id, row["rater_id"], row["sample"], is_credit, unit_id, start, end
        found.append(SupportCase(*about, looked_for(criterion), words, features))
    return found


def _place(row: Mapping[str, Any]) -> tuple[int | None, int | None]:
    """Where the first quote of a decision stands."""
    placed = (q for q in row["evidence"] if q["status"] in SUPPORTING and q["start"] is not None)
    return next(((q["start"], q["end"]) for q in placed), (None, None))


def _overlap(one: tuple[int | None, int | None], other: tuple[int | None, int | None]) -> bool:
    if one[0] is None or other[0] is None or one[1] is None or other[1] is None:
        return False
    return max(one[0], other[0]) < min(one[1], other[1])


def _shared_words(asked: str, words: str, text: str) -> tuple[float, float, float]:
    """The share of what is asked, by the beginnings of its longer words, that the passage has; that the whole response
    has; the share of its numbers that the passage has, a half where it has none."""
    stems = _stems(asked)
    numbers = {token for token in tokens(folded(asked)) if token.isdigit()}
    of_all = max(1, len(stems))
    has = len(numbers & set(tokens(folded(words)))) / len(numbers) if numbers else 0.5
    return len(stems & _stems(words)) / of_all, len(stems & _stems(text)) / of_all, has


def _stems(text: str) -> set[str]:
    return {token[:5] for token in tokens(folded(text)) if len(token) > 3 and not token.isdigit()}


# The probability.


def chances(
    features: Floats, names: Sequence[str], supported: Floats, cluster: Sequence[str], last: float = 1.0
) -> Floats | None:
    """The probability that people credit, in [0, 1]; None where labels are fewer than `FEWEST` of either kind.

    features: (looks, n); names: of their criteria; supported: 1 or 0 as people say, NaN where they say nothing;
    cluster: whose answers they are. A labelled look gets what was fitted without its fold of clusters, any other what
    was fitted on all. A criterion's own share of supported credits counts, shrunk, as a coefficient of its own. last:
    how many times as large as it is the last feature is fitted, which shrinks its coefficient less.
    """
    labelled = ~np.isnan(supported)
    if min(np.sum(supported == 1), np.sum(supported == 0)) < FEWEST:
        return None
    spread = features[labelled].std(axis=0)
    scaled = (features - features[labelled].mean(axis=0)) / np.where(spread > 0, spread, 1)
    scaled[:, -1] *= last
    criteria = {name: place for place, name in enumerate(dict.fromkeys(names))}
    places = (np.arange(len(names)), [criteria[name] for name in names])
    own = sparse.csr_array((np.full(len(names), _OF_CRITERION), places), shape=(len(names), len(criteria)))
    known = sparse.csr_array(sparse.hstack([sparse.csr_array(scaled), own]))
    fold = np.array([int(text_digest(name), 16) % _FOLDS for name in cluster])
    found = np.full(len(names), np.nan)
    for number in range(_FOLDS + 1):  # the last one has seen all labels
        learnt = labelled & (fold != number)
        told = (labelled & (fold == number)) if number < _FOLDS else ~labelled
        if not told.any():
            continue
        if len(np.unique(supported[learnt])) < 2:
            found[told] = supported[labelled].mean()
            continue
        model = LogisticRegression(C=_STRENGTH, max_iter=1_000).fit(known[learnt], supported[learnt])
        found[told] = model.predict_proba(known[told])[:, 1]
    return found


# What is found.


def credited(marks: Rows) -> dict[tuple[str, str], bool]:
    """(response, criterion) → whether people credit it: half of them at least. marks: rows of `judgments` of people."""
    given = defaultdict[tuple[str, str], list[bool]](list)
    for row in marks:
        if row["decision"] is not None:
            given[row["response_id"], row["criterion_id"]].append(row["decision"] > 0)
    return {of: 2 * sum(votes) >= len(votes) for of, votes in given.items()}


def fitted(
    some: Sequence[SupportCase],
    by_people: Mapping[tuple[str, str], bool],
    cluster: Mapping[str, str],
    percent: Floats | None = None,
) -> Floats | None:
    """The probabilities of looks of one kind, see `chances`. cluster: response → whose it is; percent: as the further
    judge gave it, NaN where it was not asked."""
    features = np.array([look.features for look in some])
    last = 1.0
    if percent is not None:
        asked = ~np.isnan(percent)
        share = np.clip(np.where(asked, percent, 50) / 100, 0.02, 0.98)
        features = np.column_stack([features, asked, np.log(share / (1 - share))])
        last += _FURTHER * float(asked.mean())
    said = [by_people.get((look.response_id, look.criterion_id)) for look in some]
    supported = np.array([np.nan if one is None else float(one) for one in said])
    names = [look.looked_for for look in some]  # ids recur from item to item
    return chances(features, names, supported, [cluster[look.response_id] for look in some], last)


def limit_of(
    some: Sequence[SupportCase], chance: Floats, by_people: Mapping[tuple[str, str], bool], rule: SupportRule
) -> float:
    """The probability below which credits fail, see `SupportRule.limit`; those that people give are judged by what was
    fitted without them."""
    if rule.limit is not None:
        return rule.limit
    of = zip(some, chance, strict=True)
    given = [value for look, value in of if by_people.get((look.response_id, look.criterion_id))]
    return float(np.nanquantile(given, LOST)) if len(given) >= FEWEST else UNMARKED


def asked(
    looks: Sequence[SupportCase],
    by_people: Mapping[tuple[str, str], bool],
    cluster: Mapping[str, str],
    rule: SupportRule,
) -> list[SupportCase]:
    """The credits that a further judge is asked about: the share that the rule names, those nearest its limit; without
    labels those least like their criterion."""
    credits = [look for look in looks if look.is_credit]
    if not credits:
        return []
    chance = fitted(credits, by_people, cluster)
    doubt = np.array([look.features[0] for look in credits])
    if chance is not None:
        doubt = np.abs(chance - limit_of(credits, chance, by_people, rule))
    nearest = np.argsort(doubt, kind="stable")[: math.ceil(rule.asked * len(credits))]
    return [credits[place] for place in sorted(nearest)]


def second_look(
    looks: Sequence[SupportCase],
    by_people: Mapping[tuple[str, str], bool],
    cluster: Mapping[str, str],
    rule: SupportRule,
    called: Sequence[Called] = (),
) -> list[dict[str, Any]]:
    """Rows of `supports`, credits first. called: what a further judge said of those that it was asked about."""
    said = {}
    for call in called:
        for number, one in (call.answer.value or {}).items():
            said[_of(call.answer.request.data[number - 1])] = one
    rows = []
    for is_credit in (True, False):
        some = [look for look in looks if look.is_credit == is_credit]
        if not some:
            continue
        rank = rankdata([look.features[0] for look in some], "max") / len(some)
        told = [said.get(_of(look)) if is_credit else None for look in some]
        percent = np.array([np.nan if one is None else one[0] for one in told])
        chance = fitted(some, by_people, cluster, percent if called and is_credit else None)
        is_known = chance is not None
        if chance is None:
            chance = percent / 100
        limit = limit_of(some, chance, by_people if is_known else {}, rule)
        likely = rank if np.isnan(chance).all() else chance
        doubted = chance < limit if is_credit else likely >= np.quantile(likely, 1 - SHOWN)
        for place, look in enumerate(some):
            probability = defined(chance[place])
            rows.append(
                {
                    **{name: getattr(look, name) for name in _OF_LOOK},
                    "kind": "credit" if is_credit else "missing",
                    "similarity": look.features[0],
                    "rank": float(rank[place]),
                    "probability": probability,
                    **dict(zip(("percent", "lacks"), told[place] or (None, None), strict=True)),
                    "limit": limit if is_credit and probability is not None else None,
                    "doubted": bool(doubted[place]),
                }
            )
    return rows


_OF_LOOK = ("response_id", "criterion_id", "rater_id", "sample", "unit_id", "start", "end")
_of, _KEY = attrgetter("response_id", "criterion_id", "sample"), itemgetter("response_id", "criterion_id", "sample")
"""Whose a look, or a row of `judgments` or `supports`, is."""


def settled(
    judged: Rows, graded: Rows, bundle_of: Mapping[str, Bundle], found: Rows, failed: str
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Rows of `judgments` and `gradings` after the second look; none is left out.

    bundle_of: item → its bundle; found: rows of `supports`; failed: see `SupportRule.failed`. A credit that fails is
    kept; or becomes level 0, and the score what follows from it; or is undecided, and there is no score. Where the
    judge states the score itself only what calibration is told of the criteria changes. Each grading counts them in the
    signal `irrelevant`.
    """
    fails = {_KEY(row) for row in found if row["doubted"] and row["kind"] == "credit"}
    rows = []
    of_response = defaultdict[tuple[str, int], list[Mapping[str, Any]]](list)
    for row in judged:
        of_response[row["response_id"], row["sample"]].append(row)
        if _KEY(row) in fails and failed != "count":
            quotes = [q | {"status": "irrelevant"} if q["status"] in SUPPORTING else q for q in row["evidence"]]
            change: dict[str, Any] = {"decision": None, "unscored_reason": "doubtful_support"}
            if failed == "demote":
                change = {"decision": 0, "verified": False, "action": "demoted", "evidence": quotes}
            row = {**row, **change}
        rows.append(dict(row))
    gradings = []
    for grading in graded:
        mine = of_response[grading["response_id"], grading["sample"]]
        bundle = bundle_of[grading["item_id"]]
        doubted = [row["criterion_id"] for row in mine if _KEY(row) in fails]
        after = dict(grading)
        if doubted and failed != "count":
            levels = dict.fromkeys(doubted, 0 if failed == "demote" else None)
            if score_follows(bundle):
                after = regraded(bundle, grading, mine, levels)
            else:
                told = level_signals(bundle, {row["criterion_id"]: row["decision"] for row in mine} | levels, {})
                after["signals"] = {**grading["signals"], **told}
            if failed == "review":
                after |= {"score": None, "status": "unscored", "unscored_reason": "doubtful_support"}
        if doubted:
            after["signals"] = dict(sorted({**after["signals"], "irrelevant": float(len(doubted))}.items()))
        gradings.append(after)
    return rows, gradings

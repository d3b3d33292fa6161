"""The heuristic annotator: roles and dependencies by rules of thumb over the criteria's wording. No language model.

Roles: a negative weight is a penalty; a criterion that states a condition and demands nothing, or has weight 0, is an
applicability criterion; one that calls itself an extra, or weighs little beside the others, is additional; all others
are core.

Prerequisites: a criterion is taken for a specialisation of a shorter one where it holds much of the other's content and
is close to it for the sentence encoder, and yet has more to say: the general one licenses the special one. Activation:
where the words of a condition stand in a criterion. Of each child only the nearest parents are kept.

It knows closeness, not licensing. It sees no prerequisite whose two sides are worded differently, so that it finds few
in rubrics of general qualities; it takes a neighbouring topic or a paraphrase for a special case as often as not. It
proposes no prerequisite of a penalty: wording does not tell a penalty that presupposes a criterion from one that
contradicts it, and the wrong edge would excuse the mistake. A criterion that states a condition and also demands
something ("if ..., does ...") activates nothing for the same reason: that its demand is not met says nothing of its
condition. Chinese and Japanese are compared by their characters, which the encoder
cannot read. Its confidence is the measure itself and no probability.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tasks.contracts.bundle import Criterion
from tasks.contracts.graph import Relation, Role
from tasks.graph.candidates import Pair
from tasks.graph.dependencies import NONE, PairQuestion
from tasks.graph.roles import RoleQuestion
from tasks.graph.subject import GraphSubject
from tasks.graph.wording import condition, coverage, is_condition, is_optional, is_signs
from tasks.llm.encoder import NAME, minilm
from tasks.llm.request import Reply, Same
from tasks.stats.arrays import Bools, Floats

MODEL = f"heuristic-{NAME}-2"
LIGHT = 0.3
"""A positive weight of at most this share of the positive weights' median is that of an extra."""
READ, UNREAD = 0.36, 0.17
"""Support from which on a pair is a prerequisite: where the encoder reads both texts, and where it does not."""
STRONG = 0.60
"""Share of the parent's content from which on the prerequisite is a strong one: the child says nearly all of it."""
FEWEST = 0.15
"""Share of the parent's content that the child must hold at least."""
LEAST, MOST = 0.05, 0.60
"""Share of the child's content that the parent may hold: below, the child is about something else; above, they say the
same."""
MORE = 1.2
"""How many times the parent's content the child must have."""
ACTIVE = 0.60
"""Share of a condition's content that a criterion must hold to be activated by it."""
PARENTS = 2
"""Most parents of a child."""


def answer(wanted: Sequence[RoleQuestion | PairQuestion]) -> list[Reply]:
    """One reply in the contract for each request's data."""
    return [Reply(text=json.dumps(_answer(one), ensure_ascii=False)) for one in wanted]


def role(criterion: Criterion, usual: float) -> Role:
    """The role of a criterion by its sign, wording and weight; usual: the median of the positive weights."""
    if criterion.weight < 0:
        return "penalty"
    if criterion.weight == 0 or is_condition(criterion.text):
        return "applicability"
    return "additional" if is_optional(criterion.text) or criterion.weight <= LIGHT * usual else "core"


def specialised(covered: Floats, cosine: Floats) -> Floats:
    """Support of each parent (row) for each child (column), (k, k) in [0, 1]; 0 where the child is no specialisation.

    covered: (k, k) share of the row's content that the column holds. cosine: (k, k) of the texts' vectors, NaN where
    the encoder does not read one of them: the support is then the coverage alone, elsewhere the mean of both.
    """
    back = covered.T
    special = (covered >= FEWEST) & (covered >= MORE * back) & (back >= LEAST) & (back <= MOST)
    support = np.where(np.isnan(cosine), covered, (covered + np.clip(cosine, 0, 1)) / 2)
    return np.where(special & ~np.eye(len(covered), dtype=bool), support, 0.0)


def _answer(wanted: RoleQuestion | PairQuestion) -> dict[str, Any]:
    if isinstance(wanted, RoleQuestion):
        return {"roles": _roles(wanted)}
    decided = _decided(Same(wanted.subject), Same(wanted.roles))
    return {"pairs": {str(number): decided.label(pair) for number, pair in enumerate(wanted.pairs, 1)}}


def _roles(wanted: RoleQuestion) -> dict[str, Role]:
    weights = [c.weight for c in wanted.subject.criteria if c.weight > 0]
    usual = float(np.median(weights)) if weights else 0.0
    return {criterion.id: role(criterion, usual) for criterion in wanted.criteria}


class _Decided(NamedTuple):
    """What is decided of all pairs of one rubric."""

    place: dict[str, int]
    relations: dict[tuple[int, int], Relation]
    """Those that have one, by place."""
    measure: Floats
    """(k, k) what the confidence is."""

    def label(self, pair: Pair) -> dict[str, Any]:
        """A pair's label in the contract."""
        at = self.place[pair[0]], self.place[pair[1]]
        relation, sure = self.relations.get(at), float(self.measure[at])
        return {"relation": relation or NONE, "confidence": round(100 * (sure if relation else 1 - sure))}


@lru_cache(maxsize=4)  # the calls about one rubric come one after the other
def _decided(subject: Same[GraphSubject], roles: Same[Mapping[str, Role]]) -> _Decided:
    criteria, query = subject.value.criteria, subject.value.question
    texts = [criterion.text for criterion in criteria]
    by_role = np.array([roles.value[criterion.id] for criterion in criteria])
    covered, cosine = coverage(texts, texts, query), _cosine(texts)
    support = specialised(covered, cosine)
    rests = nearest(
        support * _between(by_role, ("core",), ("core", "additional")), np.where(np.isnan(cosine), UNREAD, READ)
    )
    holds = coverage([condition(text) for text in texts], texts, query)
    active = nearest(holds * _between(by_role, ("applicability",), ("additional", "penalty")), ACTIVE)
    relations: dict[tuple[int, int], Relation] = {}
    for parent, child in np.argwhere(rests).tolist():
        is_strong = covered[parent, child] >= STRONG
        relations[parent, child] = "strong_prerequisite" if is_strong else "weak_prerequisite"
    for parent, child in np.argwhere(active).tolist():
        relations[parent, child] = "activation"
    place = {criterion.id: at for at, criterion in enumerate(criteria)}
    return _Decided(place, relations, np.where(active, holds, support))


def nearest(measure: Floats, least: Floats | float) -> Bools:
    """The pairs whose measure reaches the least, of each child (column) only the `PARENTS` highest, earlier ones first
    where two are alike."""
    reaching = np.where(measure >= least, measure, -1.0)
    chosen = np.zeros(measure.shape, dtype=bool)
    np.put_along_axis(chosen, np.argsort(-reaching, axis=0, kind="stable")[:PARENTS], True, axis=0)
    found: Bools = chosen & (reaching >= 0)
    return found


def _between(roles: NDArray[np.str_], parents: tuple[Role, ...], children: tuple[Role, ...]) -> Floats:
    """1 for the pairs of a parent with one of these roles and a child with one of those, else 0."""
    return np.outer(np.isin(roles, parents), np.isin(roles, children)).astype(float)


def _cosine(texts: Sequence[str]) -> Floats:
    """(k, k); NaN where one of the two is written in signs that the encoder does not know."""
    read = [at for at, text in enumerate(texts) if not is_signs(text)]
    found = np.full((len(texts), len(texts)), np.nan)
    if read:
        vectors = minilm()([texts[at] for at in read]).astype(np.float64)
        found[np.ix_(read, read)] = vectors @ vectors.T
    return found

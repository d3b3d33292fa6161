"""The heuristic annotator: roles and dependencies by rules of thumb over the criteria's wording. No language model.

Roles: a negative weight is a penalty; a criterion that states a condition and demands nothing, or has weight 0, is an
applicability criterion; one that calls itself an extra, or weighs little next to the others, is additional; all others
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

What the wording of criteria shares and what it hints at: content words weighted by rarity, and cues of a few
languages. It knows words, not what they mean.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from itertools import chain, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rubricflow.tasks.core.contracts.bundle import Criterion
from rubricflow.tasks.core.contracts.graph import Role
from rubricflow.tasks.core.llm.backends.scripted import Offline
from rubricflow.tasks.core.llm.encoder import NAME, minilm
from rubricflow.tasks.core.llm.request import IdentityKey, Reply
from rubricflow.tasks.core.stats.arrays import Bools, Floats
from rubricflow.tasks.core.text.tokens import SIGN, tokens
from rubricflow.tasks.rewards.graph.annotator import RoleQuestion
from rubricflow.tasks.rewards.graph.dependencies import NONE, PairQuestion
from rubricflow.tasks.rewards.graph.subject import GraphSubject, Pair

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
_TOGETHER = 2_000
"""Requests that are answered together."""


def rules_of_thumb() -> Offline:
    """The annotator as a backend, which answers about thousands of rubrics at once."""
    return Offline(MODEL, answer, _TOGETHER)


def answer(wanted: Sequence[RoleQuestion | PairQuestion]) -> list[Reply]:
    """One reply in the contract for each request's data. The encoder reads the texts of all rubrics together."""
    rubrics: dict[tuple[IdentityKey[GraphSubject], IdentityKey[Mapping[str, Role]]], _ComparedTexts] = {}
    for one in wanted:
        if isinstance(one, PairQuestion):
            key = IdentityKey(one.subject), IdentityKey(one.roles)
            rubrics[key] = rubrics.get(key) or _ComparedTexts(one.subject)
    texts = list(dict.fromkeys(compared.texts[place] for compared in rubrics.values() for place in compared.to_read))
    vectors = dict(zip(texts, minilm()(texts).astype(np.float64), strict=True)) if texts else {}
    labels = {key: compared.labels(key[1].value, vectors) for key, compared in rubrics.items()}
    replies = []
    for one in wanted:
        if isinstance(one, RoleQuestion):
            weights = [c.weight for c in one.subject.criteria if c.weight > 0]
            usual = float(np.median(weights)) if weights else 0.0
            artifact: dict[str, Any] = {"roles": {c.id: role(c, usual) for c in one.criteria}}
        else:
            label = labels[IdentityKey(one.subject), IdentityKey(one.roles)]
            artifact = {"pairs": {str(number): label(pair) for number, pair in enumerate(one.pairs, 1)}}
        replies.append(Reply(text=json.dumps(artifact, ensure_ascii=False)))
    return replies


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
    support = np.where(np.isnan(cosine), covered, (covered + np.clip(cosine, 0, 1)) / 2)
    return np.where(may_specialise(covered), support, 0.0)


def may_specialise(covered: Floats) -> Bools:
    """(k, k): whether the child (column) can be a specialisation of the parent (row), by what they share alone.

    covered: see `specialised`.
    """
    back = covered.T
    special = (covered >= FEWEST) & (covered >= MORE * back) & (back >= LEAST) & (back <= MOST)
    pairs: Bools = special & ~np.eye(len(covered), dtype=bool)
    return pairs


class _ComparedTexts:
    """The k criteria of a rubric held against each other."""

    def __init__(self, subject: GraphSubject) -> None:
        self._subject = subject
        self.texts = [criterion.text for criterion in subject.criteria]
        self._covered = coverage(self.texts, self.texts, subject.question)
        has_signs = np.array([is_signs(text) for text in self.texts], dtype=bool)
        self._is_unread = np.logical_or.outer(has_signs, has_signs)
        special = may_specialise(self._covered) & ~self._is_unread
        self.to_read: list[int] = np.flatnonzero(special.any(axis=0) | special.any(axis=1)).tolist()
        """The texts that the encoder has to read: of the others no pair can be a specialisation."""

    def labels(self, roles: Mapping[str, Role], vectors: Mapping[str, Floats]) -> Callable[[Pair], dict[str, Any]]:
        """Decides all pairs; gives a pair's label in the contract. vectors: of the texts that were read."""
        criteria = self._subject.criteria
        texts = self.texts
        covered = self._covered
        cosine = np.zeros(covered.shape)  # 0 where it does not matter
        if self.to_read:
            rows = np.stack([vectors[texts[place]] for place in self.to_read])
            cosine[np.ix_(self.to_read, self.to_read)] = rows @ rows.T
        cosine[self._is_unread] = np.nan
        by_role = np.array([roles[criterion.id] for criterion in criteria])
        support = specialised(covered, cosine)
        licensed = support * _between(by_role, ("core",), ("core", "additional"))
        rests = nearest(licensed, np.where(np.isnan(cosine), UNREAD, READ))
        holds = coverage([condition(text) for text in texts], texts, self._subject.question)
        active = nearest(holds * _between(by_role, ("applicability",), ("additional", "penalty")), ACTIVE)
        measure = np.where(active, holds, support)
        place = {criterion.id: at for at, criterion in enumerate(criteria)}

        def label(pair: Pair) -> dict[str, Any]:
            at = place[pair[0]], place[pair[1]]
            relation = NONE
            sure = 1 - float(measure[at])
            if active[at]:
                relation = "activation"
                sure = float(measure[at])
            elif rests[at]:
                strength = "strong" if covered[at] >= STRONG else "weak"
                relation = f"{strength}_prerequisite"
                sure = float(measure[at])
            return {"relation": relation, "confidence": round(100 * sure)}

        return label


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


_SIGN = re.compile(SIGN)
_STEM = 6
"""Letters by which words are told apart, so that 'recommends' and 'recommendation' are one."""
_SHORTEST = 4
"""Letters of the shortest content word; numbers of two digits count, too."""
_ASKED_FOR = 0.5
"""What a word that the query itself uses weighs next to another one: it is what all criteria are about."""
_IN_COMMON = 2
"""Content words that a part and a text must share."""
_FUNCTION_WORDS = """
    about acknowledges advise advises also answer answers appropriate appropriately asked asking asks assess assesses
    assistant been being both clear clearly correct correctly could describe describes does doing done each
    effectively either ensure ensures evaluate evaluates every explain explains from give given gives have having
    include includes including inform informs into just like list lists mention mentions model more most must note
    notes only other over provide provides recommend recommends response responses same seek seeks should some state
    states such suggest suggests than that their them then there these they this those under upon user users very well
    were what when where whether which while whom whose will with without would your
    aber auch dass diese dieser eine einen einer eines haben ihre kann nicht oder sich sind soll sollte wenn werden
    wird
    como deve devem entre essa esse esta este está isso mais para pela pelo pode quando sobre também texto
"""
_EMPTY = frozenset(_FUNCTION_WORDS.split())
"""Words that carry no content of a criterion: function words, and what rubrics ask responses to do."""
_CONDITION = re.compile(
    r"\W*(?:if|when|whenever|where|unless|in case|in the case|in cases|assuming|given that|provided that|should the|"
    r"for (?:users|patients|people|those|readers|students|cases|responses) (?:who|whose|with|that|in|under|over)|"
    r"the (?:user|patient|query|question|conversation|prompt|task|case) (?:is|are|has|have|asks|wants|involves)|"
    r"wenn|falls|sofern|sobald|im falle?|se o|se a|se for|se houver|quando|caso|no caso|"
    r"如果|若(?!干)|假如|倘若|当.{1,20}时|在.{1,20}情况下)(?![a-zß-ÿ])",
    re.IGNORECASE,
)
"""How a criterion begins that states a condition."""
_OPTIONAL = re.compile(
    r"\A\W*(?:additionally|ideally|zusätzlich|idealerweise|nach möglichkeit|adicionalmente|idealmente|se possível|"
    r"最好|此外|如有可能)|"
    r"\b(?:optional(?:ly)?|optionale?s?|bonus(?: points?)?|bonuspunkte?|extra (?:credit|points?)|nice to have|"
    r"wünschenswert|opcional(?:mente)?|bônus|ponto extra)\b|可选|加分项|额外加分",
    re.IGNORECASE,
)
"""How one begins, or what stands in one, that asks for what may be lacking."""
_CLAUSE_END = re.compile(r"[,，;；:：。]")


def is_condition(text: str) -> bool:
    """Whether a criterion is a condition and, as far as a first clause tells, demands nothing besides."""
    return states_condition(text) and not any(part.strip(" .") for part in _CLAUSE_END.split(text)[1:])


def states_condition(text: str) -> bool:
    """Whether a criterion begins as conditions do in English, German, Portuguese or Chinese."""
    return _CONDITION.match(text) is not None


def is_optional(text: str) -> bool:
    """Whether a criterion says that it is an extra."""
    return _OPTIONAL.search(text) is not None


def condition(text: str) -> str:
    """The part of a criterion that is its condition: up to the first comma or the like; all of it without one."""
    return _CLAUSE_END.split(text, maxsplit=1)[0] if states_condition(text) else text


def is_signs(text: str) -> bool:
    """Whether a text is Chinese or Japanese for a third or more of its tokens, which the small encoder cannot read."""
    all_tokens = tokens(text)
    return 3 * sum(_SIGN.fullmatch(token) is not None for token in all_tokens) > len(all_tokens)


def coverage(parts: Sequence[str], texts: Sequence[str], query: str) -> np.ndarray:
    """Share of the content of each part that a text holds, (parts, texts), in [0, 1].

    Content are word stems, and pairs of neighbouring characters in Chinese and Japanese. Each weighs log((n + 1) / df)
    over the n texts, half of it where the query has it, and nothing where more than half of the texts (and more than
    three) have it. To have fewer than two of them in common is chance, and 0. parts: the texts, or pieces of them.
    """
    contents = [content(text) for text in texts]
    counts = Counter(chain.from_iterable(contents))
    of_query = content(query)
    telling = [word for word, count in counts.items() if count <= max(3, len(texts) / 2)]
    place = {word: index for index, word in enumerate(telling)}
    weight = np.array([np.log((len(texts) + 1) / counts[w]) * (_ASKED_FOR if w in of_query else 1) for w in telling])
    of_parts = _rows(list(map(content, parts)), place)
    of_texts = _rows(contents, place)
    mass = of_parts @ weight
    share = ((of_parts * weight) @ of_texts.T) / np.where(mass > 0, mass, 1.0)[:, None]
    covered: np.ndarray = np.where(of_parts @ of_texts.T >= _IN_COMMON, share, 0.0)
    return covered


@cache
def content(text: str) -> frozenset[str]:
    """What a text is about, as far as single words tell."""
    all_tokens = tokens(text)
    signs = [_SIGN.fullmatch(token) is not None for token in all_tokens]
    marked = list(zip(all_tokens, signs, strict=True))
    pairs = {a + b for (a, a_is_sign), (b, b_is_sign) in pairwise(marked) if a_is_sign and b_is_sign}
    words = (token for token, sign in marked if not sign and token not in _EMPTY)
    stems = {word[:_STEM] for word in words if len(word) >= (2 if word.isdigit() else _SHORTEST)}
    return frozenset(stems | pairs)


def _rows(words: Sequence[frozenset[str]], place: dict[str, int]) -> np.ndarray:
    rows = np.zeros((len(words), len(place)))
    for index, content_words in enumerate(words):
        rows[index, [place[word] for word in content_words if word in place]] = 1.0
    return rows

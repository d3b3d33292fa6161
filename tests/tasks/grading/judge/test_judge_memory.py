"""Memory: what is recalled and in which order, rounds against a plain sequential store, and data that stays data."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest
from builders.bundles import bundle, criterion, trait
from builders.cases import case
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.feature_extraction.text import TfidfVectorizer

from rubricflow.tasks.core.contracts.bundle import ConsistencyMemory, Criterion, RubricMemory
from rubricflow.tasks.core.llm.ask import ask
from rubricflow.tasks.core.llm.backend import Scripted
from rubricflow.tasks.core.llm.reply_store import ReplyStore
from rubricflow.tasks.core.llm.request import Reply
from rubricflow.tasks.core.text.tokens import tokens
from rubricflow.tasks.grading.judge.grade import first_requests, grade_batch, rounds
from rubricflow.tasks.grading.judge.memory import (
    Exemplar,
    Memory,
    cards,
    exemplars,
    fitting,
    learn,
    recall,
    show,
    weights,
)
from rubricflow.tasks.grading.judge.protocol import NOTHING, Answer, protocol_of
from rubricflow.tasks.grading.judge.rows import Rater

POINTS = ("plants need sunlight", "water reaches the roots", "roots hold the soil", "leaves make sugar from light")
BANNED = ("plants eat soil", "water is sugar", "light is warm")


def bundle_of(points=POINTS, banned=BANNED, **protocol):
    of_points = (criterion(f"P{n}", "c", text=text) for n, text in enumerate(points, 1))
    wrong = {"kind": "misconception", "weight": -1}
    of_banned = (criterion(f"M{n}", "c", text=text, **wrong) for n, text in enumerate(banned, 1))
    traits = trait("clarity", source="judged"), trait("c")
    return bundle(*of_points, *of_banned, traits=traits, name="gradeagentops", min_tokens=3, **protocol)


def case_of(bundle, response_id="r1", text="Plants need sunlight and water. Their roots hold it.", item_id="i1"):
    return case(bundle, text, response_id, item_id, question="How do plants live?")


def exemplar_of(response_id, text, final=5.0):
    return Exemplar(response_id, text, frozenset(tokens(text)), final, {"clarity": final}, (1,))


def names(found):
    return [one.id if isinstance(one, Criterion) else one.response_id for one in found]


# Weights and overlaps, against scikit-learn.

words = st.lists(st.sampled_from([*"abcdefgh", "ß", "é", "東京"]), max_size=8).map(" ".join)


def by_sklearn(texts):
    """Word → weight in these texts."""
    vectorizer = TfidfVectorizer(tokenizer=tokens, token_pattern=None, lowercase=False)
    vectorizer.fit(texts)
    return dict(zip(vectorizer.get_feature_names_out(), vectorizer.idf_, strict=True))


@settings(max_examples=20)
@given(st.lists(words.filter(str.strip), min_size=1, max_size=6))
def test_weights_are_scikit_learns_smoothed_idf(texts):
    of = weights([frozenset(tokens(text)) for text in texts])
    assert of == pytest.approx(by_sklearn(texts))


@settings(max_examples=20)
@given(st.lists(words.filter(str.strip), min_size=1, max_size=5), words, st.integers(0, 4))
def test_cards_are_the_best_by_brute_force(texts, said, most):
    bundle = bundle_of(texts, ())
    idf, spoken = by_sklearn(texts), set(tokens(said))
    overlap = [sum(idf[word] for word in set(tokens(text)) & spoken) for text in texts]
    order = [n for n in np.argsort([-round(value, 9) for value in overlap], kind="stable") if overlap[n] > 0]
    found = cards(said, bundle, RubricMemory(points=most))
    assert names(found) == [f"P{n + 1}" for n in order[:most]]


@settings(max_examples=20)
@given(st.lists(words, max_size=6), words, st.floats(0, 1), st.integers(1, 4))
def test_exemplars_are_the_best_by_brute_force(texts, said, least, most):
    store = tuple(exemplar_of(f"r{n}", text) for n, text in enumerate(texts))
    found = exemplars(said, store, ConsistencyMemory(similarity=least, exemplars=most))
    if not tokens(" ".join([*texts, said])):
        assert found == ()
        return
    idf = by_sklearn([*texts, said])
    likeness = []
    for n, text in enumerate(texts):
        both, either = set(tokens(text)) & set(tokens(said)), set(tokens(text)) | set(tokens(said))
        value = sum(idf[w] for w in both) / sum(idf[w] for w in either) if either else 0.0
        likeness.append((-round(value, 9), -n, f"r{n}"))
    near = [name for value, _, name in sorted(likeness) if -value >= least - 1e-12 and value < 0]
    assert names(found) == near[:most] or any(abs(-value - least) < 1e-8 for value, *_ in likeness)


# Rubric memory.


# Consistency memory.

LONG = "one two three four five six seven eight nine ten"


def graded_case(text=LONG, response_id="r1", reply=None, **memory):
    """A case and its outcome under a consistency memory."""
    case = case_of(bundle_of(consistency_memory=ConsistencyMemory(**memory)), response_id, text)
    request = first_requests(case, RATER)[0]
    (part,) = protocol_of("gradeagentops").parts(case.bundle, ())
    given = reply if reply is not None else reply_of(text)
    backend = Scripted([given])
    with ReplyStore(":memory:") as store:
        (asked,) = ask([request], backend, store, protocol_of("gradeagentops").check)
    return case, protocol_of("gradeagentops").outcome(case, [Answer(part, asked)])


def reply_of(text, score=6, covered=(1,)):
    """A sound reply with the response's own beginning as evidence."""
    quote = " ".join(text.split()[:4])
    return json.dumps(
        {
            "evidence": [{"point": n, "quote": quote} for n in covered],
            "covered": list(covered),
            "missed": [n for n in range(1, 5) if n not in covered],
            "misconceptions": [],
            "rationale": "",
            "subscores": {"clarity": score},
            "final_score": score,
        }
    )


RATER = Rater("scripted:test", "llm", Scripted([]))


def test_what_is_learned_is_the_models_own_grading():
    case, outcome = graded_case(LONG + " " * 700 + "tail", excerpt=48)
    (kept,) = learn((), case, outcome)
    assert kept == Exemplar("r1", LONG, frozenset(LONG.split()), 6.0, {"clarity": 6.0}, (1,))
    assert not {"human", "target"} & set(Exemplar._fields)


@pytest.mark.parametrize(
    ("text", "reply", "memory"),
    [
        ("one two three four five six seven", None, {}),
        (LONG, "no artifact", {}),
        (LONG, Reply(error="down"), {}),
        (LONG, None, {"min_tokens": 11}),
    ],
)
def test_what_is_too_short_or_not_scored_is_not_learned(text, reply, memory):
    assert learn((), *graded_case(text, reply=reply, **memory)) == ()


def test_the_response_is_cut_like_the_excerpts():
    store = (exemplar_of("r1", LONG),)
    assert names(exemplars(LONG + " other words" * 50, store, ConsistencyMemory(similarity=1, excerpt=len(LONG)))) == [
        "r1"
    ]


# What is shown.

hostile = st.lists(
    st.one_of(
        st.text(max_size=12),
        st.sampled_from(
            ["=====", "=====END ", "\n", "\r", "\u2028", "\x85", '"', "\\", "; answer: ", "{{nonce}}", "\ud800"]
        ),
    ),
    max_size=12,
).map("".join)


@settings(max_examples=20)
@given(st.lists(hostile, min_size=1, max_size=3))
def test_an_exemplar_never_leaves_its_line(texts):
    text = show(Memory(tuple(exemplar_of(f"r{n}", one) for n, one in enumerate(texts))), bundle_of()).text
    lines = re.split(r"[\n\r\x0b\x0c\x1c-\x1e\x85\u2028\u2029]", text)
    nonce = re.fullmatch(r"=====EARLIER ([0-9a-f]{16})=====", lines[1])[1]
    assert (lines[-1], text.count(nonce), len(lines)) == (f"=====END {nonce}=====", 2, 3 + len(texts))
    for n, (line, said) in enumerate(zip(lines[2:-1], texts, strict=True), 1):
        head = f"{n}. final score 5; clarity 5; points covered: 1; answer: "
        assert line.startswith(head)
        assert json.loads(line.removeprefix(head)) == " ".join(said.split())


def test_a_full_context_loses_exemplars_and_then_cards_and_never_the_rest():
    plain = bundle_of()
    memory = Memory(tuple(exemplar_of(f"r{n}", LONG) for n in range(3)), plain.criteria[:2])
    (bare,) = first_requests(case_of(plain), RATER)
    fixed = sum(len(m.content) for m in bare.messages) // 4 + bare.sampling.max_tokens
    seen = []
    for tokens_ in range(fixed, fixed + 400):
        bundle = bundle_of(context_tokens=tokens_)
        shown = fitting(memory, replace(bare, data=replace(bare.data, bundle=bundle)))
        assert sum(len(m.content) for m in bare.messages) + len(shown.text) <= 4 * (
            tokens_ - bare.sampling.max_tokens
        ) or (shown == NOTHING)
        seen += [shown.sources] if not seen or seen[-1] != shown.sources else []
    every = ("card:P1", "card:P2", "exemplar:r0", "exemplar:r1", "exemplar:r2")
    assert seen == [every[:n] for n in range(6)]
    assert fitting(memory, bare).sources == every


def test_the_request_itself_is_never_cut():
    bundle = bundle_of(context_tokens=256, rubric_memory=RubricMemory())
    case = case_of(bundle)
    (bare,) = first_requests(case, RATER)
    assert fitting(recall(case, ()), bare) == NOTHING


# Rounds.

VOCABULARY = ["light", "water", "soil", "roots", "leaves", "sugar", "warm", "cold", "grows", "lives", "dies", "drinks"]


def answering(request):
    """Scores by length, and moves half-way to the exemplars shown."""
    question = request.data
    own = len(question.text.split()) % 11
    said = [float(score) for score in re.findall(r"^\d\. final score ([\d.]+);", request.messages[1].content, re.M)]
    score = round((own + sum(said) / len(said)) / 2) if said else own
    return reply_of(question.text, score)


def class_of(items, count, rng, **memory):
    bundle = bundle_of(consistency_memory=ConsistencyMemory(**memory))
    return [
        case_of(bundle, f"i{i}-r{n:02d}", " ".join(rng.choice(VOCABULARY, rng.integers(4, 16))) + ".", f"i{i}")
        for i in range(items)
        for n in range(count)
    ]


def sequential(cases):
    """One case after the other, an item at a time, as the paper describes it."""
    found, order = {}, sorted(cases, key=lambda case: (case.item_id, case.response_id))
    stores = {}
    for graded in order:
        store = stores.get(graded.item_id, ())
        with ReplyStore(":memory:") as replies:
            shown = show(recall(graded, store), graded.bundle)
            (part,) = protocol_of("gradeagentops").parts(graded.bundle, ())
            request = protocol_of("gradeagentops").request(graded, part, (), shown, RATER)
            (asked,) = ask([request], Scripted(answering), replies, protocol_of("gradeagentops").check)
        outcome = protocol_of("gradeagentops").outcome(graded, [Answer(part, asked)])
        stores[graded.item_id] = learn(store, graded, outcome)
        found[graded.response_id] = (outcome.grading.scored.score, shown.sources)
    return found


def batched(cases):
    backend = Scripted(answering)
    with ReplyStore(":memory:") as replies:
        graded = grade_batch(cases, replace(RATER, backend=backend), replies)
    scores = {one.case.response_id: one.scored.score for one in graded.gradings}
    shown = {one.response_id: one.answer.attempts[0].request.memory for one in graded.called}
    assert [one.case.response_id for one in graded.gradings] == [case.response_id for case in cases]
    return {name: (scores[name], shown[name]) for name in scores}


@settings(max_examples=8)
@given(st.integers(0, 1000), st.integers(1, 3), st.integers(1, 12), st.randoms(use_true_random=False))
def test_round_size_one_is_the_sequential_store(seed, items, count, chance):
    cases = class_of(items, count, np.random.default_rng(seed), min_tokens=5, capacity=4)
    expected = sequential(cases)
    chance.shuffle(cases)
    assert batched(cases) == expected


def test_anchors_are_used_at_all():
    found = batched(class_of(1, 12, np.random.default_rng(0)))
    assert sum(bool(sources) for _, sources in found.values()) > 6


@pytest.mark.parametrize("size", [2, 5, 100])
def test_a_round_sees_what_was_graded_before_it_and_nothing_of_itself(size):
    cases = class_of(2, 11, np.random.default_rng(1), round_size=size, min_tokens=0, similarity=0)
    place = {case.response_id: n // size for item in ("i0", "i1") for n, case in enumerate(
        sorted((c for c in cases if c.item_id == item), key=lambda c: c.response_id))}  # fmt: skip
    for name, (_, sources) in batched(cases).items():
        before = {source.removeprefix("exemplar:") for source in sources}
        assert all(one.split("-")[0] == name.split("-")[0] and place[one] < place[name] for one in before)
        assert bool(before) == (place[name] > 0)


def test_a_seed_shuffles_within_the_item_and_stays():
    def order(seed, names):
        bundle = bundle_of(consistency_memory=ConsistencyMemory(order_seed=seed))
        cases = [case_of(bundle, name) for name in names]
        return [cases[i].response_id for one in rounds(cases) for i in one]

    ids = [f"r{n:02d}" for n in range(20)]
    orders = [order(seed, ids) for seed in (None, 0, 1)]
    assert orders[0] == ids
    assert len({tuple(one) for one in orders}) == 3
    assert all(sorted(one) == ids for one in orders)
    assert order(1, ids[::-1]) == orders[2]
    # A response more changes nobody else's place.
    assert [name for name in order(1, [*ids, "zz"]) if name != "zz"] == orders[2]


def test_a_case_without_words_takes_no_place_in_a_round():
    bundle = bundle_of(consistency_memory=ConsistencyMemory(round_size=2))
    cases = [case_of(bundle, "a", "no"), *(case_of(bundle, name, f"{LONG} {name}") for name in "bcd")]
    waves = []
    with ReplyStore(":memory:") as replies:
        grade_batch(cases, replace(RATER, backend=Scripted(answering)), replies, waves.append)
    assert [wave.asked for wave in waves] == [2, 1]

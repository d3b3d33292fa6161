"""Which level counts: the stated, the likeliest or the expected one, from constructed distributions of tokens."""

import json
import math

import numpy as np
import pytest
from builders.bundles import THREE, bundle, criterion, scale, trait
from builders.cases import case
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from rubricflow.tasks.core.contracts.bundle import Repair
from rubricflow.tasks.core.contracts.settings.judge import Judge
from rubricflow.tasks.core.llm.backend import Scripted
from rubricflow.tasks.core.llm.reply_store import ReplyStore
from rubricflow.tasks.core.llm.request import Reply, Token
from rubricflow.tasks.grading.judge import itemised
from rubricflow.tasks.grading.judge.grade import grade_batch
from rubricflow.tasks.grading.judge.rater import Levelled
from rubricflow.tasks.grading.judge.rows import Rater

TEXT = "Heat is the motion of particles. It flows."


def tokens_of(text, alternatives):
    """A reply's text a character a token; `alternatives`: place → {character: probability}."""
    made = []
    for at, c in enumerate(text):
        likely = alternatives.get(at, {c: 1.0})
        made.append(Token(c, math.log(likely[c]), tuple((one, math.log(p)) for one, p in likely.items())))
    return made


def graded(protocol, text, alternatives, level, **more):
    judged = "judged" if protocol in ("mts", "unlocked", "gradeagentops") else "derived"
    covered = {"levels": ("missed", "covered")} if protocol == "gradeagentops" else {"levels": THREE}
    points = [criterion(name, **covered, evidence=more.pop(name, "none")) for name in "ab"]
    formula = "judged" if protocol == "dhs" else "trait_mean"
    made = bundle(*points, traits=(trait(source=judged),), name=protocol, final_score=formula, level=level, **more)
    reply = Reply(text=text, token_logprobs=tokens_of(text, alternatives))
    with ReplyStore(":memory:") as store:
        rater = Rater("r", "llm", Levelled(Scripted([reply])), Scripted([], model="m"), want_logprobs=True)
        return grade_batch([case(made, TEXT)], rater, store)


SCORE = '{"rationale": "", "score": 10}'
AT = SCORE.index("10")
DIGITS = {AT: {"1": 0.25, "7": 0.23, "6": 0.2, "8": 0.32}, AT + 1: {"0": 0.72, "}": 0.28}}
"""The greedy reply is a 10 (.25 · .72 = .18) where 8 was likeliest (.32)."""


@pytest.mark.parametrize("protocol", ["dhs", "mts"])
def test_a_greedy_number_of_two_digits_need_not_be_the_likeliest(protocol):
    of = {level: graded(protocol, SCORE, DIGITS, level).gradings[0] for level in ("stated", "likeliest", "expected")}
    mean = 0.07 * 1 + 0.2 * 6 + 0.23 * 7 + 0.32 * 8 + 0.18 * 10
    assert (of["stated"].scored.score, of["likeliest"].scored.score) == (10, 8)
    found = of["expected"].scored
    assert (found.score if protocol == "dhs" else found.traits["t"]) == pytest.approx(mean)
    assert [of[level].confidence for level in of] == pytest.approx([0.18, 0.32, 0.32])
    assert "off_step" not in of["expected"].signals


def test_a_likelier_level_still_needs_its_quote_and_a_repair_is_asked_for_it():
    text = json.dumps({"decisions": {"a": {"evidence": [], "level": 0}, "b": {"level": 2}}})
    first = text.index('"level": 0') + 9
    options = {"a": "local_quote", "repair": Repair()}
    made = graded("rulers", text, {first: {"0": 0.3, "1": 0.7}}, "likeliest", **options)
    decision = made.judged[0].decisions[0]
    assert (decision.level, decision.stated, decision.action) == (0, 1, "demoted")
    assert made.called[0].answer.attempts[0].checked.violations == ("evidence_failed:a",)


@pytest.mark.parametrize(("level", "score"), [("stated", 2), ("likeliest", 9), ("expected", 6.9)])
def test_a_trait_s_score_with_quotes(level, score):
    text = json.dumps({"traits": {"t": {"evidence": [{"unit": "s1", "quote": "motion of particles"}], "score": 2}}})
    at = text.index('"score": 2') + 9
    made = graded("unlocked", text, {at: {"2": 0.3, "9": 0.7}}, level)
    assert made.gradings[0].scored.traits["t"] == pytest.approx(score)


def sheet():
    points = {"1": {"status": "covered"}, "2": {"status": "missed"}}
    return json.dumps({"points": points, "rationale": "", "subscores": {"t": 10}, "final_score": 10})


@pytest.mark.parametrize(
    ("level", "levels", "score", "sure"),
    [
        ("stated", [1, 0], 10, (0.4 + 0.9 + 0.18) / 3),
        ("likeliest", [0, 0], 8, (0.6 + 0.9 + 0.32) / 3),
        ("expected", [0, 0], 7.24, (0.6 + 0.9 + 0.32) / 3),
    ],
)
def test_gradeagentops_knows_how_sure_it_is_of_points_and_subscores(level, levels, score, sure):
    text = sheet()
    first, second = text.index('"covered"') + 1, text.index('"missed"') + 1
    at = text.index('"t": 10') + 5
    alternatives = {first: {"c": 0.4, "m": 0.6}, second: {"m": 0.9, "c": 0.1}}
    alternatives |= {at + n - AT: likely for n, likely in DIGITS.items()}
    made = graded("gradeagentops", text, alternatives, level)
    grading = made.gradings[0]
    assert [d.level for d in made.judged[0].decisions] == levels
    assert grading.scored.traits["t"] == pytest.approx(score)
    assert grading.confidence == pytest.approx(sure)
    assert made.judged[0].probabilities == {"a": pytest.approx([0.6, 0.4]), "b": pytest.approx([0.9, 0.1])}


def test_probabilities_of_mended_points_are_those_of_the_repair():
    """Of what the repair was not asked for those of the first reply stay."""
    first = Reply(text=sheet().replace('"missed"', '"?"'), level_probabilities={"1": [0.8, 0.2], "t": [0, *[0.1] * 10]})
    second = json.dumps({"points": {"1": {"status": "missed"}, "2": {"status": "covered"}}})
    mended = Reply(text=second, level_probabilities={"1": [0.1, 0.9], "2": [0.7, 0.3]})
    points = (criterion(name, levels=("missed", "covered"), evidence="none") for name in "ab")
    made = bundle(*points, traits=(trait(source="judged"),), name="gradeagentops", repair=Repair())
    with ReplyStore(":memory:") as store:
        rater = Rater("r", "llm", Scripted([first]), Scripted([mended], model="m"))
        graded = grade_batch([case(made, TEXT)], rater, store)
    assert graded.judged[0].probabilities == {"a": [0.2, 0.8], "b": [0.3, 0.7]}
    assert graded.gradings[0].confidence == pytest.approx((0.8 + 0.7 + 0.1) / 3)


# --- laws

masses = st.lists(st.floats(0, 1), min_size=11, max_size=11).filter(lambda p: sum(p) > 0.01)


@settings(max_examples=20)
@given(masses, st.integers(0, 10), st.sampled_from([(0, 10, 1), (1, 6, 0.5), (-5, 5, 1)]))
def test_against_numpy(likely, stated, ends):
    of, likely = scale(*ends), list(np.array(likely) / np.sum(likely))
    by = {name: bundle(criterion(), level=name).protocol for name in ("stated", "likeliest", "expected")}
    grid = np.linspace(of.min, of.max, 11)
    assert itemised.value(by["stated"], likely, grid[stated], of) == grid[stated]
    assert likely[int(np.argmin(abs(grid - itemised.value(by["likeliest"], likely, grid[stated], of))))] == max(likely)
    assert itemised.value(by["expected"], likely, grid[stated], of) == pytest.approx(np.dot(grid, likely))
    assert of.min - 1e-9 <= itemised.value(by["expected"], likely, grid[stated], of) <= of.max + 1e-9
    assert all(itemised.value(one, None, grid[stated], of) == grid[stated] for one in by.values())


@pytest.mark.parametrize("level", ["likeliest", "expected"])
def test_another_level_than_the_stated_needs_probabilities(level):
    plan = {"backend": "openai", "engine": {"model": "m"}, "level": level}
    with pytest.raises(ValidationError, match=r"set judge\.engine\.logprobs"):
        Judge.model_validate(plan)
    assert Judge.model_validate(plan | {"engine": {"model": "m", "logprobs": 5}}).as_protocol().level == level


def test_a_bundle_that_takes_what_is_stated_keeps_its_id():
    old = bundle(criterion())
    assert "level" not in json.loads(old.canonical())["protocol"]
    assert old.bundle_id != bundle(criterion(), level="likeliest").bundle_id

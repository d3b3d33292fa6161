"""Points as they are typed, in a real browser: what a text says on a scale, and what the page does with it."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from review_scene import CRITERIA, case, scene

from rubricflow.tasks.core.contracts.bundle import Scale
from rubricflow.tasks.people.review.board import Board, PredictedScore, score_texts
from rubricflow.tasks.people.review.ledger import Ledger

Person = Callable[..., Any]
Serving = Callable[..., str]
SCALES = {
    "0-2": Scale(min=0, max=2),
    "0-4 by .5": Scale(min=0, max=4, step=0.5),
    "0-6": Scale(min=0, max=6),
    "0-10": Scale(min=0, max=10),
    "0-100": Scale(min=0, max=100),
    "1-5": Scale(min=1, max=5),
    "-2-2": Scale(min=-2, max=2),
    "-1-1 by .25": Scale(min=-1, max=1, step=0.25),
    "thirds": Scale(min=0, max=1, step=1 / 3),
    "0-100 by 5": Scale(min=0, max=100, step=5),
}
NUMBER = re.compile(r"-?(\d+\.?\d*|\.\d+)")
READ = """async ([values, texts]) => {
    const { readPoints } = await import("/page/points.js");
    return texts.map(text => { const { value, mayBecome } = readPoints(text, values); return [value, mayBecome]; });
}"""


def board(scale: Scale) -> Board:
    """One answer that waits for a score."""
    one = replace(case("R-1", "Risk above 20%"), subject_kind="score")
    machine = PredictedScore(scale.min, scale.min, scale.min, scale.max, 0.45, None)
    return replace(scene((one, replace(one, response_id="R-2", text="Salt."))), scales={"r": scale}, machine={},
                   predictions={"R-1": machine, "R-2": machine}, grader=None, criteria={"r": CRITERIA})  # fmt: skip


@pytest.fixture(scope="module")
def plain(browser: Any) -> Iterator[Any]:
    """A page that holds the module and no server."""
    page = browser.new_page()
    page.set_default_timeout(300_000)
    script = Path(__file__).parents[4] / "tasks" / "people" / "review" / "page" / "points.js"
    page.route("**/points.js", lambda route: route.fulfill(path=script, content_type="text/javascript"))
    page.route("http://here/", lambda route: route.fulfill(body="<p>", content_type="text/html"))
    page.goto("http://here/")
    yield page
    page.close()


def sayer(values: list[str]) -> Callable[[str], str | None]:
    """A text to the score that it names, by decimal arithmetic."""
    numbers = {Decimal(value): value for value in values}
    return lambda text: numbers.get(Decimal(text)) if NUMBER.fullmatch(text) else None


@pytest.mark.parametrize("name", ["0-4 by .5", "0-100", "-1-1 by .25", "thirds"])
def test_a_text_says_the_score_that_it_names_and_is_open_as_long_as_more_of_it_can_make_one(
    plain: Any, name: str
) -> None:
    values = score_texts(SCALES[name])
    short = ["".join(signs) for length in range(4) for signs in itertools.product("0123456789.-", repeat=length)]
    texts = list(dict.fromkeys([*short, *itertools.chain(*map(writings, values))]))
    read = dict(zip(texts, plain.evaluate(READ, [values, texts]), strict=True))
    said = sayer(values)
    assert {text: value for text, (value, _) in read.items()} == {text: said(text) for text in texts}
    whole = [text for value in values for text in writings(value) if said(text) == value]
    begun = {text[:length] for text in whole for length in range(len(text) + 1)}
    assert {text for text in short if read[text][1]} == begun & set(short)
    commas = [text.replace(".", ",").replace("-", "−") for text in short]
    assert plain.evaluate(READ, [values, commas]) == [read[text] for text in short]


def writings(value: str) -> Iterator[str]:
    """A score with up to three zeros before and behind it that change nothing."""
    sign, whole, part = re.fullmatch(r"(-?)(\d+)(?:\.(\d+))?", value).groups("")  # type: ignore[union-attr]
    for minus, before, behind in itertools.product({sign, "-" if value == "0" else sign}, range(4), range(4)):
        head = minus + "0" * before + whole.lstrip("0")
        yield from (head, f"{head}.{part}{'0' * behind}")


@pytest.mark.parametrize(
    ("scale", "text", "nearest"),
    [("0-6", "7", "6"), ("0-4 by .5", "1,2", "1 and 1.5"), ("0-4 by .5", "1.75", "1.5 and 2"), ("1-5", "0", "1"),
     ("-2-2", "-2,5", "-2"), ("-2-2", "-.5", "-1 and 0"), ("0-100 by 5", "83", "80 and 85"), ("0-2", "99999999", "2")],
)  # fmt: skip
def test_what_is_no_score_names_the_nearest_steps(plain: Any, scale: str, text: str, nearest: str) -> None:
    read = 'async given => (await import("/page/points.js")).readPoints(...given)'
    refused = plain.evaluate(read, [text, score_texts(SCALES[scale])])
    assert refused["value"] is None
    assert refused["why"] == f"{text} is not on this scale; nearest: {nearest}."


def test_a_sign_that_may_part_thousands_is_asked_about(plain: Any) -> None:
    values = score_texts(Scale(min=0, max=2000, step=50))
    read = dict(
        zip(texts := ["1.000", "1.00", "1000", "50.0", "50.000"], plain.evaluate(READ, [values, texts]), strict=True)
    )
    assert read == {
        "1.000": [None, False],
        "1.00": [None, False],
        "1000": ["1000", True],
        "50.0": ["50", True],
        "50.000": ["50", True],
    }
    assert plain.evaluate(READ, [score_texts(Scale(min=0, max=1000)), ["1.000", "1,000", "1.00"]]) == [
        [None, False], [None, False], ["1", True]]  # fmt: skip


STEPS = """async ([values, by, from]) => {
    const { stepped } = await import("/page/points.js"), path = [""];
    for (let i = 0; i <= values.length; i += 1) path.push(stepped(path.at(-1), values, by, from));
    return path.slice(1);
}"""


@pytest.mark.parametrize("name", SCALES)
def test_arrows_walk_the_steps_and_stay_at_the_ends(plain: Any, name: str) -> None:
    values = score_texts(SCALES[name])
    assert plain.evaluate(STEPS, [values, 1, None]) == [*values, values[-1]]
    assert plain.evaluate(STEPS, [values, -1, None]) == [*values[::-1], values[0]]
    middle = len(values) // 2
    assert plain.evaluate(STEPS, [values, 1, values[middle]])[0] == values[middle + 1]


def votes(path: Path) -> list[str | None]:
    with Ledger(path) as ledger:
        return [act.value if act.kind == "vote" else act.kind for act in ledger.acts("science")]


def chosen(page: Any) -> list[str]:
    return [text.strip() for text in page.locator("#c0 [aria-checked=true] > b").all_inner_texts()]


def stored(page: Any) -> None:
    page.locator("#stored", has_text="Everything stored").wait_for()


@pytest.mark.parametrize("name", ["0-4 by .5", "-2-2"])
def test_every_score_is_typed_with_point_and_comma(
    serving: Serving, person: Person, ledger_path: Path, name: str
) -> None:
    page = person(serving(board(SCALES[name])), "Ada")
    values = score_texts(SCALES[name])
    for value in values:
        for text in dict.fromkeys((value, value.replace(".", ","))):
            page.keyboard.type(text)
            assert page.input_value("#points0") == text
            page.keyboard.press("Enter")
            assert chosen(page) == [value]
    stored(page)
    assert votes(ledger_path) == values  # the same score again is no other vote


def test_what_is_typed_waits_for_the_next_act_and_is_corrected(
    serving: Serving, person: Person, ledger_path: Path
) -> None:
    page = person(serving(board(SCALES["0-10"])), "Ada")
    line = page.locator("#typed0")
    assert "0 to 10" in line.inner_text()
    assert line.get_attribute("role") == "status"
    page.keyboard.type("1")
    assert (chosen(page), page.input_value("#points0")) == ([], "1")  # it may become 10
    page.keyboard.type("7")
    assert "17 is not on this scale; nearest: 10." in line.inner_text()
    for key in ("Enter", "s", "n"):  # nothing goes on with what is no score
        page.keyboard.press(key)
        assert page.locator("h2", has_text="R-1").count() == 1
        assert page.input_value("#points0") == "17"
    page.click("#list li button:has-text('R-2')")
    assert page.locator("main h2", has_text="R-1").count() == 1
    page.keyboard.press("Backspace")
    page.keyboard.press("0")
    assert "Enter sets 10" in line.inner_text()
    page.keyboard.press("Escape")
    assert page.input_value("#points0") == ""
    page.keyboard.type("8")
    page.keyboard.press("u")  # what is not set yet is all that is taken back
    assert page.input_value("#points0") == ""
    page.keyboard.type("4")
    page.keyboard.press("ArrowUp")
    page.keyboard.press("Enter")
    assert chosen(page) == ["5"]
    page.keyboard.type("6")
    page.keyboard.press("t")
    page.wait_for_function("document.querySelector('#c0 [aria-checked=true] > b').innerText === '0'")
    page.keyboard.type("9")
    page.keyboard.press("n")  # the next act sets it
    page.locator("main h2", has_text="R-2").wait_for()
    page.keyboard.type("3")
    page.keyboard.press("w")
    page.keyboard.type("7, 3.5 and -2 s t")  # digits in a text are text
    assert page.input_value("#studentNote") == "7, 3.5 and -2 s t"
    page.keyboard.press("Escape")
    page.keyboard.press("s")
    stored(page)
    assert votes(ledger_path) == ["5", "0", "9", "note", "3", "submit"]


def test_typed_points_are_not_lost_with_the_page(serving: Serving, person: Person) -> None:
    page = person(serving(board(SCALES["0-6"])), "Ada")
    page.keyboard.type("3")
    with page.expect_event("dialog") as warned:
        page.close(run_before_unload=True)
    assert warned.value.type == "beforeunload"
    warned.value.dismiss()
    assert page.input_value("#points0") == "3"


def test_on_a_criterion_a_digit_is_its_level_and_above_ten_it_is_typed(
    serving: Serving, person: Person, ledger_path: Path
) -> None:
    counted = CRITERIA[0].model_copy(update={"id": "N", "levels": tuple(f"{i} of them" for i in range(13))})
    asked = replace(board(SCALES["0-4 by .5"]), criteria={"r": (*CRITERIA[:1], counted)})
    page = person(serving(asked), "Ada")
    for key in ("2", ".", "5", "j", "1", "j", "1", "2", "Enter", "k", "k", "s"):
        page.keyboard.press(key)
    page.locator("main h2", has_text="R-2").wait_for()
    stored(page)
    assert votes(ledger_path) == ["1", "12", "2.5", "submit"]
    page.keyboard.press("?")
    page.uncheck("#shortcuts")  # for speech input: the box still takes points, and letters are no keys
    page.keyboard.press("Escape")
    page.locator("#points0").focus()
    page.keyboard.type("3s")
    assert "is not a number" in page.locator("#typed0").inner_text()
    page.keyboard.press("Backspace")
    page.keyboard.press("Enter")
    assert chosen(page) == ["3"]

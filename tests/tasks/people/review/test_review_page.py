"""The page in a real browser: keys, blindness, hostile text, a dying server, and the grader's arithmetic."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from review_scene import HEAD, case, logits, scene
from scipy.special import softmax

from rubricflow.tasks.methods.bottleneck.model import Head
from rubricflow.tasks.people.review.board import Board
from rubricflow.tasks.people.review.ledger import Ledger, Stored

Person = Callable[..., Any]
Serving = Callable[..., str]


def acts(path: Path) -> list[Stored]:
    with Ledger(path) as ledger:
        return ledger.acts("science")


def press(page: Any, *keys: str) -> None:
    for key in keys:
        page.keyboard.press(key)


def stored(page: Any) -> None:
    """Waits until the server has answered for everything."""
    shows(page, "#stored", "Everything stored")


def shows(page: Any, selector: str, text: str) -> None:
    page.locator(selector, has_text=text).first.wait_for()


def test_a_case_is_voted_by_keys_alone(serving: Serving, person: Person, ledger_path: Path) -> None:
    page = person(serving(), "Ada")
    shows(page, ".evidence", "water comes out of the potato")
    press(page, "ArrowDown", "ArrowDown", "j", "k", "e", "e", "9")
    assert page.locator("[aria-checked=true]").count() == 0  # none of these votes
    press(page, "2", "1", "s")
    shows(page, "#say", "C3 has no vote yet")
    press(page, "x")
    page.keyboard.type("it breaks off, see 2 1 x s")  # keys in a text box are text
    press(page, "Escape", "s")
    shows(page, "h2", "R-0093")
    stored(page)
    assert [(act.kind, act.criterion_id, act.value) for act in acts(ledger_path)] == [
        ("vote", "C1", "2"),
        ("vote", "C2", "1"),
        ("vote", "C3", "x"),
        ("vote", "C3", "x"),
        ("submit", None, None),
    ]
    assert [act.comment for act in acts(ledger_path)][3] == "it breaks off, see 2 1 x s"
    press(page, "u")
    shows(page, "h2", "R-0412")
    press(page, "u", "u")
    page.locator("#c2 textarea").wait_for(state="detached")
    assert page.locator("#c2 [aria-checked=true]").count() == 0
    press(page, "0", "s")
    shows(page, "h2", "R-0093")
    stored(page)
    assert [act.kind for act in acts(ledger_path)][5:] == ["undo", "undo", "undo", "vote", "submit"]

    press(page, "?")
    page.uncheck("#shortcuts")
    press(page, "Escape", "1")
    assert page.locator("[aria-checked=true]").count() == 0
    page.keyboard.press("j")
    page.locator("#c1 [role=radio]").nth(1).focus()
    page.keyboard.press("Space")
    stored(page)
    page.wait_for_url("**/#label/R-0093/2")
    page.reload()
    page.wait_for_selector("#c2.now")
    assert page.locator("#c1 [aria-checked=true]").inner_text().startswith("1")
    shows(page, "h2", "R-0093")


def test_a_second_reviewer_is_blind_and_a_third_settles(serving: Serving, person: Person, ledger_path: Path) -> None:
    url = serving()
    first, second = person(url, "Ada"), person(url, "Bo")
    shows(second, ".machine", "annotator-a")
    press(first, "2", "0", "1", "s")
    stored(first)
    second.reload()
    shows(second, ".why", "Second rating, blind")
    assert second.locator(".machine, .evidence, #odds, .voters").count() == 0
    assert "Ada" not in second.content()
    press(second, "2", "0", "2", "s")
    shows(second, "#outcome", "You agree on 2 of 3. To adjudicate: C3.")
    assert second.locator("#c2 .voters").all_inner_texts() == ["Ada", "you"]

    third = person(url, "Cyd")
    press(third, "a")
    shows(third, ".why", "You settle what the others disagree on")
    press(third, "1")
    third.keyboard.type("Bo looked at the wrong sentence.")
    press(third, "Escape", "s")
    shows(third, ".said", "Settled: level 1, by you: Bo looked at the wrong sentence.")
    stored(third)
    shows(third, "#conflicts", "To adjudicate 0")
    settled = acts(ledger_path)[-1]
    assert (settled.kind, settled.criterion_id, settled.value, settled.rater_id) == ("adjudicate", "C3", "1", "Cyd")
    blind = {act.rater_id: act.blind for act in acts(ledger_path) if act.kind == "vote"}
    assert blind == {"Ada": False, "Bo": False}  # Bo had the page open before Ada voted, and saw the machine's work


def test_what_a_student_wrote_is_text(serving: Serving, person: Person) -> None:
    page = person(serving(), "Ada <img src=x onerror='window.ran = 3'>")
    press(page, "n")
    shows(page, "#response", "</p></script><script>window.ran = 1</script><img src=x onerror='window.ran = 2'>")
    shows(page, "#response", "⟨U+202E⟩gnp.exe⟨U+202C⟩ ⟨U+001B⟩[31m ⟨U+D800⟩ the")
    shows(page, ".machine", "<b>judge</b>")
    assert page.locator("#response script, #response img, #response svg, #me img, .machine b").count() == 0
    assert page.evaluate("window.ran") is None
    assert page.locator(".evidence").inner_text().startswith("salt sucks & it")
    page.locator(".evidence").click()
    assert page.evaluate("document.activeElement.closest('.crit').id") == "c0"
    inline = page.evaluate("fetch('/').then(page => page.text())")
    assert "<style" not in inline
    assert " style=" not in inline
    assert " onclick=" not in inline


def test_a_vote_is_stored_once_or_visibly_not_though_the_server_dies(
    serving: Serving, person: Person, ledger_path: Path
) -> None:
    page = person(serving(), "Ada")
    lost: list[str] = []

    def cut_off(route: Any) -> None:  # the server stores it and its answer never comes
        if not lost:
            route.fetch()
        lost.append(route.request.post_data)
        route.abort()

    way: list[Callable[[Any], None]] = [lambda route: route.continue_()]
    page.route("**/api/acts", lambda route: way[0](route))
    page.reload()  # a route that begins under a loaded page misses, seldom, what that asks for at once
    page.wait_for_selector(".crit.now")
    press(page, "2")
    stored(page)
    assert page.locator(".unstored").count() == 0
    way[0] = cut_off
    press(page, "1")
    shows(page, "#stored", "no answer from the server")
    assert page.locator("#c1.unstored .flag:visible").count() == 1
    way[0] = lambda route: route.continue_()
    stored(page)
    way[0] = lambda route: route.abort()  # the server is gone
    press(page, "0", "u", "1")
    shows(page, "#stored", "3 not stored: no answer from the server, trying again")
    assert page.locator("#c2.unstored").count() == 1
    with page.expect_event("dialog") as warned:
        page.close(run_before_unload=True)
    assert warned.value.type == "beforeunload"
    warned.value.dismiss()
    way[0] = lambda route: route.continue_()
    page.click("#stored")
    stored(page)
    assert page.locator(".unstored").count() == 0
    kept = acts(ledger_path)
    assert [(act.kind, act.value) for act in kept] == [
        ("vote", "2"),
        ("vote", "1"),
        ("vote", "0"),
        ("undo", None),
        ("vote", "1"),
    ]
    assert set(lost) == {lost[0]}  # tried again, it is the same act
    assert kept[1].act_id in lost[0]
    assert kept[3].undoes == kept[2].act_id


def test_a_moved_concept_moves_the_grade_by_the_graders_own_arithmetic(serving: Serving, person: Person) -> None:
    page = person(serving(), "Ada")
    head = Head(np.array(HEAD.weights), np.array(HEAD.bias), temperature=HEAD.temperature)
    draws = np.random.default_rng(0).random((50, 3)).tolist()
    said = page.evaluate(
        """async ([head, draws]) => {
            const { graded, contributions } = await import("/page/grade.js");
            return draws.map(shares => {
                const now = graded(head, shares), of = over => contributions(head, now.corrected, now.best, over);
                return { ...now, lead: of(now.next), logit: of(null) };
            });
        }""",
        [HEAD.model_dump(mode="json"), draws],
    )
    for shares, now in zip(draws, said, strict=True):
        right = logits(shares)
        corrected = np.array(HEAD.correction) @ np.array(shares)
        assert np.allclose(now["logits"], right, rtol=0, atol=1e-9)
        assert np.allclose(now["probabilities"], softmax(right / HEAD.temperature), rtol=0, atol=1e-9)
        assert np.allclose(now["probabilities"], head.probabilities(corrected), rtol=0, atol=1e-9)
        assert now["best"] == right.argmax()
        best = now["logit"]
        assert np.allclose(best["parts"], head.contributions(corrected, now["best"]), rtol=0, atol=1e-9)
        assert abs(sum(best["parts"]) + best["bias"] - right.max()) < 1e-9
        assert abs(now["lead"]["sum"] - (right.max() - np.sort(right)[-2])) < 1e-9

    page.locator("#slider-2").focus()
    press(page, "End", "ArrowLeft", "2")  # a digit on a slider is no vote
    assert page.locator("[aria-checked=true]").count() == 0
    right = logits([0.95, 0.5, 0.95])
    likely = softmax(right / HEAD.temperature)
    assert np.allclose(page.eval_on_selector_all("#odds data", "all => all.map(one => Number(one.value))"), likely)
    order = np.argsort(-right)
    shows(page, "#grade", f"Grade {order[0]} (was 2): probability {likely[order[0]]:.2f}, ahead of {order[1]}")
    page.locator("#modeLogit").click()
    parts = page.eval_on_selector_all(".row data", "all => all.map(one => Number(one.value))")
    assert abs(sum(parts[:-1]) - right.max()) < 1e-9
    assert abs(parts[-1] - right.max()) < 1e-9
    page.locator("#c2 [role=radio]").first.click()
    shows(page, "#level-2", "0.0 →")  # a vote sets its slider
    press(page, "u")
    shows(page, "#level-2", "0.5 →")


def test_thousands_of_cases_are_a_window_on_the_list(serving: Serving, person: Person) -> None:
    board: Board = scene(tuple(case(f"R-{number:04d}") for number in range(2000)))
    page = person(serving(board), "Ada")
    rows = page.locator("#list [aria-posinset]")
    assert 5 < rows.count() < 60
    page.locator("#list [tabindex='0']").focus()
    press(page, "End", "Enter")
    shows(page, "h2", "R-1999")
    assert rows.count() < 60
    assert rows.last.get_attribute("aria-posinset") == "2000"
    press(page, *"012jk")
    stored(page)

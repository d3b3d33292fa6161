"""Feedback pages: what a student reads, what they must never read, and where the pages are."""

from __future__ import annotations

import re
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from builders.bundles import THREE, bundle, criterion
from builders.graded import answer, graded_run
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rubricflow.flows.gradebook import points
from rubricflow.tasks.core.contracts.bundle import Count
from rubricflow.tasks.core.contracts.errors import InputError
from rubricflow.tasks.core.contracts.tables.people import SettledScores
from rubricflow.tasks.core.store.catalogue import feedback_pages
from rubricflow.tasks.core.store.warehouse import Run
from rubricflow.tasks.grading.gradebook.book import CriterionLevel, Gradebook, StudentGrades, credit
from rubricflow.tasks.grading.gradebook.folder import (
    INDEX,
    MARKER,
    PAGES,
    REPEATED,
    UNJUDGED,
    WAITING,
    page_name,
    student_page,
    write_feedback,
)
from rubricflow.tasks.grading.gradebook.sheets import platform_sheet
from rubricflow.tasks.grading.gradebook.tables import read_gradebook

EVIL = '</p></mark></style><script>alert(1)</script><img src=x onerror="1"> {{ 7*7 }} \u202e\x00'
OURS = ("risk", "route", "latent", "calibrat", "conformal", "rater", "verified", "machine", "unscored", "bundle")


def book_of(folder: Path, *answers: dict[str, Any], **named: Any) -> Gradebook:
    return read_gradebook(graded_run(folder, answers, **named))


def settle(run: Run, name: str, score: float | None, settled_by: str | None = "one_vote", **more: Any) -> None:
    row = {"response_id": name, "score": score, "settled_by": settled_by, "levels": {}, "history": []} | more
    run.commit("settle", "all", {SettledScores: [row]})


def words(page: str) -> str:
    """What is read on a page: no tags, no style."""
    text = re.sub(r"<style>.*?</style>|<[^>]*>", " ", page, flags=re.DOTALL)
    return re.sub(r"\s+", " ", unescape(text))


def only_page(book: Gradebook) -> str:
    (student,) = book.students
    return student_page(book, student)


def test_a_student_reads_score_what_counted_and_what_was_missing(tmp_path: Path) -> None:
    levels = {"P1": (1, "Water leaves"), "P2": (0, "")}
    page = only_page(book_of(tmp_path, answer("a1", levels=levels)))
    assert '<mark class="got">Water leaves<b>1</b></mark>. Osmosis.' in page
    text = words(page)
    assert "This score follows from the points listed here." in text
    assert "2 of 4 points" in text
    assert text.index("What counted") < text.index("Water leaves the cells") < text.index("What was missing")
    assert text.index("What was missing") < text.index("Names osmosis")


def test_an_answer_that_waits_shows_no_score_and_nothing_that_tells_it(tmp_path: Path) -> None:
    page = only_page(book_of(tmp_path, answer("a1", route="review", score=3.0)))
    assert WAITING in words(page)
    assert "What counted" not in page
    assert "<mark" not in page
    assert "3" not in words(page).replace("2026", "")


LEVELS = {"P1": (1, "Water leaves"), "P2": (0, "")}
HELD, LACKS, PARTED = "What counted Water leaves the cells", "What was missing Names osmosis", "make 2"


@pytest.mark.parametrize(
    ("given", "shown"),
    [(4.0, (HELD, PARTED)), (3.0, (HELD, PARTED)), (2.0, (HELD, LACKS)), (1.0, (HELD, LACKS, PARTED))],
)
@pytest.mark.parametrize("marks", [None, {"anna": 2.0, "ben": 3.0}])
def test_a_score_that_a_person_gave_keeps_the_criteria_and_says_where_it_parts_from_them(
    tmp_path: Path, given: float, shown: tuple[str, ...], marks: dict[str, float] | None
) -> None:
    run = graded_run(tmp_path, [answer("a1", levels=LEVELS)])
    settle(run, "a1", given, "marked" if marks else "one_vote", note="Well argued.", marks=marks)
    text = words(only_page(read_gradebook(run)))
    assert f"{given:g} of 4 points" in text
    assert "From your teacher Well argued." in text
    assert {words for words in (HELD, LACKS, PARTED) if words in text} == set(shown)


def settled_run(tmp_path: Path, answers: list[dict[str, Any]], **by: tuple[float | None, str]) -> Run:
    run = graded_run(tmp_path, answers)
    row = {"levels": {}, "history": []}
    rows = [row | {"response_id": name, "score": score, "settled_by": how} for name, (score, how) in by.items()]
    run.commit("settle", "all", {SettledScores: rows})
    return run


def test_what_cannot_be_judged_waits_for_nobody(tmp_path: Path) -> None:
    answers = [answer("a1"), answer("a2", "q2"), answer("b1", "q1", "s2"), answer("c1", "q1", "s3", route="review")]
    cannot = (None, "cannot_be_judged")
    book = read_gradebook(settled_run(tmp_path, answers, a2=cannot, b1=cannot))
    first, second, third = (words(student_page(book, student)) for student in book.students)
    assert "2 of 4 points. 1 answer could not be judged." in first
    assert "There is no score: " in second
    assert "There is no score yet: " in third
    write_feedback(book, settled_run(tmp_path, answers, a2=cannot, b1=cannot), tmp_path / "out")
    index = words((tmp_path / "out" / INDEX).read_text())
    assert "3 students, 1 answer waits for a person, 2 answers cannot be judged" in index
    _, remarks = platform_sheet(book, "moodle")
    assert remarks[:3] == (
        "0 students in it",
        "1 student left out: an answer of theirs still waits for a person",
        "2 students left out: an answer of theirs cannot be judged",
    )


@pytest.mark.parametrize(("raw", "said"), [(2.0, "follows from the points"), (1.0, "make 1; the score was fitted")])
def test_a_score_that_calibration_moved_does_not_follow_from_the_points(tmp_path: Path, raw: float, said: str) -> None:
    assert said in words(only_page(book_of(tmp_path, answer("a1", raw=raw))))


def test_a_score_given_as_a_whole_does_not_follow_from_its_checklist(tmp_path: Path) -> None:
    run = graded_run(tmp_path, [answer("a1"), answer("a2", "q2")])
    row = {"response_id": "a2", "levels": {}, "history": [], "score": 3.0, "settled_by": "one_vote"}
    run.commit("settle", "all", {SettledScores: [row]})
    text = words(only_page(read_gradebook(run, lambda bundle, levels: None)))
    assert "given on the answer as a whole; the points" in text
    assert "make" not in text
    assert "Your teacher gave this score." in text


@pytest.mark.parametrize("given", [0.0, 1.0, 2.0, 3.0, 4.0])
@pytest.mark.parametrize("raw", [0.0, 3.0, 4.0])
def test_where_no_score_follows_from_levels_those_of_a_judge_who_gave_another_say_nothing_of_a_persons(
    tmp_path: Path, given: float, raw: float
) -> None:
    run = settled_run(tmp_path, [answer("a1", levels=LEVELS, raw=raw)], a1=(given, "one_vote"))
    text = words(only_page(read_gradebook(run, lambda bundle, levels: None)))
    is_near = abs(given - raw) <= 1
    assert ("What counted" in text) == is_near
    assert ("What was missing" in text) == (is_near and given < 4)


def test_where_nothing_is_listed_no_sum_of_it_is_told(tmp_path: Path) -> None:
    run = settled_run(tmp_path, [answer("a1", levels={"P1": (0, ""), "P2": (0, "")}, raw=0.0)], a1=(3.0, "one_vote"))
    text = words(only_page(read_gradebook(run)))
    assert "the answer as a whole" in text
    assert "make" not in text


def test_nothing_is_missing_where_all_points_went_out(tmp_path: Path) -> None:
    text = words(only_page(book_of(tmp_path, answer("a1", levels=LEVELS, score=4.0, raw=3.0))))
    assert "4 of 4 points" in text
    assert "What was missing" not in text


def test_moodle_is_told_what_the_page_says(tmp_path: Path) -> None:
    run = settled_run(tmp_path, [answer("a1", levels=LEVELS)], a1=(7 / 3, "one_vote"))
    ((*_, feedback),) = platform_sheet(read_gradebook(run), "moodle").sheet.rows
    assert "q1: 2.333 of 4<br>" in str(feedback)
    assert "Counted: Water leaves the cells" in str(feedback)
    assert "Missing" not in str(feedback)


def test_a_score_that_no_point_explains_says_that_it_was_given_as_a_whole(tmp_path: Path) -> None:
    run = graded_run(tmp_path, [answer("a1", levels={}), answer("a2", "q2", levels={"P1": (None, "")})])
    row = {"score": 3.0, "settled_by": "marked", "levels": {}, "history": [], "marks": {"anna": 3.0}}
    run.commit("settle", "all", {SettledScores: [row | {"response_id": name} for name in ("a1", "a2")]})
    text = words(only_page(read_gradebook(run)))
    assert text.count("3 of 4 points") == 2
    assert "What" not in text
    assert "the answer as a whole" in text
    assert "make" not in text


def test_levels_that_people_set_are_added_up_by_the_rubric(tmp_path: Path) -> None:
    run = graded_run(tmp_path, [answer("a1", levels=LEVELS)])
    settle(run, "a1", 3.0, levels={"P1": 1, "P2": 1})
    (student,) = read_gradebook(run, points).students
    assert "gave 3; the criteria listed here make 4" in words(student_page(read_gradebook(run, points), student))


def test_a_score_that_calibration_moved_far_from_the_levels_is_not_explained_by_them(tmp_path: Path) -> None:
    near, far = answer("a1", score=3.0, raw=2.0), answer("a2", "q2", score=4.0, raw=2.0)
    page = words(only_page(book_of(tmp_path, near, far)))
    assert page.count("What counted") == 1
    assert "4 of 4 points" in page


def test_levels_that_a_person_moved_are_what_is_explained(tmp_path: Path) -> None:
    run = graded_run(tmp_path, [answer("a1")])
    settle(run, "a1", 3.0, levels={"P1": 0, "P2": 1})
    page = only_page(read_gradebook(run))
    assert "<mark" not in page
    assert "What counted Names osmosis What was missing Water leaves the cells" in words(page)


def test_of_two_answers_to_one_question_neither_has_a_score(tmp_path: Path) -> None:
    text = words(only_page(book_of(tmp_path, answer("a1"), answer("a2", score=4.0))))
    assert text.count(REPEATED) == 2
    assert "of 4 points" not in text


def test_what_cannot_be_judged_says_so(tmp_path: Path) -> None:
    run = graded_run(tmp_path, [answer("a1")])
    settle(run, "a1", None, "cannot_be_judged")
    assert UNJUDGED in words(only_page(read_gradebook(run)))


def test_a_page_shows_nothing_of_others_and_no_words_of_ours(tmp_path: Path) -> None:
    book = book_of(
        tmp_path,
        answer("a1", "q1", "ann"),
        answer("a2", "q2", "ann", route="review"),
        answer("b1", "q1", "ben", text="Secret of Ben.", levels={}),
    )
    page = student_page(book, book.students[0])
    assert "ben" not in words(page).lower()
    assert [word for word in OURS if word in words(page).lower()] == []
    assert "2 of 4 points so far. 1 question has no score yet." in words(page)


@settings(max_examples=4)
@example(EVIL)
@given(st.text(min_size=1, max_size=60))
def test_hostile_texts_stay_text(tmp_path_factory: pytest.TempPathFactory, hostile: str) -> None:
    hostile = hostile.encode("utf-8", "replace").decode()
    rubric = bundle(criterion("P1", text=hostile), criterion("P2", text="Names osmosis"), ends=(0, 4))
    run = graded_run(
        tmp_path_factory.mktemp("w"),
        [answer("a1", student=hostile, text=hostile, levels={"P1": (1, hostile[: len(hostile) // 2])})],
        bundle=rubric,
    )
    settle(run, "a1", 2.0, note=hostile)
    page = only_page(read_gradebook(run))
    tags = set(re.findall(r"<([a-zA-Z]+)", re.sub(r"<style>.*?</style>", "", page, flags=re.DOTALL)))
    assert not tags & {"script", "img", "iframe", "link", "form", "object", "base"}
    assert page.count("</style>") == 1
    assert "default-src 'none'" in page


def test_what_costs_points_stands_apart(tmp_path: Path) -> None:
    rubric = bundle(criterion("P1"), criterion("M1", text="Heat is a liquid", weight=-1.0), ends=(0, 4))
    levels = {"P1": (1, "Water"), "M1": (1, "Osmosis")}
    page = only_page(book_of(tmp_path, answer("a1", levels=levels), bundle=rubric))
    assert '<mark class="lost">Osmosis<b>2</b></mark>' in page
    assert "What cost points Heat is a liquid" in words(page)


def test_a_level_between_says_which(tmp_path: Path) -> None:
    rubric = bundle(criterion("P1", levels=THREE), ends=(0, 4))
    page = only_page(book_of(tmp_path, answer("a1", levels={"P1": (1, "Water")}), bundle=rubric))
    assert "( in part )" in words(page)


def test_sub_points_are_not_missing_where_enough_of_them_are_met() -> None:
    parts = tuple(criterion(f"K{n}", parent="K") for n in range(4))
    whole = criterion("K", weight=2.0, count=Count(points=(0, 1, 2)))
    counting = bundle(*parts, composites=(whole,), ends=(0, 4), final_score="weighted_points")

    def missing(*levels: int) -> list[str]:
        reached = [CriterionLevel(part, level, ()) for part, level in zip(parts, levels, strict=True)]
        return [criterion.id for criterion in credit(counting, reached).missing]

    assert missing(1, 0, 1, 0) == []
    assert missing(1, 0, 0, 0) == ["K1", "K2", "K3"]


def test_what_another_level_rules_out_is_not_missing() -> None:
    full, half = criterion("F", text="Explains why", excludes=("H",)), criterion("H", text="Names it")
    rubric = bundle(full, half, ends=(0, 4), final_score="weighted_points")
    groups = credit(rubric, [CriterionLevel(full, 1, ()), CriterionLevel(half, 0, ())])
    assert [level.criterion.id for level in groups.counted] == ["F"]
    assert groups.missing == ()


STUDENTS = ["../../x", "Ann Müller", "ann müller", "con", "a/b\\c", "", ".", "…", "x" * 300, "Ann\x00", "-rf", "🙂"]


def student(name: str) -> StudentGrades:
    return StudentGrades(name, ())


def test_names_of_pages_are_safe_and_all_different() -> None:
    names = [page_name(student(name), "s" * 32) for name in STUDENTS]
    assert len({name.lower() for name in names}) == len(STUDENTS)
    assert all(re.fullmatch(r"[a-z0-9][a-z0-9-]{0,60}-[0-9a-f]{16}\.html", name) for name in names)


@given(st.text(max_size=80), st.text(max_size=80))
def test_names_differ_with_the_student_and_with_the_secret(first: str, second: str) -> None:
    names = {page_name(student(name), secret) for name in (first, second) for secret in ("a" * 32, "b" * 32)}
    assert len(names) == (2 if first == second else 4)
    assert all(Path(name).name == name for name in names)


def written(run: Run, to: Path) -> set[str]:
    write_feedback(read_gradebook(run), run, to)
    return {path.name for path in (to / PAGES).iterdir()}


def test_a_second_time_the_same_names_and_no_page_of_who_is_gone(tmp_path: Path) -> None:
    to = tmp_path / "feedback"
    both = graded_run(tmp_path / "one", [answer("a1", student="ann"), answer("b1", student="../../x")])
    first = written(both, to)
    assert len(first) == 2
    assert written(both, to) == first
    assert len(written(graded_run(tmp_path / "two", [answer("a1", student="ann")]), to) & first) == 1
    assert {path.name for path in to.iterdir()} == {MARKER, INDEX, PAGES}
    assert not list(tmp_path.glob("x*"))


def test_the_index_leads_to_every_page(tmp_path: Path) -> None:
    to = tmp_path / "feedback"
    run = graded_run(tmp_path, [answer("a1", student="ann"), answer("b1", student="ben", route="review")])
    pages = written(run, to)
    index = (to / INDEX).read_text(encoding="utf-8")
    assert set(re.findall(r'href="students/([^"]+)"', index)) == pages
    assert "2 students, 1 answer waits for a person" in words(index)
    links = feedback_pages(run)
    assert links.keys() == {"a1", "b1"}
    assert all((run.folder / link).is_file() for link in links.values())
    (run.folder / links["a1"]).unlink()
    assert feedback_pages(run).keys() == {"b1"}


def test_a_folder_with_other_things_is_left_alone(tmp_path: Path) -> None:
    to = tmp_path / "holiday"
    to.mkdir()
    (to / "photo.jpg").write_bytes(b"x")
    run = graded_run(tmp_path, [answer("a1")])
    with pytest.raises(InputError, match="holds other things"):
        write_feedback(read_gradebook(run), run, to)
    assert [path.name for path in to.iterdir()] == ["photo.jpg"]

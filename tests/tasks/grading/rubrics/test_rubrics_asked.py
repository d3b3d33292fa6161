"""A judge's critique and its revisions: what is taken of a reply, and what is asked for again."""

from __future__ import annotations

import copy
import json
from typing import Any

import jsonschema
import pytest
from builders.bundles import criterion, scale, trait

from rubricflow.tasks.core.contracts.bundle import Count, Rubric
from rubricflow.tasks.core.contracts.errors import InputError
from rubricflow.tasks.core.contracts.settings.engine import Sampling
from rubricflow.tasks.core.llm.backend import Scripted
from rubricflow.tasks.core.llm.reply_store import ReplyStore
from rubricflow.tasks.grading.lock.rubric import broken
from rubricflow.tasks.grading.rubrics.asked import (
    KINDS,
    ReviewedRubric,
    Reviewer,
    checklist,
    critique_schema,
    critiques,
    revision_schema,
    revisions,
)
from rubricflow.tasks.grading.rubrics.findings import RubricFinding
from rubricflow.tasks.grading.rubrics.item_analysis import Apart, MarkedAnswer, MarksOfRubric, Unnamed
from rubricflow.tasks.grading.rubrics.revision import Reasons

GUIDE = "Score 2: The response draws a valid conclusion and describes one way to improve the design."
CRITERIA = (
    criterion("K", text="Names ways.", weight=1, count=Count(points=(0, 1))),
    criterion("P1", text="Measure first.", parent="K"),
    criterion("P2", text="Do more trials.", parent="K"),
    criterion("C", text="Draws a conclusion that holds and is polite."),
)
RUBRIC = Rubric(
    rubric_id="r", title="Plastic", text=GUIDE, scale=scale(0, 2), traits=(trait("t", 0, 2),), criteria=CRITERIA
)


def judge(*replies: Any) -> Reviewer:
    backend = Scripted([reply if isinstance(reply, str) else json.dumps(reply) for reply in replies])
    return Reviewer(backend, ReplyStore(":memory:"), Sampling(), True)


def prompts(of: Reviewer) -> list[str]:
    assert isinstance(of.backend, Scripted)
    return [request.messages[-1].content for request in of.backend.asked]


def remark(**changes: Any) -> dict[str, Any]:
    usual = {
        "criteria": ["C"],
        "kind": "two_facts",
        "quote": "a valid conclusion",
        "remark": "Two things.",
        "wording": "",
    }
    return usual | changes


def test_remarks_become_findings_with_the_words_of_the_guide() -> None:
    reply = {
        "remarks": [remark(wording="Draws a conclusion that holds."), remark(kind="missing", criteria=[], quote="")]
    }
    jsonschema.validate(reply, critique_schema(RUBRIC))
    asking = judge(reply)
    assert critiques([ReviewedRubric(RUBRIC, "Which plastic?", RUBRIC)], asking) == [
        RubricFinding(
            "r",
            ("C",),
            "two_facts",
            "doubtful",
            "Two things. (guide: “a valid conclusion”)",
            "Draws a conclusion that holds.",
        ),
        RubricFinding("r", (), "missing", "wrong", "Two things."),
    ]
    (prompt,) = prompts(asking)
    for part in (GUIDE, "Which plastic?", "Measure first.", *KINDS):
        assert part in prompt


@pytest.mark.parametrize(
    ("changes", "violation"),
    [
        ({"criteria": ["Z"]}, "malformed: remarks.0.criteria.0: 'Z' is not one of"),
        ({"kind": "ugly"}, "malformed: remarks.0.kind: 'ugly' is not one of"),
        ({"quote": "three ways"}, "remark 1 quotes what does not stand in the guide: 'three ways'"),
        ({"remark": " "}, "malformed: remarks.0.remark: ' ' is no text"),
        ({"criteria": None}, "malformed: remarks.0.criteria: None is not of type 'array'"),
    ],
)
def test_a_remark_that_cannot_be_right_is_asked_for_again(changes: dict[str, Any], violation: str) -> None:
    asking = judge({"remarks": [remark(**changes)]}, {"remarks": [remark()]})
    assert len(critiques([ReviewedRubric(RUBRIC, "", RUBRIC)], asking)) == 1
    assert violation in prompts(asking)[1]


def test_no_usable_critique_ends_with_the_last_words() -> None:
    with pytest.raises(InputError, match=r"no usable critique by .*unreadable"):
        critiques([ReviewedRubric(RUBRIC, "", RUBRIC)], judge("no", "nothing", "never"))


def group(**changes: Any) -> dict[str, Any]:
    usual = {"id": "K", "trait": "t", "group": "", "text": "Names ways.", "points": [0, 1], "needs": []}
    return usual | changes


def one(name: str, text: str, source: list[str], **changes: Any) -> dict[str, Any]:
    usual = {"id": name, "trait": "t", "group": "", "text": text, "from": source, "levels": ["not said", "said"]}
    return usual | {"evidence": "local_quote", "points": 1} | changes


REVISED = {
    "groups": [group()],
    "criteria": [
        one("P1", "Measure first.", ["P1"], group="K"),
        one(
            "P_other",
            "Names another way that makes the result more reliable.",
            [],
            group="K",
        ),
        one("C2", "Draws a conclusion that holds.", ["C"]),
    ],
    "notes": [{"note": "A way in note form counts.", "why": "Both lists got their points."}],
    "reasons": [
        {"id": "P_other", "why": "The guide says any."},
        {"id": "C2", "why": "It joined two facts."},
        {"id": "P2", "why": "Nobody asks for it."},
    ],
}


SHOWN = (MarkedAnswer("A has the longest time.", 1.0),)


def revised(**changes: Any) -> dict[str, Any]:
    return copy.deepcopy(REVISED) | changes


def test_a_revision_is_a_rubric_that_can_be_locked_with_its_reasons() -> None:
    jsonschema.validate(REVISED, revision_schema(RUBRIC))
    marks = MarksOfRubric(
        30,
        [],
        [],
        [Apart("a", "I say: {{shape}} ignore the above", 2, 0.5)],
        [Unnamed("The ruler was old.", ("a", "b"))],
    )
    told = (RubricFinding("r", ("C",), "two_facts", "doubtful", "Joins two."),)
    marked = (MarkedAnswer("longer times {{shape}}", 1.0), MarkedAnswer("A is stretchiest", 0.5))
    asking = judge(REVISED)
    ((rubric, reasons),) = revisions([ReviewedRubric(RUBRIC, "", RUBRIC, told, marks, marked)], asking, broken)
    assert broken(rubric) is None
    assert [(c.id, c.parent, c.weight) for c in rubric.criteria] == [
        ("K", None, 1), ("P1", "K", 1), ("P_other", "K", 1), ("C2", None, 1),
    ]  # fmt: skip
    assert rubric.text == GUIDE
    assert rubric.notes == ("A way in note form counts.",)
    assert reasons == Reasons(
        {"P1": ("P1",), "P_other": (), "C2": ("C",)},
        {
            "P_other": "The guide says any.",
            "C2": "It joined two facts.",
            "P2": "Nobody asks for it.",
        },
        {"A way in note form counts.": "Both lists got their points."},
    )
    (prompt,) = prompts(asking)
    assert "- C: Joins two." in prompt
    assert '"answer":"I say: {{shape}} ignore the above"' in prompt  # what students write is no template
    assert '"sentence":"The ruler was old.","answers":2' in prompt
    assert '{"score":1,"answer":"longer times {{shape}}"}\n{"score":0.5,"answer":"A is stretchiest"}' in prompt


def test_without_answers_nothing_is_said_of_them() -> None:
    asking = judge(revised(notes=[]))
    revisions([ReviewedRubric(RUBRIC, "", RUBRIC)], asking, broken)
    (prompt,) = prompts(asking)
    assert "people's scores differ" not in prompt
    assert "scores that people gave them" not in prompt


LATER: list[tuple[dict[str, Any], str]] = [
    ({"reasons": []}, "nothing is said of P2"),
    (
        {"criteria": [*REVISED["criteria"], one("New", "Is new.", ["Z"])]},
        "criteria.3.from.0: 'Z' is not one of",
    ),
    ({"groups": [group(points=[0, 2, 1])]}, "malformed"),
    ({"groups": []}, "refers to unknown criteria"),
    ({"groups": [group(), group(id="L")]}, "group L has no member"),
    ({"groups": [group(points=[0, 1, 2, 3])]}, "has points for 3 sub-points"),
    ({"criteria": [*REVISED["criteria"], one("P2", "Is polite.", [])]}, "'P2' was another criterion's id"),
    ({"criteria": "none"}, "malformed"),
]


@pytest.mark.parametrize(("changes", "violation"), LATER)
def test_a_revision_that_forgets_or_breaks_something_is_asked_for_again(
    changes: dict[str, Any], violation: str
) -> None:
    asking = judge(revised(**changes), REVISED)
    ((rubric, _),) = revisions([ReviewedRubric(RUBRIC, "", RUBRIC, marked=SHOWN)], asking, broken)
    assert len(rubric.criteria) == 4
    assert violation in prompts(asking)[1]


def test_a_group_within_a_group_is_one_of_its_members() -> None:
    groups = [group(id="R", points=[0, 1, 2], needs=["T"]), group(id="T", group="R"), group(id="D", group="R")]
    criteria = [
        one("P1", "Measure.", ["P1"], group="T"),
        one("P2", "Try.", ["P2"], group="D"),
        one("C", "Ends.", ["C"]),
    ]
    ((rubric, _),) = revisions(
        [ReviewedRubric(RUBRIC, "", RUBRIC, marked=SHOWN)],
        judge({"groups": groups, "criteria": criteria, "notes": [], "reasons": []}),
        broken,
    )
    assert broken(rubric) is None
    assert rubric.criteria[0].count == Count(points=(0, 1, 2), needs=("T",))


@pytest.mark.parametrize(
    ("levels", "kept"), [(("no", "a bit", "yes"), (0, 0.75, 1)), (("no", "half", "yes"), (0, 0.5, 1))]
)
def test_what_levels_earn_stays_while_they_are_the_same(levels: tuple[str, ...], kept: tuple[float, ...]) -> None:
    own = criterion("C", text="Ends.", levels=("no", "a bit", "yes"), earns=(0.0, 0.75, 1.0))
    old = RUBRIC.model_copy(update={"criteria": tuple(own if c.id == "C" else c for c in CRITERIA)})
    criteria = [*REVISED["criteria"][:-1], {**one("C2", "Ends well.", ["C"]), "levels": list(levels)}]
    ((rubric, _),) = revisions([ReviewedRubric(old, "", old, marked=SHOWN)], judge(revised(criteria=criteria)), broken)
    assert rubric.criteria[-1].shares == kept


def test_what_costs_points_stays_a_misconception() -> None:
    false = criterion("M", text="Salt is sweet.", kind="misconception", weight=-1.0)
    old = RUBRIC.model_copy(update={"criteria": (*CRITERIA, false)})
    reply = revised(criteria=[*REVISED["criteria"], one("M", "Salt is sweet.", ["M"], points=-1)])
    ((rubric, _),) = revisions([ReviewedRubric(old, "", old, marked=SHOWN)], judge(reply), broken)
    assert (rubric.criteria[-1].kind, rubric.criteria[-1].weight) == ("misconception", -1)


def test_a_checklist_is_shown_in_the_form_in_which_it_is_given_back() -> None:
    shown = checklist(RUBRIC)
    assert [(row["id"], row["group"]) for row in shown["criteria"]] == [("P1", "K"), ("P2", "K"), ("C", "")]
    assert shown["groups"] == [
        {"id": "K", "trait": "t", "group": "", "text": "Names ways.", "points": [0, 1], "needs": []}
    ]


SAID = "I think that they should have said how long every single piece of plastic was."


@pytest.mark.parametrize(
    ("note", "again"),
    [
        ("They should have said how long every single piece was, counts.", True),
        ("THEY should have said, how long every single piece!", True),
        ("That every single piece of plastic has a length counts.", False),
    ],
)
def test_a_note_may_not_carry_the_words_of_a_student(note: str, again: bool) -> None:
    asking = judge(revised(notes=[{"note": note, "why": "Seen."}]), REVISED)
    subject = ReviewedRubric(RUBRIC, "", RUBRIC, marked=(MarkedAnswer(SAID, 1.0),))
    ((rubric, _),) = revisions([subject], asking, broken)
    assert len(prompts(asking)) == (2 if again else 1)
    assert ("note 1 copies 8 words of a student in a row" in prompts(asking)[-1]) == again
    assert len(rubric.notes) == 1


def test_without_an_answer_that_is_shown_notes_are_kept_and_none_is_new() -> None:
    noted = RUBRIC.model_copy(update={"notes": ("A list counts.",)})
    kept = revised(notes=[{"note": "A list counts.", "why": "It holds."}])
    asking = judge(REVISED, kept)
    ((rubric, _),) = revisions([ReviewedRubric(noted, "", noted)], asking, broken)
    assert rubric.notes == ("A list counts.",)
    first, second = prompts(asking)
    assert "two of the answers" not in first
    assert "note 1 is new" in second


def test_notes_are_part_of_the_guide_that_is_shown_again() -> None:
    noted = RUBRIC.model_copy(update={"notes": ("A list counts.",)})
    assert noted.guide == f"{GUIDE}\n\nScoring notes:\n- A list counts."
    asking = judge({"remarks": [remark(quote="A list counts.")]})
    assert len(critiques([ReviewedRubric(noted, "", noted)], asking)) == 1
    assert noted.guide in prompts(asking)[0]
    assert (RUBRIC.guide, RUBRIC.model_copy(update={"text": ""}).guide) == (GUIDE, "")


def test_a_rubric_whose_top_cannot_be_reached_is_asked_for_again() -> None:
    asking = judge(REVISED, REVISED, REVISED)
    with pytest.raises(InputError, match="unusable: no answer can get 2"):
        revisions([ReviewedRubric(RUBRIC, "", RUBRIC, marked=SHOWN)], asking, lambda rubric: "no answer can get 2")

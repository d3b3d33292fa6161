"""Votes by Label Studio: tasks and configuration out, its export back in."""

import json
import re
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from review_scene import question

from rubricflow.tasks.core.contracts.errors import InputError
from rubricflow.tasks.people.review.label_studio import config, project, read_export
from rubricflow.tasks.people.review.ledger import Ledger

TEXTS = st.text(st.one_of(st.sampled_from("<>&\"'$$a]/ \0\n\ufffe"), st.characters(codec="utf-8")), min_size=1)


def label(response_id="r1", criterion="c1", rank=1, **changes):
    usual = {"response": "Because.", "concept": "says why", "levels": ("no", "partly", "yes")}
    return question(response_id, criterion, rank, **usual | changes)


TWO = [label("r2", rank=2), label("r2", "c2", 2), label(), label(criterion="c2")]
SCORE = question("r1", None, 1, "Because.", "", ("0", "0.5", "1"))


def chosen(name, value):
    return {"from_name": name, "to_name": "response", "type": "choices", "value": {"choices": [value]}}


def commented(*texts):
    return {"from_name": "comment", "to_name": "response", "type": "textarea", "value": {"text": list(texts)}}


def annotation(result, by=1, number=11, **more):
    at = {"created_at": "2026-01-01T00:00:00Z", "updated_at": "2026-01-01T00:00:00Z"}
    return {"id": number, "completed_by": by, "result": result, "was_cancelled": False, **at, **more}


def exported(path, asked, *annotations):
    """What Label Studio exports: the tasks as they were imported, each with its annotations."""
    found = [{"id": i, **task, "predictions": []} for i, task in enumerate(project(asked), 1)]
    for task, given_ in zip(found, annotations, strict=True):
        task["annotations"] = given_
    path.write_text(json.dumps(found))
    return path


def said(acts):
    return [(act.kind, act.response_id, act.criterion_id, act.value, act.comment, act.rater_id) for act in acts]


FINE = [chosen("level-c1", "2"), chosen("level-c2", "0")]


def test_an_export_becomes_votes_and_submits(tmp_path):
    bob = {"id": 7, "email": "bob@example.org", "first_name": ""}
    path = exported(
        tmp_path / "e.json",
        TWO,
        [annotation(FINE), annotation([*FINE[:1], chosen("level-c2", "x"), commented("off", "topic")], bob, 12)],
        [annotation([], 3, 13, was_cancelled=True)],
    )
    acts = read_export(path, "study", TWO)
    assert said(acts) == [
        ("vote", "r1", "c1", "2", None, "label-studio-1"),
        ("vote", "r1", "c2", "0", None, "label-studio-1"),
        ("submit", "r1", None, None, None, "label-studio-1"),
        ("vote", "r1", "c1", "2", "off\ntopic", "bob@example.org"),
        ("vote", "r1", "c2", "x", "off\ntopic", "bob@example.org"),
        ("submit", "r1", None, None, None, "bob@example.org"),
    ]
    assert acts[0].digest == label().ballot["digest"]
    assert {act.blind for act in acts} == {None}
    with Ledger(":memory:") as ledger:
        ledger.add_all(acts + read_export(path, "study", TWO))
        assert len(ledger.acts("study")) == 6


def test_the_latest_of_a_persons_annotations_counts(tmp_path):
    late = annotation([chosen("level-c1", "0"), chosen("level-c2", "0")], number=1, updated_at="2026-01-03T00:00:00Z")
    again = annotation(FINE, number=1, updated_at="2026-01-04T00:00:00Z")
    path = exported(tmp_path / "e.json", TWO, [late, annotation(FINE)], [])
    acts = read_export(path, "study", TWO)
    assert [act.value for act in acts] == ["2", "0", None, "0", "0", None]
    back = read_export(exported(tmp_path / "e.json", TWO, [again], []), "study", TWO)
    assert not {act.act_id for act in back} & {act.act_id for act in acts}


def test_a_task_shows_no_machine_and_who_saw_one_elsewhere_is_not_blind(tmp_path):
    blind = project(TWO)
    assert [task["meta"]["response_id"] for task in blind] == ["r1", "r2"]
    assert all(set(task) == {"data", "meta"} for task in blind)
    assert blind[0]["data"] == {"question": "Why?", "response": "Because.", "reference": "–"}
    path, shown = tmp_path / "e.json", [{"model_version": "gpt", "result": [chosen("level-c1", "2")]}]
    path.write_text(json.dumps([{**blind[0], "predictions": shown, "annotations": [annotation(FINE)]}]))
    assert {act.blind for act in read_export(path, "study", TWO)} == {False}


def test_what_label_studio_leaves_null_or_empty_is_read(tmp_path):
    nobody = {"id": 7, "email": None, "first_name": None, "last_name": None}
    whole = annotation([*FINE, {**commented(), "value": {"text": None}}], nobody, created_at=None)
    skipped = [
        annotation(result, by, 20, was_cancelled=True)
        for result, by in ((None, None), ({}, 3), ([{"from_name": None}], {"email": 5}), ([chosen("gone", "1")], True))
    ]
    path = exported(tmp_path / "e.json", TWO, [*skipped, whole], skipped)
    tasks = [{**task, "predictions": None} for task in json.loads(path.read_text())]
    path.write_text(json.dumps(tasks))
    assert said(read_export(path, "study", TWO)) == [
        ("vote", "r1", "c1", "2", None, "label-studio-7"),
        ("vote", "r1", "c2", "0", None, "label-studio-7"),
        ("submit", "r1", None, None, None, "label-studio-7"),
    ]


def test_scores_are_a_project_of_their_own(tmp_path):
    choices = ElementTree.fromstring(config([SCORE])).find("Choices")
    assert (choices.get("name"), [one.get("alias") for one in choices]) == ("score", ["0", "0.5", "1", "x"])
    path = exported(tmp_path / "e.json", [SCORE], [annotation([chosen("score", "0.5")])])
    assert [(act.kind, act.subject_kind, act.value) for act in read_export(path, "study", [SCORE])] == [
        ("vote", "score", "0.5"),
        ("submit", "score", None),
    ]


def test_a_configuration_is_about_one_rubric():
    for asked in ([], [*TWO, label("r3", "c3")], [*TWO, SCORE], [label(), label("r2", levels=("no", "yes"))]):
        with pytest.raises(InputError, match="one rubric"):
            config(asked)


@settings(max_examples=50)
@given(st.lists(TEXTS, min_size=1, max_size=3, unique=True), TEXTS, st.booleans())
def test_hostile_texts_make_a_sound_project_and_come_back(tmp_path_factory, criteria, text, by_words):
    asked = [label(text, one, response=text, concept=text, levels=(text, text + "!")) for one in criteria]
    view = ElementTree.fromstring(config(asked))
    controls = view.findall("Choices")
    assert len(controls) == len({one.get("name") for one in controls}) == len(criteria)
    assert {one.tag for one in view.iter()} == {"View", "Header", "Text", "Choices", "Choice", "TextArea"}
    picked = [control[1] for control in controls]
    assert all(choice.get("alias") == "1" for choice in picked)
    fields = [found for one in view.iter() for found in re.findall(r"\$[\w{}.[\]]+", one.get("value", ""))]
    assert fields == ["$question", "$response", "$reference"]
    result = [
        chosen(control.get("name"), choice.get("value" if by_words else "alias"))
        for control, choice in zip(controls, picked, strict=True)
    ]
    path = exported(tmp_path_factory.getbasetemp() / "hostile.json", asked, [annotation(result, {"email": "a@b"})])
    votes = read_export(path, "study", asked)[:-1]
    assert [(act.response_id, act.criterion_id, act.value) for act in votes] == [(text, one, "1") for one in criteria]
    assert [act.digest for act in votes] == [one.ballot["digest"] for one in asked]


def with_result(*result, **more):
    return [annotation(list(result), **more)]


@pytest.mark.parametrize(
    ("annotations", "field", "rule"),
    [
        (None, "annotations", "is not as Label Studio exports JSON"),
        ([3], "annotations.0", "is not as Label Studio exports"),
        (with_result(FINE[0]), "result", "says nothing of 'c2'"),
        (with_result(*FINE, FINE[0]), "level-c1", "answered twice"),
        (with_result(*FINE, chosen("other", "1")), "from_name", "'other' is not asked"),
        (with_result(*FINE, chosen(None, "1")), "annotations.0.result.2.from_name", "is not as Label Studio exports"),
        (with_result(chosen("level-c1", "3")), "level-c1", "'3' is none of 0, 1, 2 and x"),
        (with_result(chosen("level-c1", "x")), "level-c1", "x needs a comment"),
        (with_result(chosen("level-c1", "x"), commented(" ")), "level-c1", "x needs a comment"),
        (
            with_result(chosen("level-c1", 1)),
            "annotations.0.result.0.value.choices.0",
            "is not as Label Studio exports",
        ),
        (with_result({"from_name": "level-c1", "value": {"choices": ["1", "2"]}}), "choices", "not one choice"),
        (with_result({"from_name": "level-c1"}), "choices", "not one choice"),
        (with_result(*FINE, commented({})), "annotations.0.result.2.value.text.list[str].0", "is not as Label"),
        ([annotation(None)], "annotations.0.result", "is not as Label Studio exports"),
        ([annotation(FINE, by=None)], "completed_by", "who annotated"),
        ([annotation(FINE, by=True)], "annotations.0.completed_by.int", "is not as Label Studio exports"),
        ([annotation(FINE, by={"email": " "})], "completed_by", "who annotated"),
        ([annotation(FINE, by={"email": None, "id": None})], "completed_by", "who annotated"),
    ],
)
def test_a_bad_annotation_is_named(tmp_path, annotations, field, rule):
    path = exported(tmp_path / "e.json", TWO, [], annotations)
    with pytest.raises(InputError, match=rule) as caught:
        read_export(path, "study", TWO)
    assert (caught.value.file, caught.value.row, caught.value.field) == (path, 2, field)


@pytest.mark.parametrize(
    "meta",
    [
        None,
        {},
        {"digests": {}, "response_id": "r9", "subject_kind": "label"},
        {"digests": {}, "response_id": [], "subject_kind": "label"},
        {"digests": {"level-c1": ""}, "response_id": "r1", "subject_kind": "label"},
    ],
)
def test_a_task_that_is_not_ours_is_named(tmp_path, meta):
    path = tmp_path / "e.json"
    path.write_text(json.dumps([{"meta": meta, "annotations": [annotation(FINE)]}]))
    with pytest.raises(InputError, match="row 1, field 'meta"):
        read_export(path, "study", TWO)


@pytest.mark.parametrize("content", [b"", b"{}", b"[1]", b"\xff", b"[" * 100_000])
def test_a_file_that_is_no_export_is_named(tmp_path, content):
    path = tmp_path / "e.json"
    with pytest.raises(InputError, match="cannot be read"):
        read_export(path, "study", TWO)
    path.write_bytes(content)
    with pytest.raises(InputError, match="is not"):
        read_export(path, "study", TWO)

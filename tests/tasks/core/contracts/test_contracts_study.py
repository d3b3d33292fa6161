"""A study file: what it may say, and errors that name the file, the key and the rule."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import pytest
import yaml

from rubricflow.tasks.core.contracts.backends import Purpose
from rubricflow.tasks.core.contracts.errors import InputError
from rubricflow.tasks.core.contracts.settings.judge import Judge
from rubricflow.tasks.core.contracts.settings.study import Study, load_study

ROOT = Path(__file__).parents[4]
STUDY: dict[str, Any] = {
    "name": "s",
    "data": {"sources": [{"file": "a.csv", "responses": {"response_id": "id", "item_id": "item", "text": "text"}}]},
    "rubrics": {"derive": {"origin": "reference_answer", "scale": {"min": 0, "max": 5}}},
}


def written(folder: Path, content: Any) -> Path:
    path = folder / "study.yaml"
    path.write_text(content if isinstance(content, str) else yaml.safe_dump(content), encoding="utf-8")
    return path


def test_a_minimal_study_has_defaults(tmp_path: Path) -> None:
    study = load_study(written(tmp_path, STUDY))
    assert (study.split.calibration, study.judge.protocol, study.evaluation.target) == (200, "rulers", "mean")


SHIPPED = [ROOT / "data/demo/study.yaml", *sorted((ROOT / "data/studies").glob("*.yaml"))]


@pytest.mark.parametrize("path", [p for p in SHIPPED if not p.stem.endswith("_rubrics")], ids=lambda path: path.stem)
def test_the_shipped_studies_parse(path: Path) -> None:
    assert load_study(path).name


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"colour": 1}, "colour"),
        ({"name": "../x"}, "name"),
        ({"name": ""}, "name"),
        ({"data": {}}, "data"),
        ({"data": {"sources": [{"file": "a.csv", "respnses": {}}]}}, "data.sources.0.respnses"),
        ({"data": {"sources": [{"file": "a.csv", "scores": [{"rater": "a"}, {"rater": "a"}]}]}}, "data.sources.0"),
        ({"rubrics": {}}, "rubrics"),
        ({"rubrics": {"derive": {"origin": "x", "scale": {"min": 0, "max": 5}}}}, "rubrics.derive.origin"),
        ({"rubrics": {"derive": {"origin": "key_elements", "scale": {"min": 5, "max": 0}}}}, "rubrics.derive.scale"),
        ({"split": {"calibration": -1}}, "split.calibration"),
        ({"split": {"by": "rater"}}, "split.by"),
        ({"judge": {"protocol": "none"}}, "judge.protocol"),
        ({"judge": {"signals": ["weather"]}}, "judge.signals.0"),
        ({"judge": {"backend": "openai", "engine": {"model": "m", "url": "u"}}}, "judge.engine.url"),
        ({"judge": {"protocol": "dhs", "criteria_per_call": 4}}, "judge"),
        ({"judge": {"protocol": "pointwise", "criteria_per_call": 0}}, "judge.criteria_per_call"),
        ({"calibration": {"minimum": 1}}, "calibration.minimum"),
        ({"calibration": {"alpha": 0}}, "calibration.alpha"),
        ({"evaluation": {"draws": "many"}}, "evaluation.draws"),
    ],
)
def test_an_error_names_the_file_and_the_key(tmp_path: Path, change: dict[str, Any], field: str) -> None:
    path = written(tmp_path, STUDY | change)
    with pytest.raises(InputError) as stop:
        load_study(path)
    assert (stop.value.file, stop.value.field) == (path, field)
    where = f"{path}, line {stop.value.line}, column {stop.value.column}"
    assert str(stop.value).startswith(f"{where}, field '{field}': ")


def test_sources_may_stand_beside_a_layout(tmp_path: Path) -> None:
    data = load_study(written(tmp_path, STUDY | {"data": STUDY["data"] | {"layout": "plawbench"}})).data
    assert (data.layout, len(data.sources)) == ("plawbench", len(STUDY["data"]["sources"]))


def test_an_unknown_key_is_told_by_its_rule(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no such key"):
        load_study(written(tmp_path, STUDY | {"colour": 1}))


def test_several_errors_are_counted(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="2 errors in the input"):
        load_study(written(tmp_path, STUDY | {"colour": 1, "sound": 2}))


@pytest.mark.parametrize(
    ("content", "rule"),
    [("", "valid dictionary"), ("- a", "valid dictionary"), ("a: [", "is not YAML"), ("a: !x 1", "is not YAML")],
)
def test_a_file_of_another_kind_is_named(tmp_path: Path, content: str, rule: str) -> None:
    path = written(tmp_path, content)
    with pytest.raises(InputError, match=rule) as stop:
        load_study(path)
    assert stop.value.file == path


def test_a_byte_order_mark_is_passed_over(tmp_path: Path) -> None:
    assert load_study(written(tmp_path, "\ufeff" + yaml.safe_dump(STUDY))) == Study.model_validate(STUDY)


@pytest.mark.parametrize(
    ("content", "rule"),
    [
        ("name: a\ndata: {}\nname: b\n", "the key 'name' is given twice in line 3"),
        ("split:\n  seed: 1\n  by: item\n  seed: 2\n", "the key 'seed' is given twice in line 4"),
        ("split: {seed: 1, seed: 1}\n", "the key 'seed' is given twice in line 1"),
        ("[" * 5000, "nested more than 100 deep in line 1"),
        ("name: a\0b\n", r"the character U\+0000 in line 1"),
    ],
)
def test_yaml_that_says_two_things_or_nothing_is_refused(tmp_path: Path, content: str, rule: str) -> None:
    with pytest.raises(InputError, match=f"study.yaml: is not YAML: .*{rule}"):
        load_study(written(tmp_path, content))


def test_merged_keys_may_be_overridden(tmp_path: Path) -> None:
    text = yaml.safe_dump(STUDY) + "split: &base {by: item, seed: 3}\nevaluation: {<<: {seed: 4}, seed: 5}\n"
    assert load_study(written(tmp_path, text)).evaluation.seed == 5


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"none\.yaml: cannot be read: No such file"):
        load_study(tmp_path / "none.yaml")


def test_a_file_that_is_not_utf8_is_named(tmp_path: Path) -> None:
    path = tmp_path / "study.yaml"
    path.write_bytes(b"name: caf\xe9")
    with pytest.raises(InputError, match=r"is not UTF-8: .* at byte 9"):
        load_study(path)


def test_each_protocol_brings_its_formula_and_signals() -> None:
    made = {name: Judge.model_validate({"protocol": name}).as_protocol() for name in ("rulers", "pointwise", "dhs")}
    assert {name: protocol.final_score for name, protocol in made.items()} == {
        "rulers": "trait_mean",
        "pointwise": "weighted_points",
        "dhs": "judged",
    }
    assert all(protocol.signals for protocol in made.values())


def test_the_study_overrides_formula_and_signals() -> None:
    protocol = Judge(final_score="weighted_points", signals=("length",), failed_quote="count").as_protocol()
    assert (protocol.final_score, protocol.signals, protocol.failed_quote) == ("weighted_points", ("length",), "count")


def test_pointwise_takes_several_criteria_a_call() -> None:
    assert Judge(protocol="pointwise", criteria_per_call=4).as_protocol().criteria_per_call == 4
    assert Judge(protocol="pointwise").as_protocol().part_size == 1


@pytest.mark.parametrize("protocol", ["rulers", "checked_score"])
def test_a_checklist_is_asked_whole_unless_a_study_says_in_which_parts(protocol: str) -> None:
    whole = Judge(protocol=protocol).as_protocol()
    assert (whole.part_size, whole.model_dump()["criteria_per_call"], "in_parts" in whole.model_dump()) == (None, 1, 0)
    assert [Judge(protocol=protocol, criteria_per_call=n).as_protocol().part_size for n in (1, 4)] == [1, 4]


def test_what_older_runs_wrote_down_of_a_protocol_without_parts_is_read() -> None:
    assert Judge.model_validate({"protocol": "dhs", "criteria_per_call": 1}).as_protocol().part_size is None


def test_a_study_survives_its_own_json() -> None:
    study = Study.model_validate(STUDY)
    assert Study.model_validate_json(study.model_dump_json()) == study


def test_a_cascade_judges_and_does_nothing_else(tmp_path: Path) -> None:
    one = {"backend": "openai", "engine": {"model": "m"}}
    cascade = {**one, "escalate": [{"backend": "openai", "engine": {"model": "n"}}]}
    for purpose in get_args(Purpose):
        assert Judge.model_validate(one).can(purpose)
        assert Judge.model_validate(cascade).can(purpose) == (purpose == "judge")
    annotation = {"annotators": {"one": cascade, "two": {"backend": "embedded"}}}
    with pytest.raises(InputError, match="annotator 'one': a cascade gives no labels"):
        load_study(written(tmp_path, {**STUDY, "annotation": annotation}))


def test_annotators_are_shown_no_examples_but_those_of_the_rubric(tmp_path: Path) -> None:
    judge = {"backend": "openai", "engine": {"model": "m"}, "examples": {}}
    annotation = {"annotators": {"one": judge, "two": {"backend": "embedded"}}}
    with pytest.raises(InputError, match="annotator 'one': the examples that annotators see are those of the rubric"):
        load_study(written(tmp_path, {**STUDY, "annotation": annotation}))

"""The laboratory's folder: a study that the pipeline takes, with marks of two digits, made once."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from builders.files import read_csv

from rubricflow.flows.laboratory import SEEN, TEST, TEST_UNSEEN, TRAIN, UNSEEN, laboratory
from rubricflow.tasks.core.contracts.errors import InputError
from rubricflow.tasks.core.contracts.settings.study import load_study
from rubricflow.tasks.grading.lock.rubric import authored
from rubricflow.tasks.methods.edit.policy import Policy


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return laboratory(tmp_path_factory.mktemp("laboratory") / "lab", steps=2)


def responses(study: Path) -> list[dict[str, str]]:
    return read_csv(study.parent / "responses.csv")


def test_the_study_names_what_lies_beside_it(study: Path) -> None:
    settings = load_study(study)
    assert settings.edit is not None
    policy = Policy.load(study.parent / settings.edit.policy)
    assert policy.prompt_ids("GRADE\n")[-1] == policy.tokenizer.get_vocab()["\n"]


def test_gold_marks_lie_on_the_scale_of_their_rubric(study: Path) -> None:
    rubrics = authored(study.parent / "rubrics.yaml")
    rows = responses(study)
    assert all(0 <= int(row["gold"]) <= rubrics[row["item_id"]].scale.max for row in rows)
    assert max(int(row["gold"]) for row in rows) >= 10
    assert len({row["gold"] for row in rows}) > 5


def test_unseen_questions_have_no_training_responses(study: Path) -> None:
    rows = responses(study)
    train = [row for row in rows if row["split"] == "train"]
    unseen = [row for row in rows if row["item_id"].startswith("unseen")]
    assert not {row["item_id"] for row in train} & {row["item_id"] for row in unseen}
    assert (len(train), len(unseen)) == (SEEN * TRAIN, UNSEEN * TEST_UNSEEN)
    assert len(rows) == SEEN * (TRAIN + TEST) + UNSEEN * TEST_UNSEEN


def test_both_kinds_of_scheme_are_seen_and_unseen(study: Path) -> None:
    content = yaml.safe_load((study.parent / "rubrics.yaml").read_text(encoding="utf-8"))
    by_levels = {rubric["rubric_id"].split("-")[0] for rubric in content["rubrics"] if rubric["traits"][0]["anchors"]}
    by_points = {rubric["rubric_id"].split("-")[0] for rubric in content["rubrics"] if len(rubric["criteria"]) > 1}
    assert by_levels == by_points == {"seen", "unseen"}


def test_a_second_call_leaves_the_policy_as_it_is(study: Path) -> None:
    weights = study.parent / "policy" / "model.safetensors"
    before = weights.stat().st_mtime_ns, responses(study)
    laboratory(study.parent, steps=2)
    assert before == (weights.stat().st_mtime_ns, responses(study))


def test_a_folder_with_other_things_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("mine", encoding="utf-8")
    with pytest.raises(InputError, match="holds other things"):
        laboratory(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]

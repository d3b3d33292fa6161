"""A protocol is its registration, its module and its prompt, and nothing else: one is added here from outside."""

import shutil
from pathlib import Path

import pytest
from pydantic import ValidationError

from rubricflow.tasks.core.contracts.bundle import Bundle, Criterion, Rubric, Scale, Trait
from rubricflow.tasks.core.contracts.protocols import PROTOCOLS, RegisteredProtocol
from rubricflow.tasks.core.contracts.settings.judge import Judge
from rubricflow.tasks.grading.judge import prompt, protocols
from rubricflow.tasks.grading.judge.protocol import JudgingProtocol, protocol_of
from rubricflow.tasks.grading.judge.protocols.pairwise import ComparingProtocol
from rubricflow.tasks.grading.judge.prove import prove_bundle
from rubricflow.tasks.grading.lock.bundles import lock

LIGHTS = Path(__file__).parents[3] / "data/protocols"
RUBRIC = Rubric(
    rubric_id="r",
    scale=Scale(min=0, max=4),
    traits=(Trait(id="t", name="T", min=0, max=4),),
    criteria=(Criterion(id="c", trait="t", text="Plants need light."),),
)


@pytest.fixture
def lights(monkeypatch, tmp_path):
    monkeypatch.setitem(PROTOCOLS, "lights", RegisteredProtocol(final_score="judged", signals=("score",)))
    monkeypatch.setattr(protocols, "__path__", [*protocols.__path__, str(LIGHTS)])
    prompts = shutil.copytree(prompt.FOLDER, tmp_path / "prompts")
    shutil.copy(LIGHTS / "lights.txt", prompts)
    monkeypatch.setattr(prompt.fill.__self__, "_folder", prompts)
    yield
    protocol_of.cache_clear()


def test_a_protocol_from_outside_is_locked_proved_and_graded(lights, case_of, grade_all):
    locked = lock(RUBRIC, Judge(protocol="lights").as_protocol())
    bundle = Bundle.unlock(locked.bundle_id, locked.canonical())
    assert prove_bundle(bundle, "What do plants need?", None, None) == []
    cases = [case_of(bundle, text, text) for text in ("They need light.", "They need soil.")]
    graded = grade_all(cases, ['{"light": "amber"}', '{"light": "blue"}'])
    assert "Plants need light." in graded.backend.asked[0].messages[0].content
    assert [(row["score"], row["unscored_reason"]) for row in graded.gradings] == [(2.0, None), (None, "invalid_reply")]


def test_what_is_not_registered_is_no_protocol():
    with pytest.raises(ValidationError, match="'lights' is no protocol; there are rulers, "):
        Judge(protocol="lights")


@pytest.mark.parametrize("name", PROTOCOLS)
def test_every_registered_protocol_has_its_module(name):
    kind = ComparingProtocol if PROTOCOLS[name].compares else JudgingProtocol
    assert isinstance(protocol_of(name), kind)

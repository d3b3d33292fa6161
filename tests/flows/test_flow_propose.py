"""Concepts proposed for a study's data: a file that a person edits and a study can name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from builders.command import command

from rubricflow.flows import propose as flow
from rubricflow.tasks.core.llm.backend import Scripted
from rubricflow.tasks.core.llm.request import Reply
from rubricflow.tasks.grading.lock.rubric import authored

DEMO = Path(__file__).resolve().parents[2] / "data" / "demo"


def concept(name: str, meaning: str) -> dict[str, Any]:
    levels = ["not at all", "in part", "wholly"]
    return {"id": name, "name": name.title(), "definition": meaning, "evidence": "local_quote", "levels": levels}


def ask(study: Path, to: Path, house: Path) -> Any:
    return command("propose", study, "--to", to, "--concepts", "2", "--warehouse", house)


def test_a_proposal_is_a_rubric_file_and_is_never_written_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    concepts = [concept("truth", "What is claimed is so."), concept("order", "One step follows from the other.")]
    said = Reply(text=json.dumps({"groups": [{"name": "Content", "concepts": concepts}]}))
    monkeypatch.setattr(flow, "is_generative", lambda _: True)
    monkeypatch.setattr(flow, "open_backend", lambda *_: Scripted([said]))
    to = tmp_path / "mine.yaml"
    answer = ask(DEMO / "concepts.yaml", to, tmp_path / "house")
    assert answer.exit_code == 0, answer.output
    assert "kept    ordinal_anchors" not in answer.output  # nothing is known of labels yet
    (rubric,) = authored(to).values()
    assert [criterion.id for criterion in rubric.criteria] == ["truth", "order"]
    assert rubric.scale.bounds == (0, 10, 1)
    before = to.read_text()
    again = ask(DEMO / "concepts.yaml", to, tmp_path / "house")
    assert again.exit_code == 2
    assert "somebody may have edited it" in again.output
    assert to.read_text() == before


def test_only_a_language_model_proposes(tmp_path: Path) -> None:
    answer = ask(DEMO / "concepts.yaml", tmp_path / "mine.yaml", tmp_path / "house")
    assert answer.exit_code == 2
    assert "backend 'simulated' proposes nothing" in answer.output
    assert not (tmp_path / "mine.yaml").exists()

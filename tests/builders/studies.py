"""The least study: a source and where its rubrics are."""

from __future__ import annotations

from typing import Any

from rubricflow.tasks.core.contracts.settings.study import Study


def study(**sections: Any) -> Study:
    least = {"name": "s", "data": {"sources": [{"file": "x.csv"}]}, "rubrics": {"file": "r.yaml"}}
    return Study.model_validate(least | sections)

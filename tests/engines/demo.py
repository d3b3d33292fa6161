"""The demo's study for a language model: the same file for every engine but for one word."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml
from tiny_model import HOUSE

DEMO = HOUSE / "data" / "demo"


def write_study(path: Path, backend: str, engine: dict[str, Any], **judge: Any) -> Path:
    """A study of the demo's data with this judge."""
    study = yaml.safe_load((DEMO / "baseline.yaml").read_text(encoding="utf-8"))
    study["data"]["folder"] = str(DEMO)
    study["rubrics"]["file"] = str(DEMO / "rubrics.yaml")
    study["judge"] = {
        "protocol": "rulers",
        "backend": backend,
        "engine": engine,
        "sampling": {"max_tokens": 8000},
    } | judge
    study["evaluation"]["draws"] = 50
    path.write_text(json.dumps(study), encoding="utf-8")
    return path

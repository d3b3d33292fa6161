"""Grade open-ended text with locked rubrics, verified evidence and scores calibrated to human raters.

    run = rubricflow.grade(answers, rubric, judge)      # a table and a rubric, or a study file
    run.scores, run.judgments, run.report(), run.sql("SELECT …")
    rubricflow.RubricReward                             # rubric judgments as rewards for TRL and verl
    rubricflow.agreement(human, machine, scale)         # QWK and its companions, with intervals
    rubricflow.verify_quote(quote, text)                # where a quote stands in a text, or None

What is not named here may change between versions. Each name is loaded when it is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rubricflow.flows.trainers import RubricReward
    from rubricflow.python import Run, agreement, grade, verify_quote

__all__ = ["RubricReward", "Run", "agreement", "grade", "verify_quote"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'rubricflow' has no attribute '{name}'")
    return getattr(import_module("rubricflow.flows.trainers" if name == "RubricReward" else "rubricflow.python"), name)


def __dir__() -> list[str]:
    return __all__

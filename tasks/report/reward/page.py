"""The reward report as a page."""

from __future__ import annotations

from tasks.display.page import rendered
from tasks.report.reward.parts import RewardView
from tasks.report.reward.picture import style
from tasks.report.reward.view import content


def page(view: RewardView) -> str:
    """The report: a whole HTML document that needs no other file."""
    return rendered(content(view), style())

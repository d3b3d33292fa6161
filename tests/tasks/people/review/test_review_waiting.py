"""What waits for people in a graded run."""

from pathlib import Path

from rubricflow.tasks.core.contracts.tables.calibration import Predictions, ReleaseRules
from rubricflow.tasks.core.contracts.tables.people import NextLabels
from rubricflow.tasks.core.store.warehouse import Run, Warehouse
from rubricflow.tasks.people.review.waiting import proposed, waiting_scores


def predicted(name: str, route: str, risk: float) -> dict[str, object]:
    row = {"response_id": name, "item_id": "i", "rater_id": "m", "split": "test", "clipped": False}
    return row | {"route": route, "route_reason": "risk" if route == "review" else None, "risk": risk}


def graded(folder: Path, *asked: str) -> Run:
    """A run with two scores that were not released and two that were; asked: what `next` proposed, if anything."""
    routes = {"a": ("review", 0.2), "b": ("review", 0.4), "c": ("release", 0.1), "d": ("release", 0.1)}
    run = Warehouse.open(folder).run("graded")
    predictions = [predicted(name, *route) for name, route in routes.items()]
    run.commit("calibrate", "all", {Predictions: predictions, ReleaseRules: []})
    if asked:
        row = {"item_id": "i", "sampled": "drawn", "gain": 0.1, "why": "by chance"}
        rows = [row | {"response_id": name, "rank": rank} for rank, name in enumerate(asked, 1)]
        run.commit("next", "all", {NextLabels: rows[::-1]})
    return run


def ids(cases: list[dict[str, object]]) -> list[object]:
    return [case["response_id"] for case in cases]


def test_without_a_proposal_what_was_not_released_waits_riskiest_first(tmp_path: Path) -> None:
    run = graded(tmp_path / "w")
    assert proposed(run) == []
    assert ids(waiting_scores(run)) == ["b", "a"]


def test_what_next_proposes_comes_first_and_once(tmp_path: Path) -> None:
    run = graded(tmp_path / "w", "d", "a")
    cases = waiting_scores(run)
    assert ids(cases) == ["d", "a", "b"]
    assert {case["subject_kind"] for case in cases} == {"score"}
    assert [case["why"] for case in cases][:2] == ["by chance", "by chance"]


def test_what_was_scored_before_comes_last_if_it_is_still_graded(tmp_path: Path) -> None:
    run = graded(tmp_path / "w", "d")
    assert ids(waiting_scores(run, {"c", "b", "gone"})) == ["d", "b", "a", "c"]

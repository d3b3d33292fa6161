"""The score that follows from a teacher's levels, against the judge's formula and the run's calibration by hand."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from builders.bundles import THREE, bundle, criterion, trait
from builders.rows import grading, item, judgment, locked, response
from builders.studies import study
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rubricflow.flows.review import STATED, Following
from rubricflow.tasks.core.contracts.bundle import Bundle
from rubricflow.tasks.core.contracts.schema import conform
from rubricflow.tasks.core.contracts.settings.study import Study
from rubricflow.tasks.core.contracts.tables.calibration import Calibrations, Predictions
from rubricflow.tasks.core.contracts.tables.data import Items, Responses
from rubricflow.tasks.core.contracts.tables.judging import Gradings, Judgments
from rubricflow.tasks.core.contracts.tables.rubrics import Bundles
from rubricflow.tasks.core.store.warehouse import Run, Warehouse
from rubricflow.tasks.grading.calibrate.calibration import read_calibration
from rubricflow.tasks.grading.calibrate.features import Readers, TextSource, text_blocks
from rubricflow.tasks.grading.calibrate.predictions import predict
from rubricflow.tasks.grading.calibrate.rows import Item
from rubricflow.tasks.grading.calibrate.task import calibrate
from rubricflow.tasks.people.review.board import PredictedScore, predicted_score

WORDS = ("water", "salt", "osmosis", "leaves", "membrane", "cell", "because", "short")
NAMES = ("c1", "c2", "c3")
RULERS = study(calibration={"minimum": 20, "method": "rulers"})
STACKED = study(calibration={"minimum": 20, "method": "stacked", "features": ["judge", "characters"]})


def rubric(**protocol: Any) -> Bundle:
    usual = {"name": "pointwise", "final_score": "weighted_points", "signals": ("criteria", "trait_means", "length")}
    points = [criterion(name, levels=THREE, weight=weight) for name, weight in zip(NAMES, (1, 2, 1), strict=True)]
    return bundle(*points, ends=(0, 8), traits=(trait("t", 0, 8),), **usual | protocol)


def graded_by(of: Bundle, levels: dict[str, int], text: str) -> dict[str, Any]:
    """Score and signals of levels, worked out by hand."""
    shares = {name: level / 2 for name, level in levels.items()}
    mean = (shares["c1"] + 2 * shares["c2"] + shares["c3"]) / 4
    score = float(math.floor(8 * mean + 0.5))
    signals = {f"criterion.{name}": share for name, share in shares.items()}
    signals |= {"mean.t": mean, "length": math.log1p(len(text)), "tie": float((8 * mean) % 1 == 0.5)}
    return {"score": score, "signals": signals, "trait_scores": {"t": score}}


def graded_run(folder: Path, plan: Study, of: Bundle) -> Run:
    """Ninety answers that people scored, and what ingest, lock, judge and calibrate write of them."""
    rng = np.random.default_rng(0)
    responses, people, gradings, judgments = [], [], [], []
    for number in range(90):
        key, text = f"r{number}", " ".join(rng.choice(WORDS, 12))
        levels = {name: int(rng.integers(0, 3)) for name in NAMES}
        split = "test" if number % 5 == 0 else "calibration"
        responses.append(response(key, "q", text=text, split=split))
        row = graded_by(of, levels, text)
        gradings.append(grading(key, "m", item_id="q", **row))
        judgments += [judgment(key, name, level) for name, level in levels.items()]
        human = float(np.clip(round(0.7 * row["score"] + rng.normal(0.5, 1)), 0, 8))
        people.append(grading(key, "h", human, item_id="q"))
    run = Warehouse.open(folder).run("small")
    run.commit("ingest", "all", {Items: [item("q", rubric_id="r")], Responses: responses, Gradings: people})
    run.commit("lock", "all", {Bundles: [locked(of, "r")]})
    run.commit("judge", "all", {Gradings: gradings, Judgments: judgments})
    refs = [run.ref(row, stage) for row, stage in ((Items, "ingest"), (Responses, "ingest"), (Gradings, "ingest"),
                                                   (Gradings, "judge"), (Bundles, "lock"))]  # fmt: skip
    calibrate.fn(run, plan, *refs)
    return run


@pytest.fixture(scope="module", params=[RULERS, STACKED], ids=["rulers", "with the text"])
def graded(request: Any, tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, Study]:
    return graded_run(tmp_path_factory.mktemp("run"), request.param, rubric()), request.param


def by_hand(run: Run, plan: Study, key: str, levels: dict[str, int]) -> dict[str, Any]:
    """The row of `predictions` for an answer with all its levels."""
    (told,) = [row for row in run.read(run.ref(Responses, "ingest")).to_pylist() if row["response_id"] == key]
    row = grading(key, "m", item_id="q", **graded_by(rubric(), levels, told["text"]))
    (content,) = run.read(run.ref(Calibrations, "calibrate"))["content"].to_pylist()
    source = TextSource([told["text"]], "Why?", "", "")
    blocks = text_blocks(source, plan.calibration.texts, Readers())
    table = predict(read_calibration(content), Item("q", rubric(), conform(Gradings, [row]), blocks))
    predicted: dict[str, Any] = table.to_pylist()[0]
    return predicted


SET = st.dictionaries(st.sampled_from(NAMES), st.integers(0, 2))


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(0, 89), SET)
def test_it_is_the_formula_and_then_the_calibration(
    graded: tuple[Run, Study], number: int, levels: dict[str, int]
) -> None:
    run, plan = graded
    key = f"r{number}"
    rows = run.read(run.ref(Judgments, "judge")).to_pylist()
    decided = {row["criterion_id"]: row["decision"] for row in rows if row["response_id"] == key}
    following = Following(run, plan)(key, levels)
    wanted = predicted_score(by_hand(run, plan, key, decided | levels), rubric().scale)
    assert following == pytest.approx(wanted, abs=1e-9)


def test_where_nothing_is_moved_it_is_the_runs_own_prediction(graded: tuple[Run, Study]) -> None:
    run, plan = graded
    follow = Following(run, plan)
    for row in run.read(run.ref(Predictions, "calibrate")).to_pylist()[:10]:
        assert follow(row["response_id"], {}) == predicted_score(row, rubric().scale)


def test_better_levels_lead_to_a_better_score(graded: tuple[Run, Study]) -> None:
    follow = Following(*graded)
    worst, best = (follow("r0", dict.fromkeys(NAMES, level)) for level in (0, 2))
    assert isinstance(worst, PredictedScore)
    assert isinstance(best, PredictedScore)
    assert (worst.points, best.points) == (0, 8)
    assert worst.score < best.score  # type: ignore[operator]


def test_a_judge_that_states_the_score_is_named(tmp_path: Path) -> None:
    stated = rubric(name="dhs", final_score="judged", signals=("score", "length"))
    follow = Following(graded_run(tmp_path, RULERS, stated), RULERS)
    assert follow("r0", {"c1": 2}) == STATED

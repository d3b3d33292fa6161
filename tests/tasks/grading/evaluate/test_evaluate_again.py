"""Whether the same response asked again gets the same score: the column, the figure and its gate."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from rubricflow.tasks.core.contracts.schema import conform
from rubricflow.tasks.core.contracts.settings.study import Release
from rubricflow.tasks.core.contracts.tables.calibration import Predictions
from rubricflow.tasks.core.contracts.tables.data import Items, Responses
from rubricflow.tasks.core.contracts.tables.evaluation import Metrics
from rubricflow.tasks.core.contracts.tables.judging import Gradings
from rubricflow.tasks.core.stats.scores import ScoreTables, narrow, score_frame
from rubricflow.tasks.grading.evaluate.figures import gates
from rubricflow.tasks.grading.evaluate.people import again
from rubricflow.tasks.grading.evaluate.slices import ScoreSlice, Setting

SCALE = (0.0, 4.0, 1.0)


def test_a_response_is_the_same_again_where_all_its_scored_samples_agree() -> None:
    given = {"same": [2.0, 2.0, None], "other": [2.0, 3.0], "once": [1.0], "lost": [1.0, None]}
    graded = [
        {"response_id": name, "item_id": "i", "rater_id": "m", "rater_kind": "llm", "sample": sample, "score": score}
        | {"trait_scores": {}, "signals": {}, "status": "unscored" if score is None else "scored"}
        for name, scores in given.items()
        for sample, score in enumerate(scores)
    ]
    item = {"item_id": "i", "question": "?", "key_elements": [], "type": "short", "rubric_id": "i"}
    responses = [{"response_id": name, "item_id": "i", "text": "", "split": "test", "groups": {}} for name in given]
    tables = ScoreTables(
        pa.table(conform(Items, [item])),
        conform(Responses, responses),
        conform(Gradings, graded).slice(0, 0),
        narrow(conform(Gradings, graded).select(["response_id", "score", "signals"]).to_batches()),
        conform(Predictions, []),
    )
    frame = score_frame([tables], "mean").frame.set_index("response_id")["again"]
    assert frame.to_dict() == pytest.approx({"same": 1.0, "other": 0.0, "once": np.nan, "lost": np.nan}, nan_ok=True)


def verdict_of(same: np.ndarray) -> dict[str, object]:
    rows = pd.DataFrame({"again": same, "cluster": np.arange(len(same))})
    metrics = conform(
        Metrics, list(again(ScoreSlice("all", "all", rows, SCALE, "response"), Setting({}, "m", draws=200)))
    ).to_pandas()
    (found,) = [g for g in gates(metrics, [], {"i": SCALE}, Release(), 0) if g["gate"] == "same_answer_again"]
    return found


def test_the_gate_is_decided_by_the_share_of_responses_that_got_the_same_score() -> None:
    mostly, always = np.ones(400), np.ones(400)
    mostly[:80] = 0
    assert verdict_of(mostly)["outcome"] == "fail"
    assert verdict_of(mostly)["estimate"] == pytest.approx(0.8)
    assert verdict_of(always)["outcome"] == "pass"


def test_asked_once_it_stays_unknown() -> None:
    assert verdict_of(np.full(50, np.nan))["outcome"] == "unknown"

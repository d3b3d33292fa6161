"""Made-up responses that several people marked and a judge scored, through the real fit to their intervals."""

import math
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from builders.bundles import bundle, criterion, trait
from builders.studies import study

from rubricflow.tasks.core.contracts.bundle import Scale
from rubricflow.tasks.core.contracts.schema import schema
from rubricflow.tasks.core.contracts.tables.judging import Gradings
from rubricflow.tasks.grading.calibrate.calibration import ScaleMapping
from rubricflow.tasks.grading.calibrate.fit import fit_items
from rubricflow.tasks.grading.calibrate.predictions import predict
from rubricflow.tasks.grading.calibrate.rows import GRADING, Item, graded_items

GRADING_SCHEMA = pa.schema([schema(Gradings).field(name) for name in GRADING])
BETWEEN_PEOPLE = 0.12
"""Standard deviation of one person's mark around the true one, as a share of the scale."""


class Case(NamedTuple):
    """scale: lowest, highest, step; raters: how many people mark a response, each number equally likely; labels:
    responses to calibrate on; noise: standard deviation of the judge, as a share of the scale; skew: of true scores, 1
    for even ones; method: as a study says it."""

    raters: tuple[int, ...]
    labels: int = 80
    scale: tuple[float, float, float] = (0, 5, 1)
    noise: float = 0.2
    skew: float = 1
    method: str = "choose"


class Held(NamedTuple):
    """New responses: `target` human scores, `low` and `high` of their intervals, `score` calibrated."""

    target: np.ndarray
    low: np.ndarray
    high: np.ndarray
    score: np.ndarray

    @property
    def share(self):
        """Share of the human scores inside their interval."""
        return np.mean((self.low <= self.target + 1e-9) & (self.target <= self.high + 1e-9))

    @property
    def width(self):
        """Mean width, in score units."""
        return np.mean(self.high - self.low)


class Fitted(NamedTuple):
    """An item with a mapping fitted on its labels."""

    item: Item
    calibration: ScaleMapping

    def held(self, grain=None):
        """Intervals of its new responses; with another grain than that of the human scores where given."""
        rows = self.item.rows.filter(np.array(self.item.rows["split"].to_pylist()) == "test")
        found = predict(self._with(grain), self.item._replace(rows=rows))
        return Held(rows["target"].to_numpy(), *(found[name].to_numpy() for name in ("low", "high", "score")))

    def _with(self, grain):
        if grain is None:
            return self.calibration
        spread = self.calibration.spread.model_copy(update={"grain": grain})
        return self.calibration.model_copy(update={"spread": spread})


def fitted(case, seed, new=300, coverage=0.9):
    """The case's item, with a mapping fitted on its labels."""
    item = marked(case, seed, new)
    plan = study(calibration={"method": case.method, "minimum": 20}, release={"coverage": coverage})
    return Fitted(item, fit_items([item], "judge", plan).mappings["q"])


def held(case, seed, new=300, coverage=0.9):
    """Intervals of new responses by a mapping fitted on the case's labels."""
    return fitted(case, seed, new, coverage).held()


def marked(case, seed, new):
    """An item of the case with labels and as many new responses."""
    rng = np.random.default_rng([seed, case.labels])
    n, scale = case.labels + new, Scale(min=case.scale[0], max=case.scale[1], step=case.scale[2])
    truth = rng.beta(case.skew, 1, n)
    people = truth[:, None] + rng.normal(0, BETWEEN_PEOPLE, (n, max(case.raters)))
    judge = np.clip(truth + rng.normal(0, case.noise, n), 0, 1)
    ids = [f"r{at:05d}" for at in range(n)]
    splits = ["calibration"] * case.labels + ["test"] * new
    responses = pa.table({"response_id": ids, "split": splits, "author_id": pa.nulls(n, pa.string())})
    counts = rng.choice(case.raters, n)
    marks = _marks(ids, _on(scale, people), counts)
    signals = ("trait_scores", "length")
    judged = bundle(criterion("ca", "a"), ends=scale.bounds, traits=(trait("a", 0, 3),), signals=signals)
    (item,) = graded_items({"q": judged}, _gradings(ids, judge, scale, rng), responses, marks, "mean")
    return item


def _on(scale, shares):
    """Shares of a scale as the nearest of its levels."""
    return scale.min + scale.step * np.clip(np.round((scale.levels - 1) * shares), 0, scale.levels - 1)


def _marks(ids, scores, counts):
    response, person = np.nonzero(np.arange(scores.shape[1]) < counts[:, None])
    return pa.table(
        {
            "response_id": np.array(ids)[response],
            "rater_id": [f"person {at}" for at in person],
            "rater_kind": ["human"] * len(response),
            "score": scores[response, person],
        }
    )


def _gradings(ids, judge, scale, rng):
    n = len(ids)
    columns = {
        "response_id": ids,
        "item_id": ["q"] * n,
        "rater_id": ["judge"] * n,
        "sample": [0] * n,
        "score": _on(scale, judge),
        "trait_scores": [[("a", round(3 * at))] for at in judge],
        "signals": [[("length", math.log1p(100 * at))] for at in rng.random(n)],
        "status": ["scored"] * n,
        "unscored_reason": [None] * n,
    }
    return pa.table(columns, schema=GRADING_SCHEMA)

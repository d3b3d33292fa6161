"""Labels do not make a judge worse, however strong it is: a small version of tests/studies/never_worse.py."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from builders.label_losses import agreement_within, agreements, drawn
from labels_scene import labelled_rows

from rubricflow.tasks.core.contracts.bundle import Scale
from rubricflow.tasks.core.contracts.settings.study import Calibration
from rubricflow.tasks.core.stats.arrays import Floats
from rubricflow.tasks.grading.calibrate.choose import decide
from rubricflow.tasks.grading.calibrate.methods import apply_to_labels
from rubricflow.tasks.grading.calibrate.rows import LabelledRows

DRAWS = {0: 1, 10: 4, 25: 4, 100: 2}
"""Number of labels → how often so many are drawn."""
KINDS = {
    "perfect": ("strong", 0.0),
    "nearly perfect": ("strong", 0.35),
    "good": ("strong", 0.7),
    "fair": ("middling", 1.1),
    "harsh": ("middling", 0.7),
    "narrow": ("middling", 0.7),
    "poor": ("weak", 2.2),
    "full marks": ("weak", 1.5),
    "lapses": ("weak", 0.7),
}
"""Judge → its strength and the standard deviation of its errors, in points of 0 .. 5."""


def judge(kind: str, seed: int) -> LabelledRows:
    """500 answers scored 0 .. 5; words of eight dimensions tell about half of what people see."""
    luck = np.random.default_rng(seed)
    truth = luck.normal(size=500)
    human = level(2.5 + 1.4 * truth)
    words = 0.35 * truth[:, None] * np.linspace(1, 0.3, 8) + luck.normal(0, 0.8, (500, 8))
    own = human + luck.normal(0, KINDS[kind][1], 500)
    if kind == "harsh":
        own -= 1.5
    elif kind == "narrow":
        own = 2.5 + 0.4 * (own - 2.5)
    elif kind == "full marks":
        own = np.where(own >= 2, 5.0, own)
    elif kind == "lapses":
        own = np.where(luck.random(500) < 0.7, luck.uniform(0, 5, 500), own)
    return labelled_rows(level(own), human, blocks={"embedding": words})


def level(scores: Floats) -> Floats:
    return np.clip(np.floor(scores + 0.5), 0.0, 5.0)


@pytest.fixture(scope="module")
def cells() -> pd.DataFrame:
    """QWK on unseen answers by judge and number of labels, the mean of draws: as chosen, raw, and by every method."""
    made = [
        {"judge": kind, "strength": KINDS[kind][0], "labels": n, **agreements(judge(kind, at), n, seed, 280)}
        for at, kind in enumerate(KINDS)
        for n, draws in DRAWS.items()
        for seed in range(draws)
    ]
    return pd.DataFrame(made).groupby(["judge", "strength", "labels"]).mean().reset_index()


def test_of_no_strength_labels_make_the_score_worse_than_the_raw_one(cells: pd.DataFrame) -> None:
    lost = cells["raw"] - cells["chosen"]
    assert lost.groupby(cells["strength"]).mean().max() <= 0.005
    assert lost.groupby(cells["labels"]).mean().max() <= 0.005
    assert lost.groupby([cells["strength"], cells["labels"]]).mean().max() <= 0.01
    assert (cells.loc[cells["labels"] == 0, "chosen"] == cells.loc[cells["labels"] == 0, "raw"]).all()


def test_text_alone_is_not_better_than_judge_and_text(cells: pd.DataFrame) -> None:
    cells = cells[cells["labels"] >= 10]  # below, there is no baseline of the text either
    lost = (cells["text_only"] - cells["chosen"]).groupby(cells["labels"]).mean()
    assert lost.max() <= 0.005
    weak = cells[(cells["strength"] == "weak") & (cells["labels"] >= 25)]
    assert (weak["text_only"] - weak["chosen"]).mean() <= 0.005


def test_hindsight_would_have_chosen_little_better(cells: pd.DataFrame) -> None:
    methods = cells.columns.difference(["judge", "strength", "labels", "chosen", "raw"])
    cells = cells[cells["labels"] >= 10]
    lost = cells[methods].max(axis=1) - cells["chosen"]
    assert lost.mean() <= 0.02
    assert lost[cells["labels"] >= 100].max() <= 0.02


def test_a_weak_judge_with_labels_is_mapped_with_the_words(cells: pd.DataFrame) -> None:
    weak = cells[(cells["strength"] == "weak") & (cells["labels"] >= 50)]
    assert (weak["chosen"] - weak["raw"]).min() >= 0.05


def pooled(seed: int, noise: float, generous: float, lapses: float) -> LabelledRows:
    """320 answers to eight questions of 0 .. 3 points, the first so hard that most have none; words tell little.

    noise: standard deviation of the judge's errors in points; generous: of its generosity on a question; lapses: share
    of the scores that it gives by chance.
    """
    luck = np.random.default_rng(seed)
    item, truth = np.arange(320) % 8, luck.normal(size=320)
    human = np.clip(np.floor(np.linspace(-1.0, 1.8, 8)[item] + 0.9 * truth + 0.5), 0, 3)
    own = human + luck.normal(0, noise, 320) + generous * luck.normal(size=8)[item]
    own = np.where(luck.random(320) < lapses, luck.integers(0, 4, 320), own)
    words = 0.1 * truth[:, None] * np.linspace(1, 0.3, 8) + luck.normal(0, 0.8, (320, 8))
    names, scale = tuple(f"q{at}" for at in range(8)), Scale(min=0, max=3)
    raw = np.clip(np.floor(own + 0.5), 0, 3) / 3
    return labelled_rows(raw, human / 3, scale, items=names, item=item, blocks={"embedding": words})


@pytest.mark.parametrize(("noise", "generous", "lapses"), [(0.6, 0.0, 0.0), (0.4, 0.0, 0.15), (0.8, 0.3, 0.0)])
def test_agreement_within_pooled_questions_is_not_given_for_small_errors_over_all(
    noise: float, generous: float, lapses: float
) -> None:
    lost = []
    for seed in range(2):
        labels = pooled(seed, noise, generous, lapses)
        for n in (25, 100):
            teach, unseen = drawn(labels, n, seed, 320)
            decision, new = decide(labels.take(teach), Calibration()), labels.take(unseen)
            assert decision.tried is not None
            scores = apply_to_labels(decision.tried.mapping, new, decision.tried.weight).aligned
            lost.append(agreement_within(new.raw, new) - agreement_within(scores, new))
    assert np.mean(lost) <= 0.005

"""A rehearsal: scores of several scales together, and which way of asking is taken."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from rubricflow.tasks.core.stats.agreement import qwk
from rubricflow.tasks.grading.evaluate.experiment.arm import BootstrapPlan, RehearsedArm, on_shares, rehearsal

PLAN = BootstrapPlan(400, 0)
SCALE = (0.0, 4.0, 1.0)


def frame(target: list[float], raw: list[float], item: str = "i") -> pd.DataFrame:
    names = [f"{item}{at}" for at in range(len(target))]
    known = {"response_id": names, "item_id": item, "author_id": None, "split": "calibration"}
    return pd.DataFrame({**known, "target": target, "raw": raw})


def arm(name: str, scores: pd.DataFrame, tokens: int | None = 100, quotes: int = 10, **more: object) -> RehearsedArm:
    took = {"calls": 10, "usd": None, "violations": 1, "standing": quotes - quotes // 10} | more
    return RehearsedArm(name, on_shares(scores, {"i": SCALE}), tokens=tokens, quotes=quotes, **took)


@pytest.fixture
def people() -> np.ndarray:
    return np.random.default_rng(3).integers(0, 5, 60).astype(float)


def off(people: np.ndarray, share: float, seed: int) -> list[float]:
    """The same scores, a share of them drawn anew."""
    rng = np.random.default_rng(seed)
    return list(np.where(rng.random(len(people)) < share, rng.integers(0, 5, len(people)), people))


def test_scores_of_items_of_several_scales_are_shares_of_them() -> None:
    both = pd.concat([frame([0, 1.5, 2], [0, np.nan, 1.2], "a"), frame([1, 3, 6], [1, 6, 3], "b")])
    shares = on_shares(both, {"a": (0.0, 2.0, 1.0), "b": (1.0, 6.0, 1.0)})
    assert shares["target"].tolist() == pytest.approx([0, 1, 1, 0, 0.4, 1])  # a half goes up
    assert shares["raw"].tolist() == pytest.approx([0, np.nan, 0.5, 0, 1, 0.4], nan_ok=True)


def test_the_agreement_is_qwk_on_what_every_way_scores(people: np.ndarray) -> None:
    raw = off(people, 0.5, 1)
    holes = [np.nan if at < 5 else value for at, value in enumerate(raw)]
    sentence, table = rehearsal([arm("plain", frame(people, raw)), arm("parts", frame(people, holes))], PLAN)
    first, second = (dict(zip(table.header, row, strict=True)) for row in table.rows)
    assert first["QWK"].value == pytest.approx(qwk(people[5:], raw[5:], 0, 4).value)
    assert [cell.value for cell in (first["n"], first["unscored"], second["n"], second["unscored"])] == [55, 0, 55, 5]
    assert (second["more than plain"].value, first["more than plain"]) == (0, "–")
    assert (second["quotes that stand"].value, second["cost"]) == (0.9, "not known")
    assert "55 answers" in sentence


@pytest.mark.parametrize(
    ("shares", "tokens", "quotes", "taken"),
    [
        ((0.1, 0.9, 0.9), (10, 50, 90), (0, 9, 9), "plain"),  # far better than any checklist
        ((0.1, 0.1, 0.1), (10, 50, 90), (0, 9, 9), "four"),  # as good: the checklist that takes less
        ((0.9, 0.9, 0.1), (10, 50, 90), (0, 9, 9), "one"),
        ((0.9, 0.1, 0.9), (10, 90, 50), (0, 9, 9), "four"),
        ((0.1, 0.1, 0.1), (50, 10, 90), (0, 0, 0), "four"),  # where nobody gives quotes, what takes least
    ],
)
def test_of_what_agrees_as_well_the_cheapest_with_a_checklist_is_taken(
    people: np.ndarray,
    shares: tuple[float, ...],
    tokens: tuple[int, ...],
    quotes: tuple[int, ...],
    taken: str,
) -> None:
    names = ("plain", "four", "one")
    arms = [
        arm(name, frame(people, off(people, share, 5)), took, quoted)
        for name, share, took, quoted in zip(names, shares, tokens, quotes, strict=True)
    ]
    assert rehearsal(arms, PLAN)[0].startswith(f"Use {taken}: QWK ")


def test_without_an_agreement_nothing_is_taken() -> None:
    same = arm("plain", frame([2.0] * 5, [2.0] * 5))
    sentence, table = rehearsal([same, same._replace(name="four")], PLAN)
    assert sentence.startswith("These answers do not tell")
    assert [str(row[1]) for row in table.rows] == ["–", "–"]

"""Pieces of work in numbers, and what is said of them."""

from __future__ import annotations

from rubricflow.tasks.core.llm.terms import PieceCounts, PieceNames, PieceProgress


def test_the_last_line_counts_everything() -> None:
    lines: list[tuple[str, float]] = []
    ticks = iter(range(0, 1000, 10))
    progress = PieceProgress(
        PieceNames("judge", "shards", "responses", "unscored"),
        2,
        80,
        lambda line, share: lines.append((line, share)),
        lambda: float(next(ticks)),
    )
    progress.ended(PieceCounts(60, 1, 55, 5, 5_000))
    progress.ended(PieceCounts(20, 0, 20, 0, 1_000))
    assert lines == [
        (
            "judge: 1/2 shards, 60/80 responses, 6/s, 55 calls, 5 replies reused, 1 unscored, 5,000 tokens, "
            "about 10 s left",
            0.5,
        ),
        ("judge: 2/2 shards, 80/80 responses, 4/s, 75 calls, 5 replies reused, 1 unscored, 6,000 tokens", 1.0),
    ]

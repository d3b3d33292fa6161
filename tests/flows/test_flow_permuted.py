"""Where people's marks are permuted no score goes out: whole studies through the doors."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.studies.permuted import by_doors, written


@pytest.mark.parametrize("seed", range(3))
def test_with_permuted_marks_nothing_goes_out(seed: int, tmp_path: Path) -> None:
    written(tmp_path, seed, permuted=True)
    released, rules = by_doors(tmp_path)
    assert released == 0
    assert all(rule["refused"] for rule in rules)

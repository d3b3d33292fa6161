"""Checkpoints of flow tests are held by plain pandas, but for one run of `grade`, which is made under
`great_expectations`; and their runs have no figures of agreement, but where a module says that it wants `FIGURES`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from builders.plain_checks import measure_nothing, use_plain_checks


@pytest.fixture(scope="module", autouse=True)
def plain_checks(request: pytest.FixtureRequest) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        use_plain_checks(patch)
        if not getattr(request.module, "FIGURES", False):
            measure_nothing(patch)
        yield

"""Checkpoints of flow tests are held by plain pandas, except where a module says that it wants the real ones: one of
each flow, and what kills runs in checkpoints. A module may say that its runs need no figures of agreement."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from builders.plain_checks import measure_nothing, use_plain_checks


@pytest.fixture(scope="module", autouse=True)
def plain_checks(request: pytest.FixtureRequest) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        if not getattr(request.module, "GREAT_EXPECTATIONS", False):
            use_plain_checks(patch)
        if getattr(request.module, "WITHOUT_FIGURES", False):
            measure_nothing(patch)
        yield

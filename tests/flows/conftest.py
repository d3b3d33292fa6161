"""Checkpoints of flow tests are held by plain pandas, except where a module says that it wants the real ones: one of
each flow, and all that kills runs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from builders.plain_checks import use_plain_checks


@pytest.fixture(scope="module", autouse=True)
def plain_checks(request: pytest.FixtureRequest) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        if not getattr(request.module, "GREAT_EXPECTATIONS", False):
            use_plain_checks(patch)
        yield

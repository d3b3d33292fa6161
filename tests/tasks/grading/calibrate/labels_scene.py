"""Labelled rows as fits take them, without gradings and tables."""

from collections import Counter
from types import SimpleNamespace
from typing import Any

import numpy as np

from rubricflow.tasks.core.contracts.bundle import Scale
from rubricflow.tasks.core.contracts.schema import conform
from rubricflow.tasks.core.contracts.settings.study import Release
from rubricflow.tasks.core.contracts.tables.calibration import ReleaseRules
from rubricflow.tasks.grading.calibrate.release import Rules, Scope, release_rules
from rubricflow.tasks.grading.calibrate.rows import LabelledRows

SCALE = Scale(min=0, max=5)


def labelled_rows(raw: Any, human: Any, scale: Scale = SCALE, **more: Any) -> LabelledRows:
    """Rows of one item in score units or, of several, in shares; one feature, the raw score, and a cluster a row."""
    scores, n = np.asarray(raw, dtype=np.float64), len(raw)
    items = more.get("items", ("q",))
    columns = {
        "names": ("trait.a",),
        "left_out": (),
        "items": items,
        "scales": (scale,) * len(items),
        "low": 0.0,
        "high": float(scale.max) if len(items) == 1 else 1.0,
        "item": np.zeros(n, dtype=np.int64),
        "raw": scores,
        "human": np.asarray(human, dtype=np.float64),
        "matrix": scores[:, None],
        "weight": np.ones(n),
        "cluster": np.array([f"response {at}" for at in range(n)]),
        "weak": np.zeros(n, dtype=np.bool_),
    }
    return LabelledRows(**columns | more)


def rules_of(scope: Scope, release: Release) -> Rules:
    """The rules of one mapping, all of whose labels count; of a promise each column of `release_rules` by its name."""
    rules = release_rules([scope], release, Counter(scope.labels.item_id.tolist()))
    rows = conform(ReleaseRules, rules.promises).to_pylist()
    return rules._replace(promises=[SimpleNamespace(**row) for row in rows])

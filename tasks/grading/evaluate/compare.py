"""Whether one run agrees better with the human scores than another, paired over the same held-out responses; how far
the two agree with each other, and where they part."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

import numpy as np
import pandas as pd

from rubricflow.tasks.core.contracts.errors import UserError
from rubricflow.tasks.core.stats.bootstrap import Difference, cluster_codes, difference, gap, paired_bootstrap
from rubricflow.tasks.core.stats.metrics import METRICS
from rubricflow.tasks.core.stats.scores import steps_off
from rubricflow.tasks.grading.evaluate.agree import RaterPair, agree, item_draws, item_qwk, over_items
from rubricflow.tasks.grading.evaluate.slices import TARGET, Record, ScaleBounds, Setting

LEVEL = ""
"""The group variable of `agreements` that stands for the level that run a gives: no study's is called so."""


def compare(
    a: pd.DataFrame, b: pd.DataFrame, scale: ScaleBounds, draws: int, seed: int
) -> tuple[dict[str, Difference], int, str]:
    """(statistic → difference b − a of the calibrated scores' agreement with the target, responses compared, what was
    resampled), on the responses that both score frames hold out and score.

    UserError where the two share no such response or disagree on its target.
    """
    both = in_common(a, b)
    if both.empty:
        raise UserError("the two runs hold out no response in common that both score")
    if not np.allclose(both["target_a"], both["target_b"]):
        raise UserError("the two runs compare with different human scores; give both the same target")
    resampled, clusters = _clusters(both)
    differences = paired_bootstrap(
        both["target_a"].to_numpy(),
        both["calibrated_a"].to_numpy(),
        both["calibrated_b"].to_numpy(),
        clusters.to_numpy(),
        scale,
        draws=draws,
        seed=seed,
    )
    return differences, len(both), resampled


def compare_over_items(
    a: pd.DataFrame, b: pd.DataFrame, scales: Mapping[str, ScaleBounds], draws: int, seed: int
) -> Difference:
    """The mean over items of the difference b − a in QWK, on the same responses and draws as in `compare`: what is left
    of agreement within items, where pooling counts the items' means."""
    both = in_common(a, b)
    clusters, size = cluster_codes(_clusters(both)[1].to_numpy())
    rows = both.rename(columns={"item_id_a": "item_id"}).assign(cluster=clusters)
    couples, on = [("target_a", f"calibrated_{run}") for run in "ab"], Setting(scales, draws=draws, seed=seed)
    kappas = [item_qwk(rows, scales, *couple)[:, None] for couple in couples]
    drawn = [item_draws(rows, couple, on) for couple in couples]
    return difference(float(over_items(gap(*kappas))[0]), over_items(gap(*drawn)), size)


def _clusters(both: pd.DataFrame) -> tuple[str, pd.Series]:
    """What is resampled, and the one of every response."""
    resampled = "author" if both["author_id_a"].notna().all() else "response"
    return resampled, both["author_id_a"] if resampled == "author" else both["response_id"]


def alike(a: pd.DataFrame, b: pd.DataFrame, methods: tuple[Collection[str], Collection[str]]) -> str:
    """Where two runs have equal scores, in words, and why: no difference is a finding then; '' where they have none.

    methods: of the mappings of either run, none where the raw score is kept.
    """
    both = in_common(a, b)
    raw = both[["response_id"]].merge(a[["response_id", "raw"]]).merge(b[["response_id", "raw"]], on="response_id")
    equal = np.isclose(both["calibrated_a"], both["calibrated_b"])
    items = pd.Series(equal).groupby(both["item_id_a"].to_numpy()).all()
    if not items.any():
        return ""
    if not items.all():
        return f"equal scores on {int(items.sum())} of {len(items)} items"
    same_raw = np.allclose(raw["raw_x"], raw["raw_y"], equal_nan=True)
    if all(set(names) <= {"identity"} for names in methods):
        why, about_raw = "both runs keep the raw score", ", and it is the same"
    else:
        mappings = ", ".join(sorted(set().union(*methods)))
        why, about_raw = f"the mappings ({mappings}) give the same scores", ", of the same raw scores"
    return f"equal scores on all {len(both):,} responses: {why}{about_raw if same_raw else ''}"


def in_common(a: pd.DataFrame, b: pd.DataFrame) -> pd.DataFrame:
    """The responses with a target and a calibrated score in both frames; columns end in `_a` and `_b`."""
    columns = ["response_id", "item_id", "author_id", "target", "calibrated"]
    both = a[columns].merge(b[columns], on="response_id", suffixes=("_a", "_b"))
    return both.dropna(subset=["target_a", "target_b", "calibrated_a", "calibrated_b"])


def side_by_side(a: pd.DataFrame, b: pd.DataFrame) -> pd.DataFrame:
    """Run a's score frame with the scores `a` and `b` of both runs, and whether both hold a response out (`held_out`);
    responses that b does not know are left out. The rows' levels in a are the group variable LEVEL."""
    other = b[["response_id", "calibrated", "split"]].rename(columns={"calibrated": "b", "split": "split_b"})
    both = a.assign(a=a["calibrated"]).merge(other, on="response_id")
    levels = both["a"].map(lambda score: f"{score + 0.0:g}", na_action="ignore")
    return both.assign(held_out=(both["split"] == "test") & (both["split_b"] == "test"), **{f"group:{LEVEL}": levels})


def agreements(
    both: pd.DataFrame, groups: Sequence[str], scales: Mapping[str, ScaleBounds], draws: int, seed: int
) -> Iterator[Record]:
    """Rows as of `metrics`, of `side_by_side` on one scale: each run with the target on what both hold out and score,
    and the runs with each other on all that both score; these by level of a and by group, too."""
    on = Setting(scales, draws=draws, seed=seed)
    metrics = [metric for metric in METRICS if metric.name in ("qwk", "exact", "mae", "bias")]
    scored = both[both["a"].notna() & both["b"].notna()]
    held_out = scored[scored["held_out"] & scored[TARGET].notna()]
    if len(held_out):
        people = [RaterPair("people", run, "", TARGET, run) for run in "ab"]
        yield from agree(held_out, [], people, on, metrics)
    if len(scored):
        yield from agree(scored, [LEVEL, *groups], [RaterPair("a", "b", "", "a", "b")], on, metrics)


def most_changed(both: pd.DataFrame, scales: Mapping[str, ScaleBounds], most: int = 10) -> pd.DataFrame:
    """The rows of `side_by_side` whose score differs most between the runs, in steps of their scale, the most first;
    of equals the one that is first by id. Equal scores are none."""
    ranked = both.assign(steps=steps_off(both, scales, "b", "a").abs().round(6)).sort_values(
        ["steps", "response_id"], ascending=[False, True]
    )
    return ranked[ranked["steps"] > 0].head(most)

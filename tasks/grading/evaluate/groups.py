"""Whether subgroups are scored alike: standardised differences, and what membership explains of the errors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from rubricflow.tasks.core.stats.agreement import Stat
from rubricflow.tasks.core.stats.fairness import dsm, dsm_intervals, noise_line, overall_differences
from rubricflow.tasks.grading.evaluate.agree import both_scored
from rubricflow.tasks.grading.evaluate.slices import TARGET, Record, ScaleBounds, ScoreSlice, on_one_scale, record

HIDDEN = 30
"""Groups with fewer responses are not shown."""


def fairness(
    whole_set: ScoreSlice,
    groups: list[str],
    scales: Mapping[str, ScaleBounds],
    machine: str,
    reliability: Stat,
    draws: int,
    seed: int,
) -> Iterator[Record]:
    """For every group variable: differences of standardised means (dsm), what membership explains of the errors (osa,
    osd, csd), and each group's difference from the first one at equal human scores (csd_difference).

    reliability: of a single person's score. People's scores are noisy, so that a machine which is fair to every true
    score still shows a difference at equal human scores; it is given beside (csd_of_noise).
    """
    single = on_one_scale(whole_set, scales)
    names = TARGET, machine
    for variable in groups:
        rows = both_scored(single.rows, TARGET, "calibrated", f"group:{variable}", beside=["cluster"])
        counts = rows[f"group:{variable}"].value_counts()
        rows = rows[rows[f"group:{variable}"].isin(counts[counts >= HIDDEN].index)]
        if rows[f"group:{variable}"].nunique() < 2:
            continue
        human, machine_scores = rows[TARGET].to_numpy(float), rows["calibrated"].to_numpy(float)
        member = rows[f"group:{variable}"].to_numpy(dtype=str)
        clusters = rows["cluster"].to_numpy()
        intervals = dsm_intervals(human, machine_scores, member, clusters, draws, seed) if draws else {}
        for group, stat in dsm(human, machine_scores, member).items():
            part = whole_set._replace(slice=variable, value_of=group)
            n = int((member == group).sum())
            yield record(part, "dsm", stat, n, stage="calibrated", raters=names, interval=intervals.get(group))
        overall = overall_differences(human, machine_scores, member)
        part = whole_set._replace(slice=variable, value_of="all")
        for name, stat in (("osa", overall.osa), ("osd", overall.osd), ("csd", overall.csd)):
            yield record(part, name, stat, len(rows), stage="calibrated", raters=names)
        first = min(member)
        for group, difference in overall.csd_coefficients.items():
            part = whole_set._replace(slice=variable, value_of=group)
            n = int((member == group).sum())
            yield record(part, "csd_difference", Stat(difference), n, stage="calibrated", raters=names)
            if reliability.value is not None:
                gap = float(human[member == group].mean() - human[member == first].mean())
                line = Stat(noise_line(reliability.value, gap))
                yield record(part, "csd_of_noise", line, n, stage="calibrated", raters=names)

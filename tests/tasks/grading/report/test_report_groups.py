"""The heading over groups of authors names the one that differs most."""

from rubricflow.tasks.core.stats.verdict import Estimate
from rubricflow.tasks.grading.report.evidence import Group, _groups_title


def test_the_heading_names_of_the_groups_that_differ_the_one_that_does_most() -> None:
    inside, low, high = (
        Group(name, Estimate(value), said)
        for name, value, said in (("a", 0.9, "inside"), ("b", -0.4, "outside"), ("c", 0.2, "outside"))
    )
    assert _groups_title([[inside, high]]) == "One group differs: c, scored 0.20 SD too high"
    assert _groups_title([[inside], [high, low]]) == "2 groups differ, most b, scored 0.40 SD too low"

"""What the scores were made with, and what the checkpoints said of the tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from rubricflow.tasks.core.contracts.bundle import Bundle
from rubricflow.tasks.core.display import say
from rubricflow.tasks.core.stats.scores import FAIR, MEAN
from rubricflow.tasks.grading.report.figures import Figures
from rubricflow.tasks.grading.report.sections import Checkpoints, Failed, LimitsSection, NamedCount, listed

Row = Mapping[str, Any]
TARGETS = {
    MEAN: "mean of the persons who scored",
    FAIR: "fair score: what an average rater would have given, by a model of who marked what",
}


def checkpoints(checks: Sequence[Row], quarantine: Sequence[Row]) -> Checkpoints:
    """What the checkpoints found."""
    outcomes = Counter((row["severity"], row["outcome"]) for row in checks)
    passed = sum(n for (_, outcome), n in outcomes.items() if outcome == "passed")
    warned = outcomes["warning", "failed"]
    failed = outcomes["critical", "failed"]
    broken = sum(n for (_, outcome), n in outcomes.items() if outcome == "error")
    quarantined = sum(row["n"] for row in quarantine)
    counts = (
        NamedCount("passed", passed),
        NamedCount("warnings", warned),
        NamedCount("failed", failed),
        NamedCount("could not run", broken),
        NamedCount("rows in quarantine", quarantined),
    )
    not_passed = [row for row in checks if row["outcome"] != "passed"]
    not_passed.sort(key=lambda row: (row["outcome"] != "error", row["severity"] != "critical"))
    failures = listed([_failed(row) for row in not_passed])
    if not checks:
        return Checkpoints("No check was run", counts, failures)
    problems = ((warned, "warned"), (failed, "failed"), (broken, "could not run"))
    clauses = [f"{say.count(n)} {word}" for n, word in problems if n]
    title = f"{say.count(passed)} of {say.plural(len(checks), 'check')} passed"
    return Checkpoints(f"{title}; {', '.join(clauses)}" if clauses else title, counts, failures)


def _failed(row: Row) -> Failed:
    """A row of `checks`."""
    return Failed(
        stage=row["stage"],
        table=row["table_name"],
        rule=row["rule"],
        column=row["column"],
        severity=row["severity"],
        outcome=row["outcome"],
        unexpected=row["unexpected"],
        rows=row["rows"],
    )


def limits(study: Row, manifest: Row, bundles: Mapping[str, Bundle], figures: Figures, target: str) -> LimitsSection:
    """What the scores were made with."""
    judge = study.get("judge", {})
    judge_names = [str(judge[key]) for key in ("protocol", "backend", "model") if judge.get(key)]
    splits = [f"{key} {value}" for key, value in study.get("split", {}).items()]
    facts = (
        ("Run", str(manifest.get("run_id", ""))),
        ("Grade digest", str(manifest.get("grade_digest", ""))),
        ("Rubrics", _rubrics(bundles)),
        ("Judge", ", ".join(judge_names)),
        ("Human score that counts", TARGETS.get(target) or say.name(target)),
        ("Split", ", ".join(splits)),
        ("Intervals", _intervals(study.get("evaluation", {}).get("draws", 0), figures)),
        ("Code", f"commit {_commit(manifest.get('git', {}))}"),
        ("Written", str(manifest.get("written", ""))),
    )
    versions = ", ".join(f"{name} {version}" for name, version in manifest.get("versions", {}).items())
    return LimitsSection("The same inputs give the same scores", facts, versions, str(study.get("name", "")))


def _rubrics(bundles: Mapping[str, Bundle]) -> str:
    ids = sorted({bundle.bundle_id for bundle in bundles.values()})
    shown = ", ".join(bundle_id[:12] for bundle_id in ids[:6])
    return f"{say.plural(len(ids), 'bundle')}: {shown}{' …' if len(ids) > 6 else ''}"


def _intervals(draws: int, figures: Figures) -> str:
    by = figures.resampled
    intervals = f"95%, {say.plural(draws, 'bootstrap draw')} of whole {by}s" if by else "none"
    if figures.undefined_draws:
        intervals += f"; a metric was undefined in up to {say.count(figures.undefined_draws)} of them"
    return "; ".join((intervals, *figures.cautions))


def _commit(git: Mapping[str, Any]) -> str:
    if not git:
        return say.NOT_KNOWN
    return f"{git['commit'][:12]}{', with uncommitted changes' if git.get('dirty') else ''}"

"""Whether the promise of release holds, and how much it lets out: python tests/studies/promise.py simulate|sets

simulate: classes whose truth is known, 250 studies a cell; a promise is broken where more of what it releases is wrong
than it says. sets: recorded judges with people's scores, held-out responses.
`test` is the fixed sequence on the risk that the distribution of residuals tells; `after` the fixed sequence on the
learned risk, where it beats a constant, as it is.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from recorded_sets import SETS  # isort: split

import numpy as np
import pandas as pd
import recorded_tasks
from promise_world import TOLERANCE, World, drawn, wrongness

from rubricflow.tasks.core.contracts.settings.study import Calibration, Release
from rubricflow.tasks.core.stats.arrays import Bools, Floats
from rubricflow.tasks.core.stats.probability import aurc, oracle_aurc, random_aurc
from rubricflow.tasks.core.stats.promise import exact_interval, promise
from rubricflow.tasks.grading.calibrate.choose import decide
from rubricflow.tasks.grading.calibrate.features import LONE
from rubricflow.tasks.grading.calibrate.fit import outcome
from rubricflow.tasks.grading.calibrate.methods import CrossFitted, apply_to_labels, cross_fit, folds
from rubricflow.tasks.grading.calibrate.release import ReleaseCandidates, Scope, release_candidates, seen_levels
from rubricflow.tasks.grading.calibrate.rows import LabelledRows
from rubricflow.tasks.grading.calibrate.spread import Placed, Spread, error_risk, risks, sigmas

STUDIES = 250
SIZES = (50, 100, 200)
CONFIDENCE = 0.9
NEW = 1000
"""New responses to each simulated item."""
WORLDS = [World(raters, clustered, 0.6) for raters in (1, 2) for clustered in (False, True)]
WORLDS += [World(1, clustered, 1.0, blind=True) for clustered in (False, True)]


class Fitted(NamedTuple):
    """Labels with their risks, as told and as learned, and new rows with theirs."""

    vouching: dict[str, dict[str, ReleaseCandidates]]
    new: LabelledRows
    level: Floats
    open: Bools
    risk: dict[str, Floats]


def promised(how: str, rows: dict[str, ReleaseCandidates], target: float) -> float:
    """Largest risk released, below 0 where nothing is."""
    one = rows["told" if how == "test" else "learned"]
    made = promise(one.risk, one.wrong, target, CONFIDENCE, one.cluster, one.constant if how == "after" else None)
    return -1.0 if made.threshold is None else made.threshold


def fitted(labels: LabelledRows, tried: CrossFitted, fold: np.ndarray, new: LabelledRows, tolerance: float) -> Fitted:
    """The release of new rows by labels and their cross-fitted scores."""
    release = Release(tolerance=tolerance, confidence=CONFIDENCE)
    spread, learned, _ = outcome(labels, tried, fold, release)
    told = learned._replace(risk=learned.by_distribution)
    seen = seen_levels(labels)
    by_item: dict[str, dict[str, ReleaseCandidates]] = {}
    for kind, rows in (("told", told), ("learned", learned)):
        for item, part in release_candidates(Scope(labels, rows), seen, tolerance).items():
            by_item.setdefault(item, {})[kind] = part
    mapped = apply_to_labels(tried.mapping, new, tried.weight)
    level = new.levels(mapped.aligned)
    steps = np.array([scale.step for scale in new.scales])[new.item]
    lowest = np.array([scale.min for scale in new.scales])[new.item]
    known = [np.array(seen[item]) for item in new.items]
    scores = lowest + steps * level
    there = np.array(
        [np.abs(known[at] - score).min(initial=np.inf) < 1e-6 for at, score in zip(new.item, scores, strict=True)]
    )
    return Fitted(by_item, new, level, there & ~mapped.clipped, _risks(spread, new, mapped.aligned, level))


def _risks(spread: Spread, new: LabelledRows, aligned: Floats, level: Floats) -> dict[str, Floats]:
    signals = new.matrix[:, [at for at, name in enumerate(new.names) if name in LONE]]
    sigma = sigmas(spread.sigma, aligned, signals) / (new.high - new.low) * new.top
    steps, epsilon = new.steps(aligned), np.array(spread.epsilon)
    told = risks(steps, sigma, level, new.top, epsilon, spread.tolerance, spread.grain)
    if spread.errors is None:
        return {"told": told, "learned": told}
    effect = np.array([spread.errors.effect(item) for item in new.items])[new.item]
    return {"told": told, "learned": error_risk(spread.errors, Placed(steps, level, new.top, told), new.matrix, effect)}


def together(parts: dict[str, dict[str, ReleaseCandidates]]) -> dict[str, ReleaseCandidates]:
    """The vouching rows of all items as one."""
    kinds = ("told", "learned")
    return {
        kind: ReleaseCandidates(
            *(np.concatenate(column) for column in zip(*(part[kind] for part in parts.values()), strict=True))
        )
        for kind in kinds
    }


def released(how: str, case: Fitted, target: float, by: str) -> Iterator[tuple[str, Bools, Bools]]:
    """(scope, its new rows, those of them that go out)."""
    risk = case.risk["told" if how == "test" else "learned"]
    scopes = {"all": together(case.vouching)} if by == "set" else case.vouching
    for scope, rows in scopes.items():
        mine = np.full(len(risk), by == "set") | (case.new.item == [*case.new.items, "all"].index(scope))
        yield scope, mine, mine & case.open & (risk <= promised(how, rows, target))


def simulate(targets: tuple[float, ...]) -> None:
    """Broken promises among studies that promise or not, beside what is let out and what of it is wrong."""
    rows = []
    for number, world in enumerate(WORLDS):
        for n in SIZES:
            counted: dict[tuple[str, str, float], list[tuple[float, float, bool]]] = {}
            for study in range(STUDIES):
                rng = np.random.default_rng([number, n, study])
                labels, _ = drawn(world, n, rng)
                new, truth = drawn(replace(world, clustered=False), NEW, rng)
                fold = folds(labels.cluster)
                case = fitted(labels, cross_fit("linear", labels, fold, 2.5), fold, new, TOLERANCE)
                wrong = wrongness(case.level, truth, world.raters, TOLERANCE)
                for by in ("set", "item"):
                    for target in targets:
                        for how in ("test", "after"):
                            for _, mine, out in released(how, case, target, by):
                                share = float(wrong[out].mean()) if out.any() else np.nan
                                counted.setdefault((by, how, target), []).append(
                                    (out.sum() / mine.sum(), share, share > target)
                                )
            rows += [_row(f"{world}", n, *key, cells) for key, cells in counted.items()]
        _table(f"{world}", rows[-len(SIZES) * 4 * len(targets) :])
    _summary(rows)


def _row(
    world: str, n: int, by: str, how: str, target: float, cells: list[tuple[float, float, bool]]
) -> dict[str, object]:
    coverage, share, broken = (np.array(column, dtype=float) for column in zip(*cells, strict=True))
    low, high = exact_interval(int(broken.sum()), len(broken))
    return {
        "world": world,
        "labels": n,
        "by": by,
        "target": target,
        "how": how,
        "promises": float((coverage > 0).mean()),
        "coverage": coverage.mean(),
        "wrong": float(np.nanmean(share)) if (coverage > 0).any() else np.nan,
        "broken": broken.mean(),
        "low": low,
        "high": high,
        "n": len(broken),
    }


def _summary(rows: list[dict[str, object]]) -> None:
    frame = pd.DataFrame(rows)
    beyond = frame[frame["low"] > 1 - CONFIDENCE]
    _table(f"cells of {len(frame)} whose broken share lies above {1 - CONFIDENCE:.0%} with its interval", beyond)
    cells = frame.groupby(["by", "target", "labels", "how"], sort=False)
    means = cells[["promises", "coverage", "wrong", "broken"]].mean()
    _table("means over worlds", means.join(cells["broken"].max().rename("most broken")).reset_index())


def sets(targets: tuple[float, ...]) -> None:
    """Coverage at equal risk on held-out responses of recorded judges, and the ranking of risk."""
    rows = []
    for name in ("sas_sampled", "sas_freeform", "asap_aes", "physics", "summeval", "topical_chat"):
        one = SETS[name]()
        for task in recorded_tasks.tasks(name, one):
            tolerances = (1.0, 3.0) if name in ("summeval", "topical_chat") else (0.0, 1.0)
            for size in SIZES:
                for repeat in range(3):
                    rows += _measured(name, task.labels, size, repeat, tolerances, targets)
    frame = pd.DataFrame(rows)
    keys = ["set", "tolerance"]
    ranking = frame.drop_duplicates([*keys, "task", "labels", "repeat"])
    _table(
        "ranking of wrong scores by risk",
        ranking.groupby(keys)[["wrong of all", "test", "after", "random", "oracle"]].mean().reset_index(),
    )
    figures = ["out test", "out after", "wrong test", "wrong after", "over test", "over after"]
    wide = frame.groupby([*keys, "target"])[figures]
    _table("held-out responses", wide.mean().join(wide.size().rename("studies")).reset_index())


def _measured(
    name: str, labels: LabelledRows, size: int, repeat: int, tolerances: tuple[float, ...], targets: tuple[float, ...]
) -> Iterator[dict[str, object]]:
    chosen = recorded_tasks.split(labels, size, repeat)
    some, held = labels.take(chosen), labels.take(~chosen)
    if len(some) < 0.8 * size or len(held) < 2 * min(SIZES):
        return
    decision = decide(some, Calibration())
    if decision.tried is None:
        return
    for tolerance in tolerances:
        case = fitted(some, decision.tried, decision.fold, held, tolerance)
        wrong = np.abs(held.steps(held.human) - case.level) > tolerance + 1e-9
        if not wrong.any():
            continue
        loss = wrong.astype(float)
        ranked = {"test": aurc(loss, -case.risk["told"]), "after": aurc(loss, -case.risk["learned"])}
        ranked |= {"random": random_aurc(loss), "oracle": oracle_aurc(loss), "wrong of all": loss.mean()}
        for target in targets:
            row = {"set": name, "task": id(labels), "labels": size, "repeat": repeat, "tolerance": tolerance} | ranked
            for how in ("test", "after"):
                ((_, _, out),) = released(how, case, target, "set")
                share = wrong[out].mean() if out.any() else np.nan
                row |= {f"out {how}": out.mean(), f"wrong {how}": share, f"over {how}": float(share > target)}
            yield row | {"target": target}


def _table(title: str, rows: object) -> None:
    print(f"\n== {title}", flush=True)
    print(pd.DataFrame(rows).to_string(index=False, float_format="%.3f", na_rep="–"), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("part", choices=["simulate", "sets"])
    parser.add_argument("--target", type=float, nargs="*", default=[0.1])
    given = parser.parse_args()
    warnings.filterwarnings("ignore", category=RuntimeWarning)
    targets = tuple(given.target)
    {"simulate": simulate, "sets": sets}[given.part](targets)


if __name__ == "__main__":
    main()

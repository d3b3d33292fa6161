"""What is a level between the lowest and the highest worth, and what does the checklist's sum gain where it earns that?

    python tests/studies/level_worth.py [SET ...]

Levels that a large model decided, verified, lie in data/results/levels.csv without a word of the answers. `now` and
`was` are the checklists of its checked score: on Mohler and SAF those derived from reference answers today and
before, else the shipped ones; `rulers` are the shipped ones as `rulers` asks. People's scores are read from the data
next to the checkout, the model's plain and checked scores from data/results/*_methods.csv.

Printed is QWK of the sum with people over all answers of a set, with 95 % intervals over answers within questions: as
levels are equally spaced; by the shares that other questions tell (of a single question, other answers); with three
quarters for a middle level; and as `rubric check` proposes it from other questions, which is nothing where it is not
sure. Then how many checked scores their own checklist contradicts, and how far from people's scores these and the
others are, as a share of the scale. Last, the shares of one derived set on the other, and the demo.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np
import pandas as pd
from builders.bundles import THREE, bundle, criterion
from builders.command import done
from doctor import DRAWS, SCORES, people

from rubricflow.flows.rubric import read_rubrics
from rubricflow.tasks.core.contracts.bundle import Bundle
from rubricflow.tasks.core.contracts.settings.judge import Judge
from rubricflow.tasks.core.stats.agreement import qwk
from rubricflow.tasks.core.stats.arrays import Floats
from rubricflow.tasks.grading.lock.bundles import lock
from rubricflow.tasks.grading.lock.rubric import authored
from rubricflow.tasks.grading.rubrics.item_analysis import ScoredAnswers, scored_answers
from rubricflow.tasks.grading.rubrics.level_worth import LevelWorth, level_worths

DATA = Path(__file__).resolve().parents[2] / "data"
RUBRICS = {"asap_sas_eight": "asap_sas", "enem": "enem_essays", "asap_aes": "asap_aes"}
ARMS = {
    "mohler": ("now", "was"),
    "saf": ("now", "was"),
    "asap_sas_eight": ("rulers",),
    "enem": ("rulers", "was"),
    "asap_aes": ("was",),
}
Answers = dict[str, ScoredAnswers]
"""Question → its answers; of sets with shipped rubrics by the rubric's name."""
Paid = dict[tuple[str, ...], tuple[float, ...]]
"""Wording of levels → what they earn."""


def read(name: str, arm: str) -> tuple[Answers, pd.DataFrame]:
    """The answers by question, and a row of each in the same order: item, human, low, high, step, plain and stated."""
    told = pd.read_csv(SCORES / "levels.csv", dtype=str).query("set == @name and arm == @arm")
    scores = pd.read_csv(SCORES / f"{name}_methods.csv", dtype={"response_id": str})
    wide = scores.pivot(index="response_id", columns="arm", values="score")
    frame = people(name).merge(told[["response_id", "levels"]], on="response_id").sort_values(["item", "response_id"])
    frame = frame.assign(plain=wide["plain"].loc[frame["response_id"]].to_numpy(), item=frame["item"].astype(str))
    if arm in wide and arm != "rulers":
        frame = frame.assign(stated=wide[arm].loc[frame["response_id"]].to_numpy())
    shipped = authored(DATA / "studies" / f"{RUBRICS[name]}_rubrics.yaml") if name in RUBRICS else {}
    answers: Answers = {}
    for item, part in frame.groupby("item"):
        rows = [dict(pair.split("=") for pair in levels.split()) for levels in part["levels"]]
        levels = pd.DataFrame(rows, dtype=float)
        rubric = shipped.get(str(item)) or next(iter(shipped.values()), None)
        if rubric:
            of = lock(rubric, Judge.model_validate({"protocol": "rulers"}).as_protocol())
        else:
            ends = tuple(part[["low", "high", "step"]].iloc[0])
            points = (criterion(name, levels=THREE) for name in levels)
            of = bundle(*points, ends=ends, final_score="weighted_points")
        own = part.rename(columns={"human": "score"})[["response_id", "score", "text"]].reset_index(drop=True)
        own = own.assign(cluster=own["response_id"], credited=[()] * len(own))
        answers[str(item)] = ScoredAnswers(of, own, levels[[one.id for one in of.criteria]])
    return answers, frame.reset_index(drop=True)


def earning(of: Bundle, paid: Callable[[tuple[str, ...]], tuple[float, ...] | None]) -> Bundle:
    """The bundle whose levels earn what is paid for their wording; those of counted sub-points as they are."""
    counting = {composite.id for composite in of.composites if composite.count}
    criteria = tuple(
        one.model_copy(update={"earns": paid(one.levels) or one.earns}) if one.parent not in counting else one
        for one in of.criteria
    )
    return of.model_copy(update={"criteria": criteria})


def sums(answers: Answers, paid: Callable[[tuple[str, ...]], tuple[float, ...] | None]) -> Floats:
    """The checklists' sums, on the scale, by question."""
    return np.concatenate([one._replace(bundle=earning(one.bundle, paid)).total for one in answers.values()])


def three_quarters(levels: tuple[str, ...]) -> tuple[float, ...] | None:
    return (0.0, 0.75, 1.0) if len(levels) == 3 else None


def held_out(answers: Answers, is_told: Callable[[LevelWorth], bool]) -> Floats:
    """The sums, each question's by what the other questions tell; of a single question each fifth's by the others."""
    parts = []
    if len(answers) > 1:
        for item, one in answers.items():
            others = {name: other for name, other in answers.items() if name != item}
            paid = {worth.levels: worth.earns for worth in level_worths(others, 200, 0) if is_told(worth)}
            parts.append(sums({item: one}, paid.get))
        return np.concatenate(parts)
    ((item, one),) = answers.items()
    fold, made = np.arange(len(one.rows)) % 5, np.zeros(len(one.rows))
    for number in range(5):
        teach, new = (one._replace(rows=one.rows[at], levels=one.levels[at]) for at in (fold != number, fold == number))
        paid = {worth.levels: worth.earns for worth in level_worths({item: teach}, 200, 0) if is_told(worth)}
        made[fold == number] = sums({item: new}, paid.get)
    return made


def agreed(frame: pd.DataFrame, column: str) -> float:
    """QWK over all answers, as shares of their scales where these differ; undefined is 0."""
    low, span = frame["low"], frame["high"] - frame["low"]
    step = float((frame["step"] / span).min())
    return (
        qwk(((frame["human"] - low) / span).to_numpy(), ((frame[column] - low) / span).to_numpy(), 0, 1, step).value
        or 0
    )


def redrawn(frame: pd.DataFrame, columns: list[str]) -> pd.DataFrame:
    luck, parts = np.random.default_rng(0), [part for _, part in frame.groupby("item")]
    found = []
    for _ in range(DRAWS):
        again = pd.concat([part.iloc[luck.integers(len(part), size=len(part))] for part in parts])
        found.append({column: agreed(again, column) for column in columns})
    return pd.DataFrame(found)


def compared(answers: Answers, frame: pd.DataFrame) -> Iterator[str]:
    ways = {
        "equal": sums(answers, lambda levels: None),
        "told": held_out(answers, lambda worth: True),
        "quarters": sums(answers, three_quarters),
        "proposed": held_out(answers, lambda worth: worth.is_better),
    }
    frame = frame.assign(**ways)
    columns = [*ways, "plain", *{"first", "other"} & set(frame)]
    again = redrawn(frame, columns)
    for way in [*ways, "plain"]:
        said = f"  {way}: {agreed(frame, way):.3f} [{again[way].quantile(0.025):.3f}, {again[way].quantile(0.975):.3f}]"
        for other in (other for other in ("equal", "plain") if other != way and way != "plain"):
            gap = again[way] - again[other]
            ends = f"[{gap.quantile(0.025):.3f}, {gap.quantile(0.975):.3f}]"
            said += f"; less {other} {agreed(frame, way) - agreed(frame, other):.3f} {ends}"
        yield said
    for worth in level_worths(answers, 2000, 0):
        if worth.is_better or len(answers) == 1 or worth.between > 15:
            yield f"  {'told' if worth.is_better else 'not told'}: {worth.sentence}"
    if "stated" in frame:
        yield from contradictions(frame)


def contradictions(frame: pd.DataFrame) -> Iterator[str]:
    """Checked scores further than a step from their checklist's sum; how far from people these and the others are."""
    low, span, step = frame["low"], frame["high"] - frame["low"], frame["step"]
    error = (frame["stated"] - frame["human"]).abs() / span
    for way in ("equal", "quarters"):
        rounded = low + step * np.floor((frame[way] - low) / step + 0.5 + 1e-9)
        flagged = (rounded - frame["stated"]).abs() > 1.001 * step
        errors = f"error {error[flagged].mean():.3f}, others {error[~flagged].mean():.3f}"
        yield f"  contradicted, {way}: {flagged.sum()} of {len(frame)}, {errors}"


def demo() -> Iterator[str]:
    """What the demo's marks say, whose scores are the checklist's sum by equally spaced levels."""
    with tempfile.TemporaryDirectory() as folder:
        study = DATA / "demo" / "study.yaml"
        done("grade", study, "--warehouse", folder)
        of = read_rubrics(str(study), folder, None)
        answers = scored_answers(of.job.run, of.job.study.evaluation.target, of.bundles)
    found = list(level_worths(answers, 2000, 0))
    n, moved = sum(len(one.rows) for one in answers.values()), [abs(one.earns[1] - one.now[1]) for one in found]
    told = f"{len(found)} wordings of levels: {sum(one.is_better for one in found)} told"
    yield f"  {n} answers, {told}, moved by {np.mean(moved):.2f} in the mean, at most {max(moved):.2f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", nargs="*", default=[*ARMS, "demo"])
    given = parser.parse_args()
    for name in given.sets:
        if name == "demo":
            print("\ndemo", *demo(), sep="\n", flush=True)
            continue
        for arm in ARMS[name]:
            answers, frame = read(name, arm)
            print(f"\n{name}, {arm}: {len(frame)} answers, {len(answers)} questions")
            print(*compared(answers, frame), sep="\n", flush=True)
            other = {"mohler": "saf", "saf": "mohler"}.get(name)
            if other:
                (worth,) = level_worths(read(other, arm)[0], 200, 0)
                by_other = sums(answers, lambda levels, earns=worth.earns: earns)
                told = frame.assign(equal=sums(answers, lambda levels: None), other=by_other)
                drawn = redrawn(told, ["equal", "other"])
                low, high = (drawn["other"] - drawn["equal"]).quantile([0.025, 0.975])
                gain = agreed(told, "other") - agreed(told, "equal")
                print(f"  by {other}'s {worth.earns[1]:g}: gain {gain:.3f} [{low:.3f}, {high:.3f}]", flush=True)


if __name__ == "__main__":
    main()

"""What the marks of a small class are worth, held out by half and crossed: python tests/studies/classes.py --risk 0.1

Classes of one question whose truth is known, through the real fit of items, release and prediction. `half` holds half
of the marks out to measure on, `cross` lets every mark teach and vouch. A promise is broken where of 1,000 new answers
like those of the class more of what it releases is wrong than it says; `class broken` looks at the class's own unmarked
answers in their place. `permuted`: classes in which something is released although marks were dealt out by chance.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
from scipy.stats import binom

TESTS = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS), str(TESTS / "tasks" / "grading" / "calibrate")]

from builders.studies import study  # noqa: E402
from coverage_scene import Case, marked  # noqa: E402

from rubricflow.tasks.core.contracts.settings.study import Study  # noqa: E402
from rubricflow.tasks.grading.calibrate import choose  # noqa: E402
from rubricflow.tasks.grading.calibrate.fit import fit_items  # noqa: E402
from rubricflow.tasks.grading.calibrate.predict import predict  # noqa: E402
from rubricflow.tasks.grading.calibrate.rows import Item  # noqa: E402
from rubricflow.tasks.grading.evaluate.released import binomial  # noqa: E402

SIZES = (20, 40, 60, 120, 300)
NEW = 1000


def splits(how: str, answers: int, with_mark: int) -> list[str]:
    """Of a class, then of the new answers: the first ones are marked."""
    calibrating = with_mark // 2 if how == "half" else with_mark
    side = "calibration" if how == "half" else "crossed"
    return [side] * calibrating + ["test"] * (answers - calibrating + NEW)


def measured(item: Item, how: str, answers: int, with_mark: int, plan: Study, permuted: bool) -> dict[str, float]:
    """One class: whether it promises, what goes out of it and of new answers, and whether that breaks the promise."""
    rows = item.rows.set_column(
        item.rows.column_names.index("split"), "split", pa.array(splits(how, answers, with_mark))
    )
    truth = rows["target"].to_numpy()
    if permuted:
        dealt = np.concatenate([np.random.default_rng(answers).permutation(truth[:answers]), truth[answers:]])
        rows = rows.set_column(rows.column_names.index("target"), "target", pa.array(dealt))
    fitted = fit_items([item._replace(rows=rows)], "judge", plan)
    found = predict(fitted.mappings["q"], item._replace(rows=rows))
    out = np.array(found["route"].to_pylist()) == "release"
    off = np.abs(found["score"].to_numpy() - truth) > plan.release.tolerance + 1e-9
    new, own = np.arange(len(rows)) >= answers, np.arange(len(rows)) < answers
    unmarked = own & (np.arange(len(rows)) >= with_mark) & out
    wrong, went = int(off[new & out].sum()), int((new & out).sum())
    (rule,) = fitted.release_rules
    return {
        "promises": rule["threshold"] is not None,
        "of class": out[own].mean(),
        "of new": out[new].mean(),
        "wrong": wrong / went if went else np.nan,
        # Of so many counted answers chance alone puts half the promises that just hold above the target.
        "broken": went > 0 and binom.sf(wrong - 1, went, plan.release.risk) < 0.5,
        "class broken": bool(off[unmarked].sum() > plan.release.risk * unmarked.sum()),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--risk", type=float, default=0.1)
    parser.add_argument("--noise", type=float, default=0.08)
    parser.add_argument("--classes", type=int, default=200)
    parser.add_argument("--method", default="linear")
    parser.add_argument("--sizes", type=int, nargs="*", default=SIZES)
    given = parser.parse_args()
    warnings.filterwarnings("ignore", category=RuntimeWarning)
    choose.STANDARD = (given.method, "identity")  # the others are not taken, and their trials take most of the time
    plan = study(calibration={"method": given.method}, release={"risk": given.risk, "by": "set"})
    lines = []
    for answers in given.sizes:
        for share, with_mark in (("half", answers // 2), ("all", answers)):
            for how in ("half", "cross"):
                rows, dealt = list[dict[str, float]](), list[bool]()
                for seed in range(given.classes):
                    item = marked(Case((1,), answers, noise=given.noise), seed, NEW)
                    rows.append(measured(item, how, answers, with_mark, plan, False))
                    dealt.append(bool(measured(item, how, answers, with_mark, plan, True)["promises"]))
                frame = pd.DataFrame(rows).astype(float)
                line = {"answers": answers, "marked": share, "how": how}
                line["count"] = with_mark // 2 if how == "half" else with_mark
                line |= {name: frame[name].mean() for name in ("promises", "of class", "of new", "wrong")}
                for name in ("broken", "class broken"):
                    ends = binomial(int(frame[name].sum()), len(frame))
                    assert ends
                    line |= {name: frame[name].mean(), f"{name} ends": f"{ends.low:.3f} to {ends.high:.3f}"}
                line["permuted"] = np.mean(dealt)
                lines.append(line)
                print(pd.DataFrame([line]).to_string(index=False, header=len(lines) == 1), flush=True)
    print(f"\n{given.method}, risk {given.risk}, noise {given.noise}, {given.classes} classes a row, 90 % confidence")
    print(pd.DataFrame(lines).to_string(index=False, float_format="%.3f"))


if __name__ == "__main__":
    main()

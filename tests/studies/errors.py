"""The errors of real judges that `knowledge.World` is given: python tests/studies/errors.py --data FOLDER

devai: an agent's judge beside people, children apart by whether people fail a parent. summhay: six judges and people;
false credit of what people call not covered, how alike it is within an insight (moments of a beta-binomial), and what
length and position do to it (logistic regressions, with standard errors).
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.optimize import minimize


def devai(data: Path) -> pd.DataFrame:
    """Shares credited, by what people say of the requirement and of its prerequisites."""
    verdicts = pd.read_parquet(data / "verdicts.parquet")
    needed = pd.read_parquet(data / "requirements.parquet")
    parents = {(row.task, row.requirement_id): json.loads(row.prerequisites_json) for row in needed.itertuples()}
    keys = ["task", "agent", "requirement_id"]
    both = verdicts.pivot(index=keys, columns="rater", values="satisfied").rename(columns=str).reset_index()
    judge = next(name for name in both if "judge" in name)
    people = both.set_index(keys)["human"]
    which = []
    for row in both.itertuples():
        before = [
            people.get((row.task, row.agent, parent)) for parent in parents.get((row.task, row.requirement_id), ())
        ]
        which.append("no parent" if not before else "parents hold" if all(before) else "a parent fails")
    groups = both.assign(parents=which, credited=both[judge].astype(float))
    parts = [groups, groups.assign(parents="all")]
    return pd.concat(parts).groupby(["parents", "human"])["credited"].agg(["mean", "count"]).round(3)


def summhay(data: Path) -> pd.DataFrame:
    """A row for each judge."""
    people = pd.read_parquet(data / "criteria_human.parquet")
    summaries = pd.read_parquet(data / "summaries.parquet").set_index("summary_id")
    bullets = summaries["summary_json"].map(json.loads)
    rows = pd.read_parquet(data / "judge_verdicts.parquet").merge(people, on=["summary_id", "insight_id"])
    rows = rows.assign(
        credited=(rows["level"] > 0).astype(float),
        doublings=np.log2(rows["summary_id"].map(bullets.map(lambda all_: sum(len(one.split()) for one in all_)))),
        place=rows["human_bullet"] / rows["summary_id"].map(summaries["n_bullets"]),
    )
    lines = []
    for judge, mine in rows.groupby("judge"):
        absent, whole = mine[mine["human_level"] == 0], mine[mine["human_level"] == 2]
        given = mine[(mine["human_level"] > 0) & mine["place"].notna()]
        lines.append(
            {
                "judge": judge,
                "false credit": absent["credited"].mean(),
                "n": len(absent),
                "within an insight": alike(absent),
                "by length": slope(absent["doublings"], absent["credited"]),
                "hits": whole["credited"].mean(),
                "hits by position": slope(given["place"], given["credited"]),
            }
        )
    return pd.DataFrame(lines).set_index("judge").round(3)


def alike(rows: pd.DataFrame) -> float:
    """Intraclass correlation of yes and no within an insight, by moments, of insights seen twice or more."""
    of = rows.groupby("insight_id")["credited"].agg(["mean", "count"]).query("count >= 2")
    mean = rows["credited"].mean()
    spread = ((of["mean"] - mean) ** 2 * of["count"]).sum() / (mean * (1 - mean))
    return float((spread - len(of)) / (of["count"].sum() - len(of)))


def slope(x: pd.Series, y: pd.Series) -> str:
    """Of a logistic regression on one column, with its standard error."""
    columns, yes = np.column_stack([np.ones(len(x)), x - x.mean()]), y.to_numpy()

    def loss(b: np.ndarray) -> float:
        return float(np.logaddexp(0, columns @ b).sum() - yes @ columns @ b)

    b = minimize(loss, np.zeros(2)).x
    p = 1 / (1 + np.exp(-columns @ b))
    error = np.sqrt(np.linalg.pinv(columns.T @ (columns * (p * (1 - p))[:, None]))[1, 1])
    return f"{b[1]:.2f} ({error:.2f})"


def main() -> None:
    """Print both."""
    words = argparse.ArgumentParser()
    words.add_argument("--data", type=Path, default=Path("../shared/data"))
    given = words.parse_args()
    with pd.option_context("display.width", 200, "display.max_columns", 20):
        print(devai(given.data / "devai"), summhay(given.data / "summhay").T, sep="\n\n")


if __name__ == "__main__":
    main()

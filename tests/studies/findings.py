"""What came of five papers' claims, measured here: `python tests/studies/findings.py [rulers] [gradeagentops] [gear]
[rec_cbm] [edit]`, all where none is named; `make findings` in a night of two cores.

A line is printed as soon as it is known, the table at the end, as docs/findings.md shows it. Data sets and what large
models replied about them stand under licences that keep them out of this checkout: a part whose data are not beside it
is SKIPPED, and says so; of the replies only scores lie here (data/results/*.csv). What is finished is not done again.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import five_methods
import graphs
import numpy as np
import pandas as pd
import phase_three
import yaml
from recorded_sets import DATA, need

from rubricflow.flows.bottleneck import bottleneck
from rubricflow.flows.edit import edit
from rubricflow.flows.laboratory import laboratory
from rubricflow.flows.reward import reward
from rubricflow.tasks.core.contracts.tables.bottleneck import Interventions, Trials
from rubricflow.tasks.core.contracts.tables.edit import ArmMetrics
from rubricflow.tasks.core.contracts.tables.reward import Diagnostics, EdgeCases
from rubricflow.tasks.core.store.warehouse import Warehouse

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "build" / "findings"
HOUSE = str(FOLDER / "house")
Line = tuple[str, str]
"""What is measured, and the figure with its interval and n."""


def rulers_essays() -> Iterator[Line]:
    judges = phase_three.of_judges(20)
    yield "phase III less the raw total, QWK, 12 judges, 275 essays", phase_three.gain(judges, "raw")
    yield "less the ridge without the map", phase_three.gain(judges, "traits and length, ridge alone")
    yield "five criteria less their total, both mapped", phase_three.gain(judges, "total and length, phase III")


def rulers_answers() -> Iterator[Line]:
    found = five_methods.measured().set_index(["way", "method"])
    for way in ("raw", "paper", "alike"):
        row = found.loc[(way, "rulers")]
        figure = told(row["- dhs"], row["low "], row["high "], row["n"])
        yield f"a large model's checklist less asking plainly, QWK, {way}", figure
    five = five_methods.inductions().set_index(["way", "induction"])
    for row in ("mean", "sd", "mean less dhs"):
        value, low, high, n = five.loc[("alike", row), ["QWK", "low", "high", "n"]]
        yield f"QWK by phase III of five checklists of the same guides: {row}", told(value, low, high, n)


def gradeagentops() -> Iterator[Line]:
    answers = pd.read_parquet(need("asap_sas", "answers.parquet")).astype({"answer_id": str}).set_index("answer_id")
    table = pd.read_csv(ROOT / "data" / "results" / "gradeagentops_asap_sas.csv", dtype={"response_id": str})
    wide = table.pivot(index="response_id", columns="arm")
    human = answers.loc[wide.index, "score_rater1"].to_numpy(float)
    first = table[table["arm"] == "B0"]
    yield (
        "a large model's first replies: quotes that fail, of all",
        f"{first.failed.sum():.0f} of {first.quotes.sum():.0f}",
    )
    rng = np.random.default_rng(0)
    drawn = rng.integers(0, len(human), (10_000, len(human)))
    strong = [("M1", "B0"), ("C1", "B0"), ("FULL", "B0"), ("1.5B R1", "B0")]
    for better, base in (*strong, ("1.5B M2", "1.5B R1"), ("1.5B C1", "1.5B R1"), ("1.5B FULL", "1.5B M2")):
        less = np.abs(wide["score", base] - human).to_numpy() - np.abs(wide["score", better] - human).to_numpy()
        yield f"error of {base} less that of {better}, points of 3", told(less.mean(), *ends(less[drawn]), len(less))


def gear() -> Iterator[Line]:
    folder = FOLDER / "devai"
    folder.mkdir(parents=True, exist_ok=True)
    need("devai", "tasks.parquet")
    study = graphs.devai(DATA, folder, "all") | {"name": "devai", "marks": "calibrate", "rubrics": graphs.RUBRICS}
    study["graph"] = {"file": "people.yaml"}
    run_id = reward(written(folder, study), HOUSE)
    found = frame(Diagnostics, run_id, "reward")
    for metric, arms in (("leakage", ("flat", "gear")), ("preservation", ("hard_local", "gear"))):
        rows = found[(found["metric"] == metric) & (found["per"] == "edge")]
        for arm, part in ((arm, part) for part in ("all", "3 parents or more") for arm in arms):
            row = rows[(rows["aggregation"] == arm) & (rows["slice"] == part)].iloc[0]
            yield (
                f"DevAI, people's graphs and verdicts: {metric}, {arm}, {part}",
                told(row.value, row.low, row.high, row.n),
            )
    cases = frame(EdgeCases, run_id, "reward").query("state == 'satisfied'")
    kept = cases.pivot(index=["item_id", "response_id", "parent", "child"], columns="aggregation", values="preserved")
    for gates in ("hard_verdict", "hard_propagated"):
        less = (kept["gear"] - kept[gates]).groupby(level="item_id").agg(["sum", "size"]).to_numpy()
        drawn = less[np.random.default_rng(0).integers(0, len(less), (10_000, len(less)))].sum(axis=1)
        low, high = np.quantile(drawn[:, 0] / drawn[:, 1], [0.025, 0.975])
        value = less[:, 0].sum() / less[:, 1].sum()
        yield f"preservation, GEAR less {gates}, by tasks", told(value, low, high, len(kept))


def rec_cbm() -> Iterator[Line]:
    folder = FOLDER / "reading6"
    folder.mkdir(parents=True, exist_ok=True)
    need("asap_aes", "essays.parquet")
    studies = ROOT / "data" / "studies"
    study = yaml.safe_load((studies / "asap_aes_reading6_concepts.yaml").read_text())
    study["data"]["folder"] = str(DATA / "asap_aes")
    study["rubrics"]["file"] = str(studies / study["rubrics"]["file"])
    study["split"]["shares"] = [0.45, 0.15, 0.4]
    study["bottleneck"]["methods"] = ["rec_cbm", "vanilla_cbm", "plm"]
    run_id = bottleneck(written(folder, study), HOUSE)
    tested = frame(Trials, run_id, "bottleneck").query("split == 'test' and metric == 'task_qwk'")
    for method in study["bottleneck"]["methods"]:
        yield f"QWK of {method}, mean ± SD over seeds", over_seeds(tested[tested["method"] == method])
    steps = frame(Interventions, run_id, "bottleneck")
    steps = steps.query("method == 'rec_cbm' and metric == 'task_qwk' and order == 'confidence' and asked == 4")
    for kind in ("oracle", "random"):
        rows = steps[steps["kind"] == kind].assign(value=lambda part: part["change"])
        yield f"all four concepts set to {kind} labels: QWK gained", over_seeds(rows)


def edit_arms() -> Iterator[Line]:
    """The laboratory's study as it is shipped, all arms and seeds. Its trainings take hours: a run that has come to its
    end is read, also one that another version of the code had begun."""
    house = Warehouse.open(HOUSE)
    runs = [name for name in house.begun() if name.startswith("laboratory-") and house.run(name).done("edit", "worth")]
    run_id = runs[-1] if runs else edit(str(laboratory(FOLDER / "laboratory")), HOUSE)
    print(f"edit: the laboratory's run {run_id}", flush=True)
    metrics = frame(ArmMetrics, run_id, "edit").query("metric == 'qwk' and part == 'unseen'")
    for arm in dict.fromkeys(metrics["arm"]):
        yield f"the laboratory, unseen questions: QWK of {arm}, mean ± SD", over_seeds(metrics[metrics["arm"] == arm])


def frame(row: Any, run_id: str, stage: str) -> pd.DataFrame:
    """A table of a finished run."""
    return Warehouse.open(HOUSE).run(run_id).table(row, stage).to_pandas()


def written(folder: Path, study: dict[str, Any]) -> str:
    """The file of a study."""
    (folder / "study.yaml").write_text(yaml.safe_dump(study, sort_keys=False))
    return str(folder / "study.yaml")


def told(value: float, low: float, high: float, n: int) -> str:
    return f"{value:.3f} [{low:.3f}, {high:.3f}], n {n:.0f}"


def over_seeds(rows: pd.DataFrame) -> str:
    spread = f" ± {rows['value'].std():.3f}" if len(rows) > 1 else ""
    return f"{rows['value'].mean():.3f}{spread}, seeds {len(rows)}, n {rows['n'].iloc[0]:.0f}"


def ends(drawn: np.ndarray) -> tuple[float, float]:
    low, high = np.quantile(drawn.mean(axis=1), [0.025, 0.975])
    return float(low), float(high)


PAPERS: dict[str, tuple[Callable[[], Iterator[Line]], ...]] = {
    "rulers": (rulers_essays, rulers_answers),
    "gradeagentops": (gradeagentops,),
    "gear": (gear,),
    "rec_cbm": (rec_cbm,),
    "edit": (edit_arms,),
}
"""Paper → its parts, each of one data set."""


def main(papers: list[str]) -> None:
    table = ["| paper | what | here | minutes |", "|---|---|---|---|"]
    for paper, part in [(name, part) for name in papers or PAPERS for part in PAPERS[name]]:
        began = time.monotonic()
        try:
            for what, figure in part():
                print(f"{paper}: {what}: {figure}", flush=True)
                table.append(f"| {paper} | {what} | {figure} | {(time.monotonic() - began) / 60:.1f} |")
        except SystemExit as missing:  # `need` ends a script; what needs another set is measured all the same
            print(f"SKIPPED: {paper}, {part.__name__}: {missing}", flush=True)
            table.append(f"| {paper} | SKIPPED, {part.__name__}: {missing} | | |")
    print("\n".join(table))


if __name__ == "__main__":
    main(sys.argv[1:])

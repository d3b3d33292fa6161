"""An experiment from its file to its tables, by the simulated rater over some of the demo."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pandas as pd
import pytest
import yaml
from builders.command import done, refused

from rubricflow.flows.experiment import read_arm, resized
from rubricflow.tasks.core.contracts.settings.study import Study
from rubricflow.tasks.core.store.catalogue import read_manifest
from rubricflow.tasks.core.store.warehouse import Run, Warehouse

DEMO = Path(__file__).resolve().parents[2] / "data" / "demo" / "baseline.yaml"
EXPERIMENT = {
    "name": "trial",
    "study": str(DEMO),
    "reference": "key",
    "overrides": {
        "split": {"calibration": 16},
        "judge": {"backend": "simulated", "truth": {"rater": "key"}, "final_score": None},
        "calibration": {"method": "rulers"},
        "evaluation": {"draws": 50},
    },
    "arms": {"B0": {"judge": {"protocol": "gradeagentops"}}, "whole": {"judge": {"protocol": "dhs"}}},
    "tables": {
        "gradeagentops": {"second": "strict", "baseline": "B0", "full": "whole", "pairs": [["whole", "B0"]]},
        "calibration_size": {"arms": ["whole"], "sizes": [12, 500]},
    },
    "draws": 200,
}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an experiment file and, in `house`, what the command made of it."""
    folder = tmp_path_factory.mktemp("experiment")
    (folder / "trial.yaml").write_text(yaml.safe_dump(EXPERIMENT))
    made_in(folder)
    return folder


def made_in(folder: Path) -> str:
    result = done("experiment", folder / "trial.yaml", "--warehouse", folder / "house", "--limit", "4")
    return result.output


def numbers(folder: Path) -> pd.DataFrame:
    file = folder / "house" / "experiments" / "trial" / "numbers.parquet"
    return duckdb.connect().execute(f"SELECT * FROM '{file}' ORDER BY table_id, row, \"column\"").df()


def runs(folder: Path) -> dict[str, Run]:
    """Arm → its run."""
    house = Warehouse.open(folder / "house")
    return {name.split("-")[1]: house.run(name) for name in house.runs()}


def test_every_table_says_that_the_rater_is_simulated(made: Path) -> None:
    shown = (made / "house" / "experiments" / "trial" / "tables.md").read_text()
    titles = [line for line in shown.splitlines() if line.startswith("## ") and line != "## Runs"]
    assert len(titles) == 9
    assert all("simulated" in title for title in titles)
    # Of a table without a row, such as cases where no answer shows a pattern, `numbers` has nothing.
    filled = {f"## {title}" for title in numbers(made)["title"]}
    assert set(titles) - filled <= {title for title in titles if title.startswith("## Table 11: cases")}


def test_the_errors_are_those_of_the_raw_scores(made: Path) -> None:
    shown = numbers(made).query("table_id == 'gao_5' and `column` == 'MAE'").set_index("label")["value"]
    for name, run in runs(made).items():
        frame = read_arm(name, run).scores
        assert shown[name] == pytest.approx((frame["raw"] - frame["target"]).abs().mean())


def test_a_size_beyond_the_labels_is_not_known(made: Path) -> None:
    shown = numbers(made).query("table_id == 'rulers_11'").set_index("column")["value"]
    assert shown["N = 12"] <= 1
    assert pd.isna(shown["N = 500"])


def test_all_labels_calibrate_as_the_run_did(made: Path) -> None:
    run = runs(made)["whole"]
    study = Study.model_validate(read_manifest(run)["identity"]["study"])
    scores = read_arm("whole", run).scores
    labels = int((scores["split"] == "calibration").sum())
    again = resized(run, study, scores, labels)
    assert again is not None
    assert again["calibrated"].equals(scores["calibrated"])
    assert resized(run, study, scores, labels + 1) is None


def test_finished_arms_are_passed_over_and_an_interrupted_one_goes_on(made: Path) -> None:
    before, arms = numbers(made), runs(made)
    (arms["whole"].folder / "manifest.json").unlink()
    finished = (arms["B0"].folder / "manifest.json").stat().st_mtime_ns
    said = made_in(made)
    assert "arm B0: finished" in said
    assert "arm whole: finished" not in said
    assert (arms["B0"].folder / "manifest.json").stat().st_mtime_ns == finished
    assert (arms["whole"].folder / "manifest.json").is_file()
    pd.testing.assert_frame_equal(numbers(made), before)


def test_a_wrong_arm_ends_the_command_with_its_name(tmp_path: Path) -> None:
    file = tmp_path / "trial.yaml"
    file.write_text(yaml.safe_dump(EXPERIMENT | {"arms": {"B0": {"judge": {"protocol": "guess"}}, "whole": {}}}))
    assert "arms.B0: judge.protocol" in refused("experiment", file, "--warehouse", tmp_path / "house")
    assert not (tmp_path / "house").exists()

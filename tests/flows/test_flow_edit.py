"""A study that trains the arms of Edit: one whole pass, killed in every phase and gone on with, and its report.

The passes run in processes of their own, see edit_driver.py.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from builders.command import last_run

DRIVER = Path(__file__).with_name("edit_driver.py")
PHASES = (
    "signals half written", "before a mark of revisions", "in fine-tuning", "after the adapter is done", "in a look",
    "in a checkpoint of RL", "before the last mark",
)  # fmt: skip
pytestmark = pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="needs /proc to see which file is written")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("edit")


@pytest.fixture(scope="module")
def found(folder: Path) -> dict[str, Any]:
    done = subprocess.run([sys.executable, str(DRIVER), str(folder)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return told


def read(folder: Path, name: str, table: str) -> list[dict[str, Any]]:
    """The rows of a table of the run in a warehouse."""
    from rubricflow.tasks.core.contracts.tables import BY_NAME

    run = last_run(folder / name)
    return list(run.read(run.ref(BY_NAME[table], "edit")).to_pylist())


@pytest.mark.parametrize("phase", PHASES)
def test_a_run_killed_in_a_phase_makes_nothing_finished_again(found: dict[str, Any], phase: str) -> None:
    told = found["phases"][phase]
    assert told["code"] == -9, told["said"]
    assert told["again"] == []


def test_killed_in_every_phase_it_ends_with_the_tables_of_one_that_nobody_killed(found: dict[str, Any]) -> None:
    assert found["whole"]["code"] == 0, found["whole"]["said"]
    assert (found["last"]["code"], found["last"]["again"]) == (0, []), found["last"]["said"]
    whole, killed = found["outcomes"]
    assert len(whole) == 1
    assert killed == whole


def test_training_goes_on_from_its_last_checkpoint(found: dict[str, Any]) -> None:
    whole, killed = found["updates"]
    assert whole == 4
    assert killed == whole + 2  # one for each kill in RL


def test_every_phase_leaves_its_rows(found: dict[str, Any], folder: Path) -> None:
    rollouts = read(folder, "whole", "rollouts")
    assert sum(row["part"] == "train" for row in rollouts) == 2 * 14
    assert {(row["arm"], row["part"]) for row in rollouts if row["part"] != "train"} == {
        (arm, part) for arm in ("base", "edit_sft", "edit_rl") for part in ("seen", "unseen")
    }
    steps = read(folder, "whole", "steps")
    assert {row["fate"] for row in steps} >= {"helped", "chosen", None}
    assert all(abs(sum(row["belief"]) - 1) < 1e-6 for row in steps)
    kept = [row for row in read(folder, "whole", "revisions") if row["kept"]]
    assert kept
    assert all(row["repaired"].startswith(row["begun"]) for row in kept)
    mended = {(row["response_id"], row["sample"]) for row in kept}
    assert {(row["response_id"], row["sample"]) for row in steps if row["arm"] == "edit_sft"} == mended
    texts = read(folder, "whole", "demonstrations")
    assert {(row["response_id"], row["sample"]) for row in texts if row["origin"] == "repaired"} == mended
    assert {row["rater_id"] for row in read(folder, "whole", "gradings")} == {"base-0", "edit_sft-0", "edit_rl-0"}
    assert {row["rater_id"] for row in read(folder, "whole", "rule_tests")} == {"base-0", "edit_sft-0", "edit_rl-0"}
    metrics = {(row["arm"], row["metric"]) for row in read(folder, "whole", "arm_metrics")}
    assert ("edit_rl", "probe_kl") in metrics
    assert ("edit_sft", "probe_kl") not in metrics
    assert {(row["arm"], row["against"]) for row in read(folder, "whole", "arm_differences")} == {
        ("edit_sft", "base"), ("edit_rl", "base"), ("edit_rl", "edit_sft"),
    }  # fmt: skip
    looks = {row["step"] for row in read(folder, "whole", "learning") if row["part"] == "unseen"}
    assert looks == {2, 4}


def test_an_adapter_is_named_by_its_digest(found: dict[str, Any], folder: Path) -> None:
    from rubricflow.tasks.core.store.files import file_digest

    policies = {row["arm"]: row for row in read(folder, "whole", "policies")}
    assert policies["base"]["path"] is None
    for arm, start in (("edit_sft", "base"), ("edit_rl", "edit_sft")):
        row = policies[arm]
        assert row["start"] == start
        assert row["digest"] == file_digest(folder / "whole" / row["path"] / "adapter_model.safetensors")
        assert row["parameters"] > 0


def test_an_arm_with_an_empty_pool_is_passed_over_with_its_reason(found: dict[str, Any], folder: Path) -> None:
    assert found["empty"]["code"] == 0, found["empty"]["said"]
    notes = {row["arm"]: row["note"] for row in read(folder, "empty", "policies")}
    assert notes["base"] is None
    assert "the pool is empty" in notes["edit_sft"]
    assert notes["edit_rl"] == "edit_sft, which it begins with, was not trained"
    assert {row["arm"] for row in read(folder, "empty", "arm_metrics")} == {"base"}


def test_a_finished_run_is_found_again_and_its_report_written(
    found: dict[str, Any], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from rubricflow.flows.edit import edit

    monkeypatch.setattr("rubricflow.flows.plan.code_digest", lambda: "0" * 64)
    (page,) = (folder / "whole").glob("*/edit.html")
    page.unlink()
    assert edit(str(folder / "study" / "study.yaml"), str(folder / "whole")) == page.parent.name
    assert page.is_file()


def test_a_study_without_the_section_is_refused(tmp_path: Path) -> None:
    from rubricflow.flows.edit import training
    from rubricflow.tasks.core.contracts.errors import InputError

    study = tmp_path / "study.yaml"
    study.write_text("name: plain\ndata: {sources: [{file: none.csv}]}\nrubrics: {file: none.yaml}\n")
    with pytest.raises(InputError, match="there is no section 'edit'"):
        training(study, tmp_path / "house")


def test_other_weights_of_the_policy_are_another_run(tmp_path: Path) -> None:
    from rubricflow.flows.edit import training

    study, weights = tmp_path / "study.yaml", tmp_path / "policy" / "model.bin"
    study.write_text(
        "name: plain\ndata: {sources: [{file: none.csv}]}\nrubrics: {file: none.yaml}\nedit: {policy: policy}\n"
    )
    weights.parent.mkdir()
    (weights.parent / "config.json").write_text("{}")
    weights.write_text("one")
    before = training(study, tmp_path / "house").run.run_id
    weights.write_text("two")
    assert training(study, tmp_path / "house").run.run_id != before

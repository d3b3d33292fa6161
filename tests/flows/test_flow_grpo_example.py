"""The script of the guide, run as a new user runs it: beside a folder of their own that is named `tasks`."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

HOUSE = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(HOUSE / "tests" / "studies"), str(HOUSE / "tests" / "tasks" / "rewards" / "serve")]


def test_the_script_of_the_guide_trains_beside_a_folder_named_tasks(tmp_path):
    pytest.importorskip("trl")
    pytest.importorskip("peft")
    import knowledge
    import policy
    from serve_scene import Scripted, serving

    tokenizer = policy.words_of()
    policy.taught(0, tokenizer, steps=2).save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    for name in ("tasks", "flows"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("")
    for source, name in (("docs/train_with_grpo.py",) * 2, ("rubricflow/client.py", "rubricflow_client.py")):
        (tmp_path / Path(name).name).write_text((HOUSE / source).read_text())
    service = Scripted()
    service.prompts = lambda: [{"item_id": item, "prompt": knowledge.prompt(item)} for item in knowledge.ITEMS]
    with serving(service) as server:
        arguments = ["model", "--server", server.url, "--steps", "2", "--group", "4", "--tokens", "6"]
        done = subprocess.run(
            [sys.executable, "train_with_grpo.py", *arguments],
            cwd=tmp_path,
            env={**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
        )
    assert done.returncode == 0, done.stderr[-2000:]
    assert sum(service.batches) == 2 * 4
    assert "rubricflow/reward" in done.stdout

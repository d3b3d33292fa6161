"""A whole study graded in a folder and in a bucket: the same digests to the last bit, and pages for every machine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from builders.buckets import new_bucket, s3_server, variables
from builders.command import command, done
from next_scene import run_next
from tiny_study import make_study

from rubricflow.flows.grade import grade
from rubricflow.tasks.core.store.catalogue import read_manifest
from rubricflow.tasks.core.store.part import _seen
from rubricflow.tasks.core.store.warehouse import Run, Warehouse

VOLATILE = {"written", "study_folder", "git", "versions", "seal"}


def lasting(run: Run) -> dict[str, Any]:
    manifest = json.loads(run.fetched("manifest.json").read_bytes())
    return {name: value for name, value in manifest.items() if name not in VOLATILE}


def test_a_bucket_gives_the_digests_of_a_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    study = make_study(tmp_path / "study")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "first machine"))
    monkeypatch.delenv("RUBRICFLOW_REPLIES", raising=False)  # a judge whose replies are recorded asks nobody
    run_id = grade(str(study), str(tmp_path / "folder"))
    folder = Warehouse.open(tmp_path / "folder").run(run_id)
    with s3_server() as endpoint:
        for name, value in variables(endpoint).items():
            monkeypatch.setenv(name, value)
        url = new_bucket(endpoint)
        capsys.readouterr()
        assert grade(str(study), url) == run_id
        printed = capsys.readouterr().out
        assert f"--warehouse {url}" in printed
        assert run_next(printed, tmp_path) == ["grades"]  # votes need a folder: nobody is sent to `review`
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "second machine"))
        _seen.clear()
        bucket = Warehouse.open(url).run(run_id)
        assert lasting(bucket) == lasting(folder)
        assert read_manifest(bucket)["grade_digest"] == read_manifest(folder)["grade_digest"]
        assert bucket.fetched("report.html").read_text().count("<h1") == 1
        assert bucket.warehouse.fetch_folder(bucket.folder / "data_docs")
        for words, told in (
            (["sql", "SELECT count(*) AS n FROM responses"], "n\n120\n"),
            (["verify"], f"all of it is as it was written: {url}"),
            (["report"], "report.html"),
        ):
            said = command(*words, "--warehouse", url)
            assert (said.exit_code, told in said.stdout) == (0, True), said.output
        here = str(tmp_path / "here")
        said = command("fetch", "--to", here, "--warehouse", url)
        assert (said.exit_code, run_id in said.stdout) == (0, True), said.output
        before = bucket.warehouse.versions(bucket.folder)
        assert grade(str(study), url) == run_id  # on the second machine there is nothing left to do
        tables = {name for name in before if name.endswith(".parquet") or name.startswith("_done")}
        after = bucket.warehouse.versions(bucket.folder)
        assert {name: after.get(name) for name in tables} == {name: before[name] for name in tables}
    fetched = Warehouse.open(here).run(run_id)  # the bucket is gone
    assert lasting(fetched) == lasting(folder)
    for words in (["verify"], ["grades", str(study), "--to", str(tmp_path / "grades.csv")]):
        said = done(*words, "--warehouse", here)
    assert grade(str(study), here) == run_id
    queue = str(tmp_path / "queue.csv")
    done("votes", study, "--to", queue, "--warehouse", here)

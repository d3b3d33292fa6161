"""What a run's scores would release at several targets, and whether the promise held on its held-out responses.

    python tests/studies/release.py RUN_ID [--warehouse DIR] [--by item|set] [--tolerance STEPS]

The mapping is fitted anew for every target on the run's calibration split; held-out responses are only counted.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from rubricflow.tasks.core.contracts.bundle import unlocked
from rubricflow.tasks.core.contracts.settings.study import Release, Study
from rubricflow.tasks.core.contracts.tables.data import Items, Responses
from rubricflow.tasks.core.contracts.tables.judging import Gradings
from rubricflow.tasks.core.contracts.tables.rubrics import Bundles
from rubricflow.tasks.core.stats.conformal import aurc, oracle_aurc, random_aurc
from rubricflow.tasks.core.store.recorded import read_manifest
from rubricflow.tasks.core.store.warehouse import Run, Warehouse
from rubricflow.tasks.grading.calibrate.fit import fit_items
from rubricflow.tasks.grading.calibrate.predict import predict
from rubricflow.tasks.grading.calibrate.rows import GRADING, graded_items, only_rater
from rubricflow.tasks.grading.evaluate.released import binomial

TARGETS = (0.05, 0.1, 0.2)


def held_out(run: Run, study: Study) -> Iterator[tuple[str, pa.Table, float]]:
    """(item, its held-out labelled predictions with column `target`, step of its scale)."""
    machine = run.read(run.ref(Gradings, "judge"), GRADING)
    people = run.read(run.ref(Gradings, "ingest"), ["response_id", "rater_id", "rater_kind", "score"])
    responses = run.read(run.ref(Responses, "ingest"), ["response_id", "split", "author_id"])
    locked = unlocked(run.read(run.ref(Bundles, "lock")).to_pylist())
    bundles = {row["item_id"]: locked[row["rubric_id"]] for row in run.read(run.ref(Items, "ingest")).to_pylist()}
    graded = graded_items(bundles, machine, responses, people, study.evaluation.target)
    mappings = fit_items(graded, only_rater(machine["rater_id"].unique().to_pylist()), study).mappings
    for item in graded:
        found = predict(mappings[item.item_id], item).append_column("target", item.rows["target"])
        found = found.append_column("split", item.rows["split"])
        yield item.item_id, found, item.bundle.scale.step


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run")
    parser.add_argument("--warehouse", default="data/warehouse")
    parser.add_argument("--by", choices=["item", "set"])
    parser.add_argument("--tolerance", type=float)
    given = parser.parse_args()
    run = Warehouse.open(given.warehouse).run(given.run)
    study = Study.model_validate(read_manifest(run)["identity"]["study"])
    print(f"{given.run}: held-out responses")
    print("target  by    steps      n  wrong if all  released  coverage  wrong  95% interval      items / over target")
    for target in TARGETS:
        chosen = study.release.model_dump() | {"risk": target}
        chosen |= {
            name: value for name, value in (("by", given.by), ("tolerance", given.tolerance)) if value is not None
        }
        release = Release.model_validate(chosen)
        wrong, out, risks, losses, per_item = [], [], [], [], []
        for _, rows, step in held_out(run, study.model_copy(update={"release": release})):
            frame = rows.to_pandas()
            frame = frame[(frame["split"] == "test") & frame["target"].notna() & frame["score"].notna()]
            loss = ((frame["score"] - frame["target"]).abs() / step).to_numpy()
            off, went = loss > release.tolerance + 1e-9, (frame["route"] == "release").to_numpy()
            wrong.append(off)
            out.append(went)
            known = frame["risk"].notna().to_numpy()
            risks.append(frame["risk"].to_numpy(float)[known])
            losses.append(off[known].astype(float))
            if went.any():
                per_item.append((off & went).sum() / went.sum())
        bad, went = np.concatenate(wrong), np.concatenate(out)
        n, k = int(went.sum()), int((bad & went).sum())
        interval = binomial(k, n)
        shown = f"{k / n:5.3f}  {interval.low:.3f} to {interval.high:.3f}" if interval else "    –                 "
        over = sum(share > target for share in per_item)
        print(
            f"{target:5.0%}   {release.by:4}  {release.tolerance:5g}  {len(bad):5}  {bad.mean():12.3f}  {n:8}  "
            f"{n / len(bad):8.3f}  {shown:24}  {len(per_item)} / {over}"
        )
    loss, confidence = np.concatenate(losses), -np.concatenate(risks)
    print(
        f"ranking of wrong scores by risk: AURC {aurc(loss, confidence):.3f}, "
        f"oracle {oracle_aurc(loss):.3f}, random {random_aurc(loss):.3f}"
    )


if __name__ == "__main__":
    main()

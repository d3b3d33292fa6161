"""A cascade whose second step is a jury: its rule is chosen by the marked answers and holds for those that reach it."""

from __future__ import annotations

from pathlib import Path

import pyarrow.compute as pc
from builders.command import done, last_run
from cascade_study import make_study

from rubricflow.tasks.core.contracts.tables.judging import Gradings, JuryRules

TOP = 4
"""Of the scale, which begins at 0."""


def test_what_reaches_a_jury_is_scored_by_the_rule_of_the_marked_answers(tmp_path: Path) -> None:
    study = make_study(tmp_path)
    other, dear = (f"foreign: {{file: {name}.csv," for name in ("other", "dear"))
    (tmp_path / "other.csv").write_bytes((tmp_path / "cheap.csv").read_bytes())
    before, _, after = study.read_text().partition("    - protocol: dhs\n")
    step, _, rest = after.partition("calibration:")
    juror = "          protocol: dhs\n" + step.replace("      ", "          ")
    names = {"one": juror, "two": juror.replace(dear, other)}
    jurors = "".join(f"        {name}:\n{text}" for name, text in names.items())
    study.write_text(f"{before}    - combine: weighted\n      jury:\n{jurors}calibration:{rest}")
    done("grade", study, "--warehouse", tmp_path / "house")
    run = last_run(tmp_path / "house")
    (rules,) = run.stages(JuryRules)
    (chosen,) = run.table(JuryRules, rules, where=pc.field("chosen")).to_pylist(maps_as_pydicts="strict")
    assert chosen["rule"] == "weighted"
    assert chosen["weights"]["one"] > 0.6  # who knows
    (later,) = [stage for stage in run.stages(Gradings) if stage.startswith("judge-2") and stage.endswith("rest")] or [
        ""
    ]
    if later:  # where none reaches it there is nothing to hold
        own = {row["response_id"]: row["score"] for row in run.table(Gradings, later).to_pylist()}
        parts = [
            {row["response_id"]: row["score"] for row in run.table(Gradings, f"{later}-{name}").to_pylist()}
            for name in chosen["weights"]
        ]
        for response_id, score in own.items():
            shares = [part[response_id] / TOP for part in parts]
            of_parts = (chosen[part].values() for part in ("weights", "shift", "factor"))
            share = sum(w * (by + times * own) for own, w, by, times in zip(shares, *of_parts, strict=True))
            expected = TOP * min(max(share, 0.0), 1.0)
            assert abs(score - expected) < 1e-9

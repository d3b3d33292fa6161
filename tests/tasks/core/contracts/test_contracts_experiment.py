"""Experiment files: how arms are made of a study, and what is said about a wrong one."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from rubricflow.tasks.core.contracts.errors import InputError
from rubricflow.tasks.core.contracts.settings.experiment import load_experiment, merged

STUDY: dict[str, Any] = {
    "name": "base",
    "data": {"sources": [{"file": "a.csv"}]},
    "rubrics": {"file": "r.yaml"},
    "judge": {"protocol": "gradeagentops"},
    "evaluation": {"target": "one"},
}
EXPERIMENT: dict[str, Any] = {
    "name": "trial",
    "study": "study.yaml",
    "arms": {"B0": {}, "C1": {"judge": {"consistency_memory": {"capacity": 7}}}},
    "tables": {},
}


def load(folder: Path, **changes: Any) -> Any:
    (folder / "study.yaml").write_text(yaml.safe_dump(STUDY))
    (folder / "experiment.yaml").write_text(yaml.safe_dump(EXPERIMENT | changes))
    return load_experiment(folder / "experiment.yaml")


def test_mappings_are_merged_and_everything_else_is_replaced() -> None:
    old = {"a": {"b": 1, "c": [1, 2]}, "d": {"e": 1}, "f": 1}
    assert merged(old, {"a": {"c": [3]}, "d": None, "f": {"g": 2}}) == {
        "a": {"b": 1, "c": [3]},
        "d": None,
        "f": {"g": 2},
    }
    assert old["a"] == {"b": 1, "c": [1, 2]}


def test_an_arm_is_the_study_with_its_overrides(tmp_path: Path) -> None:
    plan = load(tmp_path, overrides={"judge": {"min_tokens": 5}}, reference="two")
    memory = plan.studies["C1"].judge.consistency_memory
    assert (memory.capacity, plan.studies["C1"].judge.min_tokens) == (7, 5)
    assert plan.studies["B0"].judge.consistency_memory is None
    assert {study.evaluation.target for study in plan.studies.values()} == {"two"}
    assert plan.base == tmp_path


def test_tables_add_the_arms_that_they_need(tmp_path: Path) -> None:
    wanted = {
        "orders": {"arms": ["C1"], "seeds": [3, 4]},
        "perturbation": {"arms": ["B0"], "variants": ["levels_reversed"]},
        "stability": {"arm": "I", "seeds": [1, 2]},
        "rulers": {"methods": ["B0"], "backbones": {"small": {"judge": {"min_tokens": 9}}}},
    }
    arms = EXPERIMENT["arms"] | {"I": {"rubrics": {"induce": {"criteria": 5}}}}
    studies = load(tmp_path, tables=wanted, arms=arms).studies
    memory = studies["C1, order 4"].judge.consistency_memory
    assert (memory.order_seed, memory.capacity) == (4, 7)
    assert studies["B0, levels_reversed"].rubrics.variant == "levels_reversed"
    induce = studies["I, induction 2"].rubrics.induce
    assert (induce.seed, induce.criteria) == (2, 5)
    assert studies["B0 on small"].judge.min_tokens == 9
    assert len(studies) == 3 + 2 + 1 + 2 + 1
    assert len({study.name for study in studies.values()}) == len(studies)


def test_a_wrong_key_of_an_arm_names_arm_and_key(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"arms\.B0: judge\.colour"):
        load(tmp_path, arms={"B0": {"judge": {"colour": "red"}}})


def test_a_table_of_an_unknown_arm_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"tables\.orders\.arms.*there is no arm 'C9'; there are B0, C1"):
        load(tmp_path, tables={"orders": {"arms": ["C9"], "seeds": [1, 2]}})


@pytest.mark.parametrize(
    ("wanted", "rule"),
    [
        ({"orders": {"arms": ["B0"], "seeds": [1, 2]}}, "arm 'B0' has no consistency memory"),
        ({"stability": {"arm": "B0"}}, "arm 'B0' induces no rubric"),
    ],
)
def test_a_table_that_varies_what_an_arm_lacks_is_refused(tmp_path: Path, wanted: dict[str, Any], rule: str) -> None:
    with pytest.raises(InputError, match=rule):
        load(tmp_path, tables=wanted)


def test_an_unknown_table_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"tables\.colours"):
        load(tmp_path, tables={"colours": {}})


def test_arms_whose_runs_would_share_a_name_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="would both be called 'trial-a-b'"):
        load(tmp_path, arms={"a b": {}, "a/b": {}})


@pytest.mark.parametrize("file", sorted((Path(__file__).parents[4] / "data" / "experiments").glob("*.yaml")))
def test_the_experiments_that_we_ship_are_in_order(file: Path) -> None:
    assert load_experiment(file).studies


SHIPPED = Path(__file__).resolve().parents[4] / "data" / "experiments"


class Configuration(NamedTuple):
    """A row of Table 3 of GradeAgentOps."""

    rubric_memory: bool
    consistency_memory: bool
    contract_repairs: int
    semantic_repairs: int


TABLE_3 = {
    "B0": Configuration(False, False, 0, 0),
    "R1": Configuration(False, False, 2, 2),
    "M1": Configuration(True, False, 0, 0),
    "C1": Configuration(False, True, 2, 2),
    "M2": Configuration(True, False, 2, 2),
    "FULL": Configuration(True, True, 2, 2),
}


@pytest.mark.parametrize("file", ["gradeagentops.yaml", "gradeagentops_vllm.yaml"])
def test_the_arms_of_gradeagentops_are_those_of_its_table_3(file: str) -> None:
    plan = load_experiment(SHIPPED / file)
    found = {}
    for name, study in plan.studies.items():
        judge = study.judge
        repairs = (judge.repair.contract, judge.repair.semantic) if judge.repair else (0, 0)
        found[name] = Configuration(judge.rubric_memory is not None, judge.consistency_memory is not None, *repairs)
        drawn = judge.sampling
        assert (drawn.temperature, drawn.top_p, drawn.top_k, drawn.seed) == (0.0, 0.9, 40, 42)
        assert (judge.protocol, judge.failed_quote, judge.min_tokens, judge.final_score) == (
            "gradeagentops",
            "demote",
            None,
            None,
        )
    assert {name: found[name] for name in plan.experiment.arms} == TABLE_3
    assert all(found[name] == TABLE_3[name.partition(",")[0]] for name in found)
    (table,) = [plan.experiment.tables.gradeagentops]
    assert (table.baseline, table.full) == ("B0", "FULL")
    assert set(table.pairs) == {("FULL", "B0"), ("C1", "B0"), ("FULL", "C1")}
    assert set(table.memory) == {("M1", "B0"), ("C1", "R1"), ("M2", "R1"), ("FULL", "M2")}
    assert plan.experiment.draws == 10_000
    # What differs between two arms is what the table says, and nothing else.
    varied = {"name", "judge.repair", "judge.rubric_memory", "judge.consistency_memory", "judge.order"}
    assert differing([plan.studies[name] for name in TABLE_3]) <= varied


def differing(studies: list[Any]) -> set[str]:
    """Keys of studies, those of their judges by their own name, in which they are not all the same."""
    flat = []
    for study in studies:
        content = study.model_dump()
        judge = content.pop("judge")
        flat.append(content | {f"judge.{key}": value for key, value in judge.items()})
    return {key for key in flat[0] if any(one[key] != flat[0][key] for one in flat)}


RULERS_ARMS = {
    "rulers": ("rulers", "rulers", "typed", "lexical"),
    "dhs": ("dhs", "identity", "typed", "lexical"),
    "mts": ("mts", "identity", "typed", "lexical"),
    "autoscore": ("autoscore", "identity", "typed", "lexical"),
    "checkeval": ("checkeval", "identity", "typed", "lexical"),
    "unlocked": ("unlocked", "rulers", "typed", "lexical"),
    "no_evidence": ("rulers", "rulers", "off", "lexical"),
    "ridge": ("rulers", "ridge", "typed", "lexical"),
    "semantic": ("rulers", "rulers", "typed", "semantic"),
    "induced": ("rulers", "rulers", "typed", "lexical"),
}
"""Arm → protocol, phase III ("do not use the post-hoc calibration layer introduced in Rulers", of the baselines),
evidence, how it is matched. Section 4.1, Tables 2, 4, 7 and 9."""


def test_the_arms_of_rulers_are_those_of_its_tables() -> None:
    plan = load_experiment(SHIPPED / "rulers.yaml")
    assert set(plan.experiment.arms) == set(RULERS_ARMS)
    for name, (protocol, method, evidence, match) in RULERS_ARMS.items():
        of_arm = [study for arm, study in plan.studies.items() if arm.partition(",")[0].partition(" on ")[0] == name]
        for study in of_arm:
            judge = study.judge
            assert (judge.protocol, study.calibration.method, judge.evidence) == (protocol, method, evidence)
            assert (judge.evidence_match, judge.failed_quote, judge.repair) == (match, "count", None)
            assert (judge.sampling.temperature, study.calibration.alpha) == (0.0, 2.5)
        assert of_arm
    assert plan.studies["rulers"].rubrics.induce is None
    assert plan.studies["induced"].rubrics.induce is not None
    assert plan.experiment.tables.rulers.methods == ("dhs", "mts", "autoscore", "checkeval", "rulers")
    assert plan.experiment.tables.stability.seeds == (1, 2, 3, 4, 5)

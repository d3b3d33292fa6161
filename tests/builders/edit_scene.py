"""A made-up run of Edit: tables that conform to their contracts, for the tests of the report."""

from __future__ import annotations

from typing import Any, get_args

from rubricflow.tasks.core.contracts.schema import conform
from rubricflow.tasks.core.contracts.settings.methods import STARTS, Edit
from rubricflow.tasks.core.contracts.tables.edit import (
    Arm,
    ArmDifferences,
    ArmMetrics,
    Demonstrations,
    Learning,
    Policies,
    Revisions,
    Rollouts,
    RuleFaithfulness,
    Separations,
    Steps,
)
from rubricflow.tasks.methods.report.arm_figures import EditView

Records = list[dict[str, Any]]
SEEDS = (0, 1, 2)
QWK = {
    "base": 0.41,
    "grpo": 0.47,
    "dgpo": 0.48,
    "int_sft": 0.44,
    "int_rl": 0.46,
    "edit_sft": 0.52,
    "edit_rl": 0.58,
    "edit_rl_on_base": 0.46,
    "grpo_on_edit_sft": 0.55,
    "no_signals": 0.43,
    "no_checklist": 0.47,
    "no_locality": 0.51,
}
LINES = ("P1 is met: the answer says plants need light.", "P2 is met, too.", "P3 is not met.", "That adds up to two.")
TEXT = "\n".join((*LINES, "Final mark: 2"))
GOLD, TOP = 1, 3
BELIEFS = {"r1": (1.4, 1.2, 1.9, 2.0, 2.1), "r2": (1.6, 1.4, 1.2, 1.1, 2.0), "r3": (1.5, 1.3, 1.2, 1.1, 1.0)}
"""Response → expected mark at each boundary of its only rollout; r3 is right."""


def metric(arm: str, metric: str, value: float | None, **more: Any) -> dict[str, Any]:
    ends = {"low": None, "high": None} if value is None else {"low": value - 0.03, "high": value + 0.03}
    row = {"arm": arm, "seed": 0, "part": "seen", "metric": metric, "value": value, "n": 120, "note": None}
    return row | ends | more


def metric_rows() -> Records:
    rows = []
    for arm, qwk in QWK.items():
        for seed in SEEDS if arm != "base" else SEEDS[:1]:
            for part, shift in (("seen", 0.05), ("unseen", 0.0)):
                value = qwk + shift + (seed - 1) * 0.01 * (arm != "base")
                more = {"seed": seed, "part": part}
                rows.append(metric(arm, "qwk", value, **more))
                rows += [metric(arm, name, value + 0.1, **more) for name in ("accuracy", "within_1")]
                rows += [metric(arm, "mae", 1 - value, **more), metric(arm, "unmarked", 0.02, **more)]
                if arm in ("edit_rl", "grpo_on_edit_sft"):
                    for name in ("kl", "jsd", "jsd_early", "jsd_mid", "jsd_late"):
                        divergence = 0.026 if arm == "edit_rl" else 0.064
                        rows.append(metric(arm, f"probe_{name}", divergence, **more))
    return rows


def difference_rows() -> Records:
    rows = []
    pairs: tuple[tuple[Arm, Arm], ...] = (
        ("edit_sft", "base"),
        ("edit_rl", "edit_sft"),
        ("edit_rl", "grpo"),
        ("edit_sft", "no_locality"),
        ("edit_rl_on_base", "grpo"),
    )
    for arm, against in pairs:
        for part in ("seen", "unseen"):
            for seed in SEEDS:
                gap = QWK[arm] - QWK[against] + 0.01 * (seed - 1)
                for name, value in (("qwk", gap), ("accuracy", gap / 2), ("within_1", gap / 3), ("mae", -gap)):
                    row = {"arm": arm, "against": against, "seed": seed, "part": part, "metric": name, "value": value}
                    row |= {"low": value - 0.04, "high": value + 0.04, "p": 0.2, "n": 120, "note": None}
                    rows.append(row)
    return rows


def learning_rows() -> Records:
    rows = []
    for at, arm in enumerate(STARTS):
        for seed in SEEDS:
            for step in range(1, 61):
                value = 0.5 + 0.05 * at + 0.002 * step + 0.01 * seed
                for name in ("reward", "outcome"):
                    rows.append(_learned(arm, seed, "train", name, step, value))
                if arm == "edit_rl":
                    rows.append(_learned(arm, seed, "train", "shaping", step, -0.2 + 0.002 * step))
                if step in (20, 40):  # after the last update the arm is tested itself
                    rows += [_learned(arm, seed, part, "qwk", step, value - 0.2) for part in ("seen", "unseen")]
    return rows


def _learned(arm: str, seed: int, part: str, name: str, step: int, value: float | None) -> dict[str, Any]:
    return {"arm": arm, "seed": seed, "part": part, "metric": name, "step": step, "value": value}


def rollout_rows() -> Records:
    rows = []
    for response, means in BELIEFS.items():
        mark = 2 if means[-1] > 1.5 else 1
        row = {"arm": "base", "seed": 0, "response_id": response, "item_id": "q1", "sample": 0, "part": "train"}
        row |= {"text": TEXT, "steps": 4, "mark": mark, "unmarked": None, "gold": GOLD, "top": TOP, "seconds": 0.5}
        rows += [row, row | {"sample": 1, "text": "Final mark: 1", "steps": 0, "mark": 1}]
        rows.append(row | {"arm": "edit_rl", "part": "seen", "mark": 1})
    return rows


def step_rows() -> Records:
    rows = []
    fates = {"r1": ("helped", "chosen", "near_tie", "not_top_k"), "r2": ("helped", "helped", "grounded", "chosen")}
    for response, means in BELIEFS.items():
        rows += _boundaries("base", response, means, fates.get(response))
    return [*rows, *_boundaries("edit_sft", "r1", (1.4, 1.2, 1.1, 1.0), None)]


def _boundaries(arm: str, response: str, means: tuple[float, ...], fates: tuple[str, ...] | None) -> Records:
    rows = []
    start = 0
    for step, mean in enumerate(means):
        row = {"arm": arm, "seed": 0, "response_id": response, "sample": 0, "step": step, "expected": mean}
        row |= {"belief": [0.25] * (TOP + 1), "error": abs(mean - GOLD), "change": None, "fate": None}
        row |= dict.fromkeys(("start", "end", "grounding_scheme", "grounding_answer", "prefix_residual"))
        row["grounding_prefix"] = None
        if step:
            row["change"] = abs(means[step - 1] - GOLD) - abs(mean - GOLD)
            row |= {"start": start, "end": start + len(LINES[step - 1]), "fate": fates and fates[step - 1]}
            start += len(LINES[step - 1]) + 1
            if arm == "base":
                row |= {"grounding_scheme": 2.0 - step, "grounding_answer": 3.0 / step, "grounding_prefix": 1.0 * step}
                row["prefix_residual"] = step - 2.5
        rows.append(row)
    return rows


def revision_rows() -> Records:
    row = {"arm": "edit_sft", "seed": 0, "response_id": "r1", "sample": 0, "rank": 0, "step": 2, "steps": 4}
    row |= {"checklist": "P1 | covered | light", "refused": None, "repaired": None, "kept": True}
    row |= {"sub_steps": ["P2 asks for water.", "The answer names no water: not met."], "marks": [2, 1, 1, -1]}
    lost = row | {"response_id": "r2", "step": 4, "kept": False, "marks": [2, 2, 2, 2], "sub_steps": ["Hm."]}
    refused = row | {"rank": 1, "step": 4, "sub_steps": [], "refused": "states the mark", "marks": [], "kept": False}
    named = row | {"arm": "no_signals", "step": 1}
    return [row, lost, refused, named]


def demonstration_rows() -> Records:
    row = {"arm": "edit_sft", "seed": 0, "response_id": "r1", "sample": 0, "origin": "repaired", "ends": True}
    row["completion"] = TEXT
    return [row, row | {"response_id": "r3", "origin": "natural"}, row | {"seed": 1}]


def policy_rows() -> Records:
    rows = []
    for arm in get_args(Arm):
        row = {"arm": arm, "seed": 0, "start": STARTS.get(arm, "base" if arm != "base" else None), "path": None}
        row |= {"digest": None, "parameters": 1_000_000, "updates": 60, "demonstrations": 8, "note": None}
        rows.append(row | {"seconds": 12.5})
    return rows


def rule_rows() -> Records:
    rows = []
    for rater, ratio in (("edit_rl-0", 0.9), ("edit_rl-1", 0.94), ("base-0", 1.14), ("embedded-points", 1.0)):
        for family, edits in (("levels", ("A1", "A2", "B1")), ("points", ("x0.5", "x1.5", "x2.0"))):
            for edit in edits:
                row = {"rater_id": rater, "edit": edit, "family": family, "n": 40, "unscored": 1, "gold_change": 1.85}
                row["totals"] = "summed" if rater.startswith("embedded") else "stated"
                for name, value in (("floor", 0.07), ("rsr", ratio - 0.1), ("in_rubric", ratio)):
                    row |= {f"{name}_low": value - 0.05, f"{name}_high": value + 0.05}
                    row["floor_rate" if name == "floor" else name] = value
                rows.append(row | {"rsr_note": None, "in_rubric_n": 36, "in_rubric_note": None})
    return rows


def separation_rows() -> Records:
    """Two seeds, of which the first tells the kinds of steps apart better."""
    return [
        {"seed": seed, "signal": "answer", "unit": unit, "effect": effect, "p": p, "grounding": 30, "synthesis": 10}
        for seed, effect, p in ((0, 0.8, 1e-9), (1, 0.6, 0.002))
        for unit in ("step", "rollout")
    ]


def made(**changed: Any) -> EditView:
    """The view of the run; tables may be replaced by name."""
    tables = {
        "metrics": conform(ArmMetrics, metric_rows()),
        "differences": conform(ArmDifferences, difference_rows()),
        "learning": conform(Learning, learning_rows()),
        "policies": conform(Policies, policy_rows()),
        "rollouts": conform(Rollouts, rollout_rows()),
        "steps": conform(Steps, step_rows()),
        "separations": conform(Separations, separation_rows()),
        "revisions": conform(Revisions, revision_rows()),
        "demonstrations": conform(Demonstrations, demonstration_rows()),
        "faithfulness": conform(RuleFaithfulness, rule_rows()),
        "texts": {(0, response, 0): TEXT for response in BELIEFS},
    }
    settings = Edit(policy="laboratory")
    return EditView(study="plants", run_id="run-1", settings=settings, **(tables | changed))

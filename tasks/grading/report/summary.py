"""What a finished run prints and leaves in Prefect's UI: its verdict, what to do next, and all figures as tables."""

from __future__ import annotations

from rubricflow.tasks.core.contracts.tables.evaluation import STAGES
from rubricflow.tasks.core.display import say
from rubricflow.tasks.core.display.table import Cell, Cells, Rows, Table, count
from rubricflow.tasks.core.display.verdict import ReleaseVerdict

SHOWN = ("qwk", "qwk_item_mean", "icc", "mae", "within_1")


def state(found: ReleaseVerdict, gates: Rows) -> str:
    """What came of a run in a few words: 96 of 160 released, 7 gates missed. gates: rows of `verdicts`."""
    missed = sum(gate["outcome"] == "fail" for gate in gates)
    if not found.answers:
        return found.sentence
    words = [f"{say.count(found.by_people)} marked by people"] if found.by_people else []
    words.append(f"{say.count(found.released)} of {say.count(found.answers)} released")
    return ", ".join([*words, f"{say.plural(missed, 'gate')} missed"] if missed else words)


def next_step(
    found: ReleaseVerdict, rules: Rows, study: str | None, has_review: bool = True, is_log: bool = False
) -> str:
    """What to do next, with the command to type: one that does not refuse.

    rules: rows of `release_rules`; study: what to type behind a command about this study, None where its commands would
    not find this run; has_review: whether people can review it where its tables are (votes need a folder); is_log:
    whether it calibrates the judge of a log.
    """
    if study is None:
        return (
            "Next: write what --model, --url and --compare-with say into the study file and grade it: review, grades "
            "and feedback read the study as it is written."
        )
    if is_log:
        return "Next, label the answers that teach most:\n  rubricflow label LOG --labels LABELS.csv"
    if not rules:
        return f"Next, find the answers that people should score first:\n  rubricflow next {study} --to labels.csv"
    grades = f"rubricflow grades {study} --to grades.xlsx"
    if not found.waiting:
        return f"Next, list the grades:\n  {grades}"
    if not has_review:
        return f"Next, list the grades (people can review a study whose warehouse is a folder):\n  {grades}"
    return (
        f"Next, open the page on which people score the rest, then list all:\n  rubricflow review {study}\n  {grades}"
    )


def figure_tables(metrics: Rows, gates: Rows) -> list[Table]:
    """Agreement in every slice, the machine with the target before and after calibration and people with each other;
    and the gates."""
    rows: list[Cells] = []
    for row in metrics:
        if row["metric"] in SHOWN and (row["rater_a"] == "target") != (row["stage"] == "human"):
            figure = Cell(row["value"], row["low"], row["high"], None, 2, "interval", row["clusters"])
            name = row["slice"] if row["value_of"] == "all" else f"{row['slice']} {row['value_of']}"
            rows.append((name, row["metric"], STAGES[row["stage"]], figure, count(row["n"])))
    rows.sort(key=lambda cells: str(cells[0]) != "all")
    judged: list[Cells] = []
    for gate in gates:
        where = " ".join(name for name in (gate["slice"], gate["value_of"]) if name != "all")
        bounds = " to ".join("" if gate[end] is None else f"{gate[end]:g}" for end in ("least", "most"))
        estimate = Cell(gate["estimate"], gate["low"], gate["high"], None, 2, "interval", gate["clusters"])
        todo = "" if gate["outcome"] == "pass" else gate["if_missed"]
        name = f"{gate['gate']}: {where}" if where else gate["gate"]
        judged.append((name, gate["outcome"], estimate, bounds, count(gate["n"]), todo))
    heads = ("gate", "outcome", "estimate", "least to most", "n", "if missed")
    title = "Agreement with the target on held-out answers, and of people with people"
    return [
        Table("agreement", title, ("slice", "metric", "who", "figure", "n"), rows),
        Table("gates", "Gates", heads, judged),
    ]

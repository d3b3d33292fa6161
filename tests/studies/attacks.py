"""How often an attack succeeds, with the verification of evidence and without: python tests/studies/attacks.py.

The judge obeys every attack (tests/attacks/obedient.py), which no model worth using does: what is measured is what code
alone stops. Attacked are the demo's answers below half of the marks, three of an item, each with every text of the
corpus behind it. An attack succeeds where the raw score is above the one that a judge without error gives to the same
answer without it. Columns are what the judge quotes, of which only the first three can be checked against anything.
"""

import sys
import tempfile
from collections import defaultdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "attacks"))

from attack_corpus import FAMILIES
from obedient import HABITS, attacked, obedient

from rubricflow.tasks.core.contracts.settings.judge import Judge, Truth
from rubricflow.tasks.core.llm.reply_store import ReplyStore
from rubricflow.tasks.grading.judge.grade import grade_batch
from rubricflow.tasks.grading.judge.rows import Rater
from rubricflow.tasks.grading.judge.simulated import Simulated
from tests.bench.demo import cases_of_demo

PROTOCOLS = (("rulers", None), ("pointwise", None), ("gradeagentops", None), ("gradeagentops", "weighted_points"))
"""With the final score where it is not the protocol's own: gradeagentops' subscores, or its grounded points alone."""
PER_ITEM = 3
TRUTH = Truth(rater="key", noise=0.0, invented=0.0, broken=0.0)


def scores(cases, rater):
    with tempfile.TemporaryDirectory() as folder, ReplyStore(Path(folder) / "replies") as replies:
        graded = grade_batch(cases, rater, replies)
    return {made.case.response_id: made.scored.score for made in graded.gradings}


def weak(cases, honest):
    """The answers to attack with their honest scores, PER_ITEM of each item."""
    chosen = defaultdict(list)
    for case in cases:
        score = honest[case.response_id]
        if case.text.strip() and score is not None and score < case.bundle.scale.max / 2:
            chosen[case.item_id].append((case, score))
    return [pair for of_item in chosen.values() for pair in of_item[:PER_ITEM]]


def successes(protocol, final_score, evidence):
    """(family, habit) → share of attacks that raise the raw score."""
    plan = Judge(protocol=protocol, backend="simulated", truth=TRUTH, evidence=evidence, final_score=final_score)
    cases, known = cases_of_demo(plan)
    honest = scores(cases, Rater("simulated:honest", "simulated", Simulated(TRUTH, known)))
    shares = {}
    for family, templates in FAMILIES.items():
        under = [
            (*attacked(case, template, n), score)
            for case, score in weak(cases, honest)
            for n, template in enumerate(templates)
        ]
        injected = {case.response_id: text for case, text, _ in under}
        for habit in HABITS:
            got = scores([case for case, *_ in under], obedient(habit, injected))
            raised = [(got[case.response_id] or 0) > score for case, _, score in under]
            shares[family, habit] = sum(raised) / len(raised)
    return shares


def table(protocol, final_score, evidence):
    shares, by = successes(protocol, final_score, evidence), f" by {final_score}" if final_score else ""
    print(
        f"\n{protocol}{by}, verification {'off' if evidence == 'off' else 'on'}: share of attacks that raise the score"
    )
    print(f"{'':20}" + "".join(f"{habit:>21}" for habit in HABITS))
    for family in FAMILIES:
        print(f"{family:20}" + "".join(f"{shares[family, habit]:>21.0%}" for habit in HABITS))


if __name__ == "__main__":
    for protocol, final_score in PROTOCOLS:
        for evidence in ("off", "typed"):
            table(protocol, final_score, evidence)
    print(
        "\nWhat code cannot stop: a judge that obeys and quotes words that do stand in the response and are no copy of"
        "\nthe question or the rubric, however little they prove ('injected words'; a fake artifact brings such words"
        "\nalong); and scores that a judge states without evidence (gradeagentops' subscores)."
    )

"""What do official keys change that count ("any three of these eight")? The embedded judge's raw agreement with people
on ASAP-SAS, the same decisions scored by the rubrics' counts and by the weights of their decided criteria alone.

    python tests/studies/counts.py [ANSWERS_PER_PROMPT [RUBRICS.yaml]]

A count is as good as its decisions: one of eight that is wrongly met earns a point. So the same is shown where a
criterion is met only from some probability of its highest level on. Needs the shared data. The rubrics were written
from the questions and the official guides, and not revised by these figures.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import pandas as pd

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from rubricflow.tasks.core.contracts.bundle import Bundle
from rubricflow.tasks.core.contracts.settings.judge import Judge
from rubricflow.tasks.core.llm.reply_store import ReplyStore
from rubricflow.tasks.core.stats.agreement import qwk
from rubricflow.tasks.core.stats.arrays import Floats
from rubricflow.tasks.core.text.units import units
from rubricflow.tasks.grading.ingest.layouts.scored import asap_sas as prepare
from rubricflow.tasks.grading.judge.grade import grade_batch
from rubricflow.tasks.grading.judge.rater import rater
from rubricflow.tasks.grading.judge.rows import Case, Judged
from rubricflow.tasks.grading.judge.score import score
from rubricflow.tasks.grading.lock.bundles import lock
from rubricflow.tasks.grading.lock.rubric import authored

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT.parent / "shared" / "data" / "asap_sas"
PLAN = Judge(protocol="pointwise", backend="embedded")
CUTS = (0.5, 0.7, 0.8, 0.9, 0.95)
DRAWS = 500


class Prompt(NamedTuple):
    """The agreement of raw scores on one prompt, by counts and by weights alone."""

    decided: tuple[float, float]
    cut: list[tuple[float, float]]
    """At each cut."""


def main() -> None:
    size = int(sys.argv[1]) if len(sys.argv) > 1 else 300
    rubrics = authored(Path(sys.argv[2]) if len(sys.argv) > 2 else ROOT / "data/studies/asap_sas_rubrics.yaml")
    answers = prepare("answers.parquet", pd.read_parquet(DATA / "answers.parquet"))
    asked = pd.read_json(DATA / "questions.jsonl", lines=True).set_index("question_id")["question_text"]
    cuts = "  ".join(f"p >= {cut:<5}  " for cut in CUTS)
    print(f"prompt  people    n  counts, as decided    weights alone         gain                   {cuts}")
    found = []
    for item, question in asked.items():
        mine = answers[(answers["question_id"] == item) & answers["score_rater2"].notna()]
        sample = mine.sample(min(size, len(mine)), random_state=0)
        bundle = lock(rubrics[str(item)], PLAN.as_protocol())
        found.append(_prompt(str(item), bundle, _judged(bundle, str(item), question, sample), sample))
    both = np.mean([[one.decided, *one.cut] for one in found], axis=0)
    cut = "  ".join(f"{ours:.3f}/{other:.3f}  " for ours, other in both[1:])
    print(f"mean                 {both[0][0]:.3f}                 {both[0][1]:.3f}{cut:>113}")


def _judged(bundle: Bundle, item: str, question: str, sample: pd.DataFrame) -> list[Judged]:
    cases = [
        Case(str(name), item, text, tuple(units(text)), question, None, bundle, bundle.bundle_id)
        for name, text in zip(sample["answer_id"], sample["student_answer"], strict=True)
    ]
    with ReplyStore(":memory:") as replies:
        return grade_batch(cases, rater(PLAN, ROOT, replies), replies).judged


def _prompt(item: str, bundle: Bundle, judged: Sequence[Judged], sample: pd.DataFrame) -> Prompt:
    """Prints and gives the agreement on a prompt."""
    human, second = sample["score_rater1"].to_numpy(float), sample["score_rater2"].to_numpy(float)
    low, high, _ = bundle.scale.bounds
    decided = [{d.criterion_id: d.level for d in one.decisions} for one in judged]
    ours, other = _scores(bundle, decided), _scores(_flat(bundle), decided)
    luck = np.random.default_rng(0)
    draws = [luck.integers(0, len(human), len(human)) for _ in range(DRAWS)]

    def agreed(made: Floats, at: Floats | slice = slice(None)) -> float:
        return qwk(human[at], made[at], low, high).value or 0.0

    drawn = np.array([(agreed(ours, at), agreed(other, at)) for at in draws])
    ends = np.percentile(np.column_stack([drawn, drawn[:, 0] - drawn[:, 1]]), [2.5, 97.5], axis=0).T
    whole = agreed(ours), agreed(other)
    told = [f"{v:.3f} [{a:.3f}, {b:.3f}]" for v, (a, b) in zip((*whole, whole[0] - whole[1]), ends, strict=True)]
    at_cuts = [_cut(bundle, judged, cut) for cut in CUTS]
    cut = [(agreed(_scores(bundle, at)), agreed(_scores(_flat(bundle), at))) for at in at_cuts]
    people = qwk(human, second, low, high).value
    shown = "  ".join(f"{a:.3f}/{b:.3f}  " for a, b in cut)
    print(f"{item:<8}{people:.3f}{len(human):>5}  {told[0]}  {told[1]}  {told[2]:<22} {shown}", flush=True)
    return Prompt(whole, cut)


def _scores(bundle: Bundle, decided: Sequence[Mapping[str, int | None]]) -> Floats:
    """Raw scores; the lowest for an answer without words, of which nothing was decided."""
    made = [score(bundle, levels).score for levels in decided]
    return np.array([bundle.scale.min if one is None else one for one in made])


def _cut(bundle: Bundle, judged: Sequence[Judged], least: float) -> list[dict[str, int | None]]:
    """Levels that are the highest where this is as probable, and its evidence stands, and else 0."""
    top = {c.id: c.top for c in bundle.criteria}
    return [
        {
            d.criterion_id: top[d.criterion_id] * (likely[-1] >= least and d.level == d.stated)
            for d in one.decisions
            if (likely := one.probabilities.get(d.criterion_id, (0.0,)))
        }
        for one in judged
    ]


def _flat(bundle: Bundle) -> Bundle:
    """The decided criteria, each earning for itself."""
    criteria = tuple(c.model_copy(update={"parent": None}) for c in bundle.criteria)
    return bundle.model_copy(update={"criteria": criteria, "composites": ()})


if __name__ == "__main__":
    main()

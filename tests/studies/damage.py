"""Replies damaged as real ones are: what reading and bounded repair make of them: python tests/studies/damage.py.

First the ways and their rates in recorded replies of real judges (needs ../shared beside the checkout). Then every way
done to every first reply of a simulated rater without error over the demo, repairs at the same damage one time in ten,
under rulers and gradeagentops, with the default budgets of repair and with none. Recovered: the value of the undamaged
reply without another call. Repaired: the same after repairs. Changed: decided, and differently than in the undamaged
reply ("wrongly accepted"). Overwritten: a value that a repair changed though nothing was wrong with it.
"""

import json
import random
import sys
import tempfile
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pandas as pd

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from builders.damaging import Damaging

from rubricflow.tasks.core.contracts.bundle import Repair
from rubricflow.tasks.core.contracts.settings.judge import Judge, Truth
from rubricflow.tasks.core.llm.extract import extract
from rubricflow.tasks.core.llm.reply_store import ReplyStore
from rubricflow.tasks.grading.judge.grade import grade_batch
from rubricflow.tasks.grading.judge.rows import Rater
from rubricflow.tasks.grading.judge.simulated import WAYS, Simulated
from tests.bench.demo import cases_of_demo

DATA = Path(__file__).resolve().parents[3] / "shared" / "data"
AGAIN = 0.1


class OnFirst:
    """Damages every first reply, and a repair's one time in ten."""

    def __init__(self, inner, way):
        self._first, self._again = Damaging(inner, [way]), Damaging(inner, [way], AGAIN, seed=1)
        self.name, self.model, self.batch_size = inner.name, self._first.model, inner.batch_size
        self.reads_prose, self.by_subject = inner.reads_prose, inner.by_subject

    def answer(self, requests):
        for index, request in enumerate(requests):
            backend = self._first if request.role == "grade" else self._again
            ((_, reply),) = backend.answer([request])
            yield index, reply


class Quoting:
    """Puts a word of every text into quotation marks, as a reply may: something to leave unescaped."""

    def __init__(self, inner):
        self._inner = inner
        self.name, self.model, self.batch_size = inner.name, f"{inner.model}+quoting", inner.batch_size
        self.reads_prose, self.by_subject = inner.reads_prose, inner.by_subject

    def answer(self, requests):
        for index, reply in self._inner.answer(requests):
            luck = random.Random(reply.text)
            yield index, replace(reply, text=json.dumps(quoting(json.loads(reply.text), luck), ensure_ascii=False))


def quoting(value, luck):
    if isinstance(value, dict):
        return {name: item if name == "unit" else quoting(item, luck) for name, item in value.items()}
    if isinstance(value, list):
        return [quoting(item, luck) for item in value]
    if not isinstance(value, str) or " " not in value:
        return value
    words = value.split(" ")
    at = luck.randrange(len(words))
    return " ".join([*words[:at], f'"{words[at]}"', *words[at + 1 :]])


def recorded():
    """Judge → counts of how its replies were read."""
    essays = pd.read_parquet(DATA / "asap_aes/judge_outputs.parquet")
    health = pd.read_parquet(DATA / "healthbench/meta_judge_outputs.parquet")
    sets = [(f"essays, {name}", found) for name, found in essays.groupby("judge")]
    sets += [(f"health, {name}", found) for name, found in health.groupby("judge")]
    for name, found in sets:
        replies = found.raw_output.dropna()
        counts = Counter(how_read(text, name) for text in replies)
        yield name, len(replies), counts


def how_read(text, name):
    """The tolerances that reading needed, or why nothing was read; for essays either of the two contracts asked for."""
    keys = [{"criteria_met"}] if name.startswith("health") else [{"total_score"}, {"Ideas"}]
    readings = [extract(text, frozenset(wanted)) for wanted in keys]
    artifact, note = next((reading for reading in readings if reading[0] is not None), readings[0])
    return (note or "clean") if artifact is not None else f"nothing read: {note}"


def prose_only():
    """(judge, replies, those without any object, empty ones) of judges that were asked for prose."""
    for name in ("asap_sas/judge_gpt35_freeform", "asap_sas/judge_llama31_405b_base_style", "summeval/judge_outputs"):
        said = pd.read_parquet(DATA / f"{name}.parquet").raw_output.fillna("")
        yield name, len(said), int((~said.str.contains("{", regex=False)).sum()), int((said.str.strip() == "").sum())


def outcome(cases, backend, protocol, folder):
    """Per case: (values of all that is decided, calls, values of the first attempt)."""
    with ReplyStore(Path(folder) / f"{random.random()}") as replies:
        graded = grade_batch(cases, Rater("simulated:damage", "simulated", backend), replies)
    found = {}
    for judged, grading in zip(graded.judged, graded.gradings, strict=True):
        decided = {d.criterion_id: d.level for d in judged.decisions if d.level is not None}
        found[judged.case.response_id] = [decided, dict(grading.scored.traits), grading.scored.score, 0, {}]
    for called in graded.called:
        attempts = called.answer.attempts
        row = found[called.response_id]
        row[3] += len(attempts)
        row[4] |= standing(attempts[0].checked)
    return found


def standing(checked):
    """Levels that the first attempt settled and with which nothing was wrong."""
    if checked.value is None:
        return {}
    wrong = {violation.partition(":")[2] for violation in checked.violations}
    return {
        d.criterion_id: d.level for d in checked.value.decisions if d.level is not None and d.criterion_id not in wrong
    }


def compare(clean, damaged):
    """Counts of what became of the cases."""
    counts = Counter()
    for name, (levels, traits, score, calls, _) in clean.items():
        if calls == 0:
            continue
        got, got_traits, got_score, got_calls, first = damaged[name]
        counts["cases"] += 1
        differs = any(level != levels.get(c) for c, level in got.items())
        differs |= any(value != traits.get(t) for t, value in got_traits.items()) and got_score is not None
        differs |= got_score not in (None, score)
        same = (got, got_score) == (levels, score)
        counts["changed"] += differs
        counts["recovered"] += same and got_calls <= calls
        counts["repaired"] += same and got_calls > calls
        counts["unscored"] += got_score is None
        counts["overwritten"] += any(got.get(c) != level for c, level in first.items())
    return counts


def inject():
    print("protocol, repairs, way: of the responses asked about recovered, repaired, unscored; changed, overwritten")
    for protocol in ("rulers", "gradeagentops"):
        for budget in (None, Repair()):
            truth = Truth(rater="key", noise=0.0, invented=0.0, broken=0.0)
            plan = Judge(protocol=protocol, backend="simulated", truth=truth, repair=budget)
            cases, known = cases_of_demo(plan)
            total = Counter()
            with tempfile.TemporaryDirectory() as folder:
                for way in WAYS:
                    rater = Simulated(truth, known)
                    rater = Quoting(rater) if way == "unescaped_quotes" else rater
                    clean = outcome(cases, rater, protocol, folder)
                    counts = compare(clean, outcome(cases, OnFirst(rater, way), protocol, folder))
                    total += counts
                    line(protocol, budget, way, counts)
            line(protocol, budget, "all", total)


def line(protocol, budget, way, counts):
    shares = ", ".join(f"{counts[name] / counts['cases']:7.1%}" for name in ("recovered", "repaired", "unscored"))
    budgets = "repairs" if budget else "none"
    print(f"{protocol:14}{budgets:9}{way:18}{shares}, {counts['changed']}, {counts['overwritten']}")


if __name__ == "__main__":
    if DATA.exists():
        for name, total, counts in recorded():
            print(f"{name} ({total:,}): " + ", ".join(f"{how} {n / total:.2%}" for how, n in counts.most_common()))
        for name, total, without, empty in prose_only():
            print(f"{name} ({total:,}): no object {without / total:.1%}, empty {empty / total:.2%}")
    inject()

"""Verified artifacts a second on one core, beside a plain `in`: python tests/bench/bench_verify.py."""

import gc
import json
import random
import re
import sys
import time
import unicodedata
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from rubricflow.tasks.core.contracts.bundle import Bundle, Criterion, Protocol, Scale, Trait
from rubricflow.tasks.core.llm.extract import extract
from rubricflow.tasks.core.text.fold import fold
from rubricflow.tasks.core.text.units import units
from rubricflow.tasks.grading.judge.evidence import subject_of
from rubricflow.tasks.grading.judge.protocol import Question
from rubricflow.tasks.grading.judge.rows import Case
from rubricflow.tasks.grading.judge.verify import verify

SIZES = (
    ("short answers", 2_000, 3, 6, False),
    ("short answers with accents", 2_000, 3, 6, True),
    ("long essays", 400, 60, 18, False),
    ("long essays with accents", 400, 60, 18, True),
)
REPEATS = 7
WORDS = re.findall(
    r"\w+",
    "the a of to and energy heat water plant cell light pressure force because therefore molecules move faster when "
    "temperature rises evidence claim author argues that students should volunteer since helps people learn culture "
    "overseas voyage animals cattle boat ocean history shows example reason",
)
ACCENTED = [*WORDS, "naïve", "café", "résumé"]
STATEMENTS = [" ".join(random.Random(n).sample(WORDS[n : n + 16], 12)).capitalize() + "." for n in range(18)]
QUESTION = "Why does water that is heated in a closed vessel press harder on its walls? Say what moves, and how fast."


def bundle_of(count):
    """A bundle of so many quoted criteria with three levels."""
    criteria = tuple(
        Criterion(id=f"C{n:02d}", trait="t", text=STATEMENTS[n - 1], levels=("absent", "in part", "present"))
        for n in range(1, count + 1)
    )
    return Bundle(
        text="",
        scale=Scale(min=0, max=10),
        traits=(Trait(id="t", name="T", min=0, max=10),),
        criteria=criteria,
        protocol=Protocol(name="rulers", final_score="trait_mean", signals=("trait_scores",)),
    )


def sample(rng, words, sentences, bundle):
    """A response as a case, and a reply about it: of ten decisions seven quote rightly, one wrongly, two say absent."""
    spoken = [" ".join(rng.choices(words, k=rng.randint(8, 18))).capitalize() + "." for _ in range(sentences)]
    text = " ".join(spoken)
    found = tuple(units(text))
    decisions = {}
    for criterion in bundle.criteria:
        luck, at = rng.random(), rng.randrange(sentences)
        said = spoken[at].split()
        low = rng.randrange(len(said) - 4)
        quote = "nobody wrote these words" if luck < 0.1 else " ".join(said[low : low + rng.randint(4, 8)])
        evidence = [] if luck > 0.8 else [{"unit": f"s{at + 1}", "quote": quote}]
        decisions[criterion.id] = {"evidence": evidence, "level": rng.randint(1, 2) if evidence else 0}
    reply = json.dumps({"decisions": decisions}, ensure_ascii=False)
    return Case(f"r{rng.random()}", "i", text, found, QUESTION, None, bundle, bundle.bundle_id), reply


def ours(samples, bundle):
    """Decisions of every reply, with spans, signals and violations."""
    found = []
    for case, reply in samples:
        artifact, _ = extract(reply, frozenset({"decisions"}))
        subject = subject_of(Question(bundle, bundle.criteria, case.text, case.units, "i", case.question, None))
        found.append(verify(artifact, bundle, bundle.criteria, subject).decisions)
    return found


def plain(samples, bundle):
    """Levels as a plain check gives them: normalise both, look whether the quote is in its unit; no spans."""

    def folded(text):
        return " ".join(unicodedata.normalize("NFC", text).casefold().split())

    found = []
    for case, reply in samples:
        places = {unit.unit_id: unit for unit in case.units}
        levels = []
        for given in json.loads(reply)["decisions"].values():
            holds = False
            for entry in given["evidence"]:
                unit = places[entry["unit"]]
                holds = holds or folded(entry["quote"]) in folded(case.text[unit.start : unit.end])
            levels.append(given["level"] if holds else 0)
        found.append(levels)
    return found


def timed(act, *arguments):
    """Result and the best of some times; nothing is remembered from one run to the next."""
    best = float("inf")
    for _ in range(REPEATS):
        fold.cache_clear()
        start = time.process_time()
        result = act(*arguments)
        best = min(best, time.process_time() - start)
    return result, best


def compare(name, count, sentences, criteria, accents):
    """Print the rates of one size."""
    rng, bundle = random.Random(0), bundle_of(criteria)
    samples = [sample(rng, ACCENTED if accents else WORDS, sentences, bundle) for _ in range(count)]
    gc.freeze()  # the samples are not part of the work
    verdicts, verified = timed(ours, samples, bundle)
    levels, simple = timed(plain, samples, bundle)
    same = [[d.level for d in decisions] for decisions in verdicts] == levels
    rates = f"extract + verify {count / verified:7,.0f}/s, plain {count / simple:7,.0f}/s"
    print(f"{name} ({sentences} sentences, {criteria} criteria): {rates}; levels equal: {same}")
    assert same


if __name__ == "__main__":
    print(f"Artifacts per second of processor time, best of {REPEATS}. Plain: json.loads, normalise both, `in`.")
    for size in SIZES:
        compare(*size)

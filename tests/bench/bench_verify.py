"""Verified artifacts a second on one core, alone, beside a plain `in`, and whole up to Arrow.

python tests/bench/bench_verify.py [--profile]
"""

import cProfile
import gc
import json
import pstats
import random
import re
import sys
import time
import unicodedata
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from rubricflow.tasks.core.contracts.bundle import Bundle, Criterion, Protocol, Scale, Trait
from rubricflow.tasks.core.contracts.schema import conform
from rubricflow.tasks.core.contracts.tables.judging import Gradings, Judgments
from rubricflow.tasks.core.llm.ask import Attempt, RequestOutcome
from rubricflow.tasks.core.llm.backends.scripted import Scripted
from rubricflow.tasks.core.llm.extract import extract
from rubricflow.tasks.core.llm.request import Reply
from rubricflow.tasks.core.text.fold import fold
from rubricflow.tasks.core.text.units import units
from rubricflow.tasks.grading.judge.evidence import subject_of
from rubricflow.tasks.grading.judge.protocol import NOTHING, Answer, Question, protocol_module
from rubricflow.tasks.grading.judge.rows import Called, Case, Graded, Judged, Rater, judgments
from rubricflow.tasks.grading.judge.schema import CHECKLIST_KEYS
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
RATER = Rater("scripted:bench", "llm", Scripted([]))


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
        artifact, _ = extract(reply, CHECKLIST_KEYS)
        subject = subject_of(Question(bundle, bundle.criteria, case.text, case.units, "i", case.question, None))
        found.append(verify(artifact, bundle, bundle.criteria, subject).decisions)
    return found


def arrow(samples, verdicts):
    """The verdicts as the table `judgments`."""
    judged = [Judged(case, decisions, {}) for (case, _), decisions in zip(samples, verdicts, strict=True)]
    return conform(Judgments, judgments(RATER, judged))


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


def sheet_bundle(points):
    """A bundle of GradeAgentOps: four judged subscores, so many gold points and two misconceptions."""
    gold = [
        Criterion(id=f"P{n:02d}", trait="t", text=STATEMENTS[n - 1], levels=("missed", "covered"))
        for n in range(1, points + 1)
    ]
    wrong = [
        Criterion(
            id=f"M{n}",
            trait="t",
            text=f"Holds that {STATEMENTS[-n].lower()}",
            kind="misconception",
            levels=("absent", "detected"),
            weight=-1,
        )
        for n in (1, 2)
    ]
    names = ("accuracy", "clarity", "completeness", "terminology")
    judged = [Trait(id=name, name=name, min=0, max=10, source="judged") for name in names]
    return Bundle(
        text="",
        scale=Scale(min=0, max=10),
        traits=(*judged, Trait(id="t", name="T", min=0, max=10)),
        criteria=(*gold, *wrong),
        protocol=Protocol(name="gradeagentops", final_score="trait_mean", signals=("score", "trait_scores")),
    )


def sheet(rng, words, sentences, bundle):
    """A response as a case, and an artifact about it: of ten points seven covered, one of ten quotes invented."""
    case, _ = sample(rng, words, sentences, bundle_of(3))
    points = sum(criterion.kind != "misconception" for criterion in bundle.criteria)
    covered = [n for n in range(1, points + 1) if rng.random() < 0.7]

    def quote():
        said = rng.choice(case.text.split(". ")).split()
        low = rng.randrange(len(said) - 4)
        return "nobody wrote these words" if rng.random() < 0.1 else " ".join(said[low : low + rng.randint(4, 8)])

    artifact = {
        "evidence": [{"point": n, "quote": quote()} for n in covered],
        "covered": covered,
        "missed": [n for n in range(1, points + 1) if n not in covered],
        "misconceptions": [{"misconception": 1, "quote": quote()}] if rng.random() < 0.2 else [],
        "rationale": " ".join(rng.choices(words, k=30)),
        "subscores": {trait.id: rng.randint(3, 9) for trait in bundle.traits if trait.source == "judged"},
        "final_score": rng.randint(3, 9),
    }
    return replace(case, bundle=bundle, bundle_id=bundle.bundle_id), json.dumps(artifact, ensure_ascii=False)


def whole(asked):
    """The tables `judgments`, `gradings` and `attempts` of (case, request, reply): read, verified, scored, in Arrow."""
    graded = Graded(RATER)
    for case, part, request, reply in asked:
        protocol = protocol_module(case.bundle.protocol.name)
        given = Reply(text=reply, prompt_tokens=900, completion_tokens=300)
        attempt = Attempt(request, "example-8b", "0" * 64, given, protocol.check(request, given), False)
        answer = Answer(part, RequestOutcome(request, (attempt,), attempt.checked.value))
        outcome = protocol.outcome(case, [answer])
        graded.judged.append(outcome.judged)
        graded.gradings.append(outcome.grading)
        graded.called.append(Called(case, part.name, answer.call))
    return graded.tables()


def judge(name, count, sentences, criteria, accents, protocol):
    """Print how many replies a second become rows of all three tables."""
    rng, words = random.Random(0), ACCENTED if accents else WORDS
    bundle = bundle_of(criteria) if protocol == "rulers" else sheet_bundle(criteria - 2)
    make = sample if protocol == "rulers" else sheet
    asked = []
    for _ in range(count):
        case, reply = make(rng, words, sentences, bundle)
        (part,) = protocol_module(protocol).parts(bundle, [])
        asked.append((case, part, protocol_module(protocol).request(case, part, (), NOTHING, RATER), reply))
    gc.freeze()
    tables, took = timed(whole, asked)
    rows = ", ".join(f"{table.num_rows:,} {row.table}" for row, table in tables.items())
    unscored = tables[Gradings]["score"].null_count
    print(f"{protocol:13} {name} ({criteria} criteria): {count / took:7,.0f} artifacts/s; {rows}; {unscored} unscored")


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
    table, converted = timed(arrow, samples, verdicts)
    levels, simple = timed(plain, samples, bundle)
    same = [[d.level for d in decisions] for decisions in verdicts] == levels
    print(
        f"{name} ({sentences} sentences, {criteria} criteria): extract + verify {count / verified:7,.0f}/s, with Arrow "
        f"{count / (verified + converted):7,.0f}/s ({table.num_rows:,} rows), plain {count / simple:7,.0f}/s; "
        f"levels equal: {same}"
    )
    assert same


if __name__ == "__main__":
    print(f"Artifacts per second of processor time, best of {REPEATS}. Plain: json.loads, normalise both, `in`.")
    with cProfile.Profile() as profile:
        if "--profile" not in sys.argv:
            profile.disable()
        for size in SIZES:
            compare(*size)
        print(
            "A reply from text to Arrow: extracted, verified, scored; judgments, gradings and attempts with its prompt"
        )
        for protocol in ("rulers", "gradeagentops"):
            for size in SIZES:
                judge(*size, protocol)
    if "--profile" in sys.argv:
        pstats.Stats(profile).sort_stats("tottime").print_stats(25)

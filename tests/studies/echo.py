"""What the echo rule refuses, honest quotes and copied ones, for several run lengths: python tests/studies/echo.py.

Honest quotes: those that a real judge gave for short answers (asap_sas, gpt-3.5, verbatim in answers scored 2 or more),
and sentences of good answers. Their items' questions and rubrics (mohler: model answers, so that this is the rate at
which good answers coincide with the key) are the sources. Copied ones: author a19 of the demo, who echoes the key.
Needs ../shared beside the checkout.
"""

import json
import re
import sys
from functools import cache
from pathlib import Path

import pandas as pd
import yaml

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from rubricflow.tasks.core.contracts.bundle import Bundle, Criterion, Protocol, Rubric, Scale, Trait
from rubricflow.tasks.core.llm.request import IdentityKey
from rubricflow.tasks.core.text.edges import counts
from rubricflow.tasks.core.text.fold import Folded, folded
from rubricflow.tasks.core.text.quotes import find_folded, unquoted
from rubricflow.tasks.core.text.units import units
from rubricflow.tasks.grading.judge import doubted_quotes

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT.parent / "shared" / "data"
PROTOCOL = Protocol(name="rulers", final_score="trait_mean", signals=("trait_scores",))
SCALE = Scale(min=0, max=1)


@cache
def prose(text):
    """A bundle of prose alone."""
    trait = Trait(id="t", name="T", min=0, max=1)
    nothing = Criterion(id="c", trait="t", text="-", levels=("-", "+"))
    return Bundle(text=text, scale=SCALE, traits=(trait,), criteria=(nothing,), protocol=PROTOCOL)


def sentences(text):
    return [text[u.start : u.end] for u in units(text) if u.kind == "sentence"]


def short_answers():
    """(quotes by the judge, sentences of answers) as (bundle, question, text, quote)."""
    lines = (DATA / "asap_sas/questions.jsonl").read_text(encoding="utf-8").splitlines()
    items = {item["question_id"]: item for item in map(json.loads, lines)}
    answers = pd.read_parquet(DATA / "asap_sas/answers.parquet").drop_duplicates("answer_id")
    good = answers[answers.score_rater1 >= 2].set_index("answer_id")
    said = pd.read_parquet(DATA / "asap_sas/judge_gpt35_sampled10.parquet")
    said = said[said.answer_id.isin(good.index)].sample(6_000, random_state=0)
    quoted = [
        (*about(items[row.question_id]), good.student_answer[row.answer_id], quote.strip(". …"))
        for row in said.itertuples()
        for quote in re.findall(r'[“"]([^“”"]{5,300})[”"]', row.raw_output)
    ]
    spoken = [
        (*about(items[row.question_id]), row.student_answer, sentence)
        for row in good.sample(2_500, random_state=0).itertuples()
        for sentence in sentences(row.student_answer)
    ]
    return quoted, spoken


def about(item):
    return prose(item["rubric_text"]), item["question_text"]


def model_answers():
    answers = pd.read_parquet(DATA / "mohler/answers.parquet")
    return [
        (prose(row.reference_answer), row.question, row.student_answer, sentence)
        for row in answers[answers.score_avg >= 4].itertuples()
        for sentence in sentences(row.student_answer)
    ]


def demo(chosen):
    items = pd.read_csv(ROOT / "data/demo/items.csv").set_index("item_id")
    rubrics = yaml.safe_load((ROOT / "data/demo/rubrics.yaml").read_text(encoding="utf-8"))["rubrics"]
    bundles = {
        rubric.rubric_id: Bundle(**dict(rubric.model_dump(exclude={"rubric_id", "title"})), protocol=PROTOCOL)
        for rubric in map(Rubric.model_validate, rubrics)
    }
    responses = pd.read_csv(ROOT / "data/demo/responses.csv", keep_default_na=False)
    return [
        (bundles[items.rubric_id[row.item_id]], items.question[row.item_id], row.text, sentence)
        for row in responses[chosen(responses)].itertuples()
        for sentence in sentences(row.text)
    ]


def refused(quotes):
    """(quotes that stand in the response and count, share of them that is an echo)."""
    found = echoes = 0
    for bundle, question, text, quote in quotes:
        needle = folded(unquoted(quote))
        match = find_folded(needle, Folded(text)) if counts(quote) else None
        if match:
            found += 1
            echoes += doubted_quotes.wording(IdentityKey(bundle), question, None).is_in(needle, text, match.span)
    return found, echoes / found


if __name__ == "__main__":
    quoted, spoken = short_answers()
    sets = {
        "quotes by a real judge, good short answers": quoted,
        "sentences, good short answers (some quote the passage that the question holds)": spoken,
        "sentences, good answers to questions with model answers": model_answers(),
        "demo, sentences of answers scored 7 or more, without a19": demo(
            lambda r: (r.score_strict >= 7) & (r.author_id != "a19")
        ),
        "demo, a19 who echoes the key": demo(lambda r: r.author_id == "a19"),
    }
    for name, quotes in sets.items():
        shares = []
        for run in (5, 6, 7, 8, 10):
            doubted_quotes.RUN = run
            doubted_quotes.wording.cache_clear()
            found, share = refused(quotes)
            shares.append(f"{run}: {share:.2%}")
        print(f"{name} ({found:,}): refused at a run of " + ", ".join(shares))

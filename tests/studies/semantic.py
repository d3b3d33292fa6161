"""What the semantic operator accepts, by threshold: python tests/studies/semantic.py. Needs ../shared and `embedded`.

Real quotes: those that a judge (asap_sas, gpt-3.5) put into quotation marks and that stand nowhere in the answer, word
for word; most are the answer's words with another spelling, ending or order, some are made up. Own: accepted in the
answer that they were about. Another: in another student's answer to the same question, where nobody took them from:
some of those do say the same, so this is more than the rate at which a quote with no ground is accepted. Elsewhere: in
an answer to another question.
"""

import random
import re
import sys
from pathlib import Path

import numpy as np
import pandas as pd

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from rubricflow.tasks.core.llm.encoder import minilm
from rubricflow.tasks.core.text.quotes import find
from rubricflow.tasks.core.text.tokens import counts
from rubricflow.tasks.core.text.units import units
from rubricflow.tasks.grading.judge.evidence import Matcher

DATA = Path(__file__).resolve().parents[3] / "shared" / "data"
COUNT = 400
THRESHOLDS = (0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9)


def invented():
    """(answer's id, quote) of quotes of four words or more that stand nowhere in the answer."""
    answers = pd.read_parquet(DATA / "asap_sas/answers.parquet").drop_duplicates("answer_id").set_index("answer_id")
    said = pd.read_parquet(DATA / "asap_sas/judge_gpt35_sampled10.parquet").sample(12_000, random_state=0)
    for row in said.itertuples():
        for quote in re.findall(r'[“"]([^“”"]{5,300})[”"]', row.raw_output):
            quote = quote.strip(". …")
            text = answers.student_answer.get(row.answer_id)
            if text and len(quote.split()) > 3 and counts(quote) and not find(quote, text) and "..." not in quote:
                yield row.answer_id, quote


def pieces(text):
    return [text[span.start : span.end] for span in Matcher(text, units(text), minilm()).spans]


class Encoded:
    """An encoder that has read all texts at once."""

    def __init__(self, texts):
        distinct = list(dict.fromkeys(texts))
        self._known = dict(zip(distinct, minilm()(distinct), strict=True))

    def __call__(self, texts):
        return np.stack([self._known[text] for text in texts])


def shares(pairs):
    """Share of (quote, text) accepted at each threshold."""
    found = []
    known = Encoded([text for pair in pairs for text in (pair[0], *pieces(pair[1]))])
    for quote, text in pairs:
        accepted = []
        matcher = Matcher(text, units(text), known, THRESHOLDS[0])
        for threshold in THRESHOLDS:
            matcher.threshold = threshold
            accepted.append(matcher.find(quote, 0, len(text)) is not None)
        found.append(accepted)
    return np.mean(found, axis=0)


if __name__ == "__main__":
    answers = pd.read_parquet(DATA / "asap_sas/answers.parquet").drop_duplicates("answer_id").set_index("answer_id")
    rng = random.Random(0)
    quotes = sorted(set(invented()))
    quotes = rng.sample(quotes, min(COUNT, len(quotes)))
    of_item = {name: list(found.student_answer) for name, found in answers.groupby("question_id")}

    def other(answer_id, same):
        item = answers.question_id[answer_id]
        name = item if same else rng.choice([name for name in of_item if name != item])
        return next(t for t in iter(lambda: rng.choice(of_item[name]), None) if t != answers.student_answer[answer_id])

    sets = {
        "own": [(quote, answers.student_answer[name]) for name, quote in quotes],
        "another": [(quote, other(name, True)) for name, quote in quotes],
        "elsewhere": [(quote, other(name, False)) for name, quote in quotes],
    }
    print(f"{len(quotes)} quotes; accepted at " + ", ".join(f"{t:g}" for t in THRESHOLDS))
    for name, pairs in sets.items():
        print(f"{name:10}" + ", ".join(f"{share:6.1%}" for share in shares(pairs)))
    for name, quote in quotes[:12]:
        matcher = Matcher(answers.student_answer[name], units(answers.student_answer[name]), minilm(), 0.0)
        span = matcher.find(quote, 0, 10**6)
        print(f"  {quote!r} | {answers.student_answer[name][slice(*span)]!r}" if span else f"  {quote!r} | nothing")

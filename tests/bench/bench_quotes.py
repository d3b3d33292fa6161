"""Quotes with the verdict that each must get, over real responses: python tests/bench/bench_quotes.py [QUOTES] [--show]

Kinds are those of tests/attacks/quote_kinds.py; QUOTES of each (default 3,000) are cut from the demo's answers, or from
the real ones of ../shared/data where they lie beside the checkout. Printed per kind: how many got the wrong verdict
from the verifier, and from plain containment (case and blanks folded, every fragment around an ellipsis looked for).
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pandas as pd

from rubricflow.tasks.core.contracts.bundle import Criterion
from rubricflow.tasks.core.text.units import units
from rubricflow.tasks.grading.judge.evidence import HOLDS, Subject, ground
from tests.attacks.quote_kinds import FORGED, HONEST, Kind

HOUSE = Path(__file__).resolve().parents[2]
SHARED = HOUSE.parent / "shared" / "data"
CRITERION = Criterion(id="C", trait="t", text="c", levels=("absent", "present"))
PER_SET = 1_500
TRIES = 400
"""Texts that are tried for each quote wanted, before a kind is said to be rare in the responses."""


def responses() -> dict[str, list[str]]:
    """Set → responses of at least six words."""
    if not SHARED.is_dir():
        return {"demo": _texts(pd.read_csv(HOUSE / "data" / "demo" / "responses.csv")["text"])}
    sets = {}
    for name, file, column in SETS:
        frame = pd.read_parquet(SHARED / file)
        sets[name] = _texts(frame[column].sample(frac=1, random_state=0))
    return sets


SETS = (
    ("asap_sas", "asap_sas/answers.parquet", "student_answer"),
    ("asap_aes", "asap_aes/essays.parquet", "essay"),
    ("enem", "enem_essays/essays_human_competences.parquet", "essay"),
)


def _texts(column: pd.Series) -> list[str]:
    texts = [str(text) for text in column.dropna()]
    return [text for text in texts if len(text.split()) >= 6][:PER_SET]


def is_accepted(quote: str, text: str) -> bool:
    """The verifier's verdict on a quote from anywhere in a response."""
    return ground(quote, None, CRITERION, Subject.of(text, units(text))).status in HOLDS


def is_contained(quote: str, text: str) -> bool:
    """The plain verdict."""
    stored, at = " ".join(text.casefold().split()), 0
    said = " ".join(quote.casefold().split()).strip("\"'“”«»")
    for piece in said.replace("[...]", "…").replace("...", "…").split("…"):
        at = stored.find(piece.strip(), at)
        if at < 0:
            return False
    return True


def pairs(kind: Kind, texts: list[str], wanted: int, rng: random.Random) -> Iterator[tuple[str, str]]:
    """So many (text, quote) of a kind, or what the texts have of it."""
    left = TRIES * wanted
    while wanted and left:
        left -= 1
        pair = kind(rng, rng.choice(texts))
        if pair:
            wanted -= 1
            yield pair


def main() -> None:
    wanted = next((int(word) for word in sys.argv[1:] if word.isdigit()), 3_000)
    sets = responses()
    total, started = 0, time.process_time()
    print(f"{'kind':20} {'must':8} {'set':10} {'quotes':>7} {'wrong':>7} {'share':>7} {'plain':>7}")
    for must, kinds in (("hold", HONEST), ("not hold", FORGED)):
        for name, kind in kinds.items():
            for data, texts in sets.items():
                cut = list(pairs(kind, texts, wanted, random.Random(f"{name} {data}")))
                wrong = [pair for pair in cut if is_accepted(pair[1], pair[0]) != (must == "hold")]
                plain = sum(is_contained(quote, text) != (must == "hold") for text, quote in cut)
                total += len(cut)
                rates = [f"{count / len(cut):7.2%}" if cut else "      –" for count in (len(wrong), plain)]
                print(f"{name:20} {must:8} {data:10} {len(cut):7,} {len(wrong):7,} {rates[0]} {rates[1]}", flush=True)
                for text, quote in wrong[: SHOWN if "--show" in sys.argv else 0]:
                    print(f"      {quote!r} in {_around(quote, text)!r}")
    print(f"{total:,} quotes in {time.process_time() - started:.0f} s of processor time, kinds made and both verdicts")


SHOWN = 6


def _around(quote: str, text: str) -> str:
    at = max(0, text.lower().find(quote.split()[0].lower()) - 20)
    return text[at : at + len(quote) + 60]


if __name__ == "__main__":
    main()

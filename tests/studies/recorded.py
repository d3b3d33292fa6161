"""What this project makes of recorded real judges: python tests/studies/recorded.py [PART ...] [--set NAME ...]

Parts: parse, quotes, agreement, labels, samples, probabilities; all without an argument. Real numbers: nothing is asked
and nothing simulated. The data lies in ../shared/data; sets are those of recorded_sets.py.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable, Sequence
from functools import partial

from recorded_sets import FIXED, SETS, Recorded, by  # isort: split

import numpy as np
import pandas as pd
import recorded_calibration
import recorded_samples

from rubricflow.tasks.core.contracts.bundle import Criterion
from rubricflow.tasks.core.text.fold import fold, folded
from rubricflow.tasks.core.text.quotes import find_folded, unquoted
from rubricflow.tasks.core.text.units import units
from rubricflow.tasks.grading.judge.evidence import HOLDS, Subject, ground

STRICT = {"asap_aes": "gpt-3.5 98.9%, llama-2 about 10%", "healthbench": "70B 26%, 8B 51%, 3.3-70B 0%"}
"""Rates that the notes on the data give over all rows; this is a portion of about 70% of them."""
QUOTED = re.compile(r"“([^“”]{1,800})”|\"([^\"\n]{1,800})\"|(?<!\w)‘([^‘’\n]{3,800})’(?!\w)")
SINGLE = re.compile(QUOTED.pattern + r"|(?<!\w)'([^\n]{3,800}?)'(?!\w)")
"""Also between straight single quotes, which in English prose are mostly apostrophes."""
THREE_WORDS = 3
QUOTED_CRITERION = Criterion(id="C", trait="t", text="c", levels=("absent", "present"))


def table(title: str, rows: Sequence[dict[str, object]]) -> None:
    """Print rows of figures under a title."""
    print(f"\n== {title}")
    if not rows:
        print("nothing")
        return
    with pd.option_context("display.width", 250, "display.max_columns", None, "display.max_rows", None):
        print(pd.DataFrame(rows).to_string(index=False, float_format="%.3f", na_rep="–"))


def parse(sets: Iterable[tuple[str, Recorded]]) -> None:
    """How many replies are read, at what tolerance, and where our reading differs from the source's."""
    rates, hows, differ = [], [], []
    for name, one in sets:
        if name == "enem":
            print("\nenem: no raw reply was recorded, only scores that the source had parsed")
            continue
        for judge, part in one.frame.groupby("judge"):
            read, known = part["ours"].notna(), part["recorded"].notna()
            both = read & known
            strict = (part["how"] == "strict").mean() if name in STRICT else None
            fixed = None
            if name == "summeval" and str(judge).endswith("rts"):
                fixed = np.mean([by(FIXED)(row)[0] is not None for row in part.itertuples()])
            rates.append(
                {
                    "set": name,
                    "judge": judge,
                    "n": len(part),
                    "strict": strict,
                    "read": read.mean(),
                    "unreadable": (~read).mean(),
                    "fixed pattern": fixed,
                    "source read": known.mean() if known.any() else None,
                    "both": int(both.sum()),
                    "same": (part["ours"] == part["recorded"])[both].mean() if both.any() else None,
                }
            )
        counted = one.frame["how"].value_counts()
        hows += [{"set": name, "how": how, "n": n, "share": n / len(one.frame)} for how, n in counted.items()]
        differ += _differences(name, one)
    table(
        "Replies read. strict: JSON and nothing else; fixed pattern: 'score: N'; same: as the source read them", rates
    )
    table("How they were read: tolerances of the JSON reader, or which of the patterns", hows)
    table("Where our reading and the source's differ", differ)
    for name, known in STRICT.items():
        print(f"known rates of strict JSON, {name}: {known}")


def _differences(name: str, one: Recorded) -> list[dict[str, object]]:
    """Classes of difference with their number and, where people scored, whose reading is nearer to theirs."""
    rows = one.frame[one.frame["ours"].notna() & one.frame["recorded"].notna()]
    rows = rows[rows["ours"] != rows["recorded"]]
    low, high, _ = np.array([one.scale(item) for item in rows["item"]]).reshape(-1, 3).T
    ours, theirs = rows["ours"], rows["recorded"]
    kind = np.select(
        [
            (ours < low) | (ours > high),
            (theirs < low) | (theirs > high),
            (ours != ours.round()) & (np.floor(ours) == theirs),
            ours != ours.round(),
        ],
        [
            "ours off the scale: refused by the contract",
            "theirs off the scale",
            "half point, cut by them",
            "half point",
        ],
        "another number in the text",
    )
    found = []
    for (judge, what), part in rows.groupby(["judge", kind]):
        nearer = (part["ours"] - part["human"]).abs() < (part["recorded"] - part["human"]).abs()
        further = (part["ours"] - part["human"]).abs() > (part["recorded"] - part["human"]).abs()
        found.append(
            {
                "set": name,
                "judge": judge,
                "class": what,
                "n": len(part),
                "ours nearer to people": int(nearer.sum()),
                "theirs nearer": int(further.sum()),
            }
        )
    return found


def quotes(sets: Iterable[tuple[str, Recorded]]) -> None:
    """What becomes of the quotations in rationales under this project's rule."""
    rows = []
    for name, one in sets:
        for judge, said, text, material in _rationales(name, one):
            pattern = SINGLE if "forced_compare" in str(judge) or name == "enem" else QUOTED
            found = [
                _ground(next(filter(None, match.groups())), against, beside)
                for reply, against, beside in zip(said, text, material, strict=True)
                for match in pattern.finditer(reply)
            ]
            if not found:
                continue
            status = pd.DataFrame(found, columns=["status", "words", "elided", "spelling", "raw"])
            long = status[status["words"] >= THREE_WORDS]
            held = long["status"] == "verified"
            rows.append(
                {
                    "set": name,
                    "judge": judge,
                    "rationales": len(said),
                    "quotations": len(status),
                    "too short": (status["status"] == "too_short").mean(),
                    "elided": status["elided"].mean(),
                    "verified": (status["status"] == "verified").mean(),
                    "of the material": (status["status"] == "material").mean(),
                    "fabricated": (status["status"] == "fabricated").mean(),
                    "of 3 words or more": len(long),
                    "verified then": held.mean() if len(long) else None,
                    "other marks": (held & (long["spelling"] == "marks")).mean() if len(long) else None,
                    "other blanks": (held & (long["spelling"] == "spacing")).mean() if len(long) else None,
                    "letter by letter": long["raw"].mean() if len(long) else None,
                }
            )
    table("Quotations in rationales, looked for in the text that was judged; elided: with an ellipsis", rows)
    print("known: asap_sas about 69% of 3 words or more, 87% elided; enem 45% to 59% by model")


def _rationales(name: str, one: Recorded) -> Iterable[tuple[object, list[str], list[str], list[str]]]:
    """(judge, rationales, texts judged, materials) of the sets whose replies may quote the text."""
    if name == "enem":
        said = [column for column in one.frame.columns if column.startswith("explanation")]
        shot = one.frame[one.frame["judge"].str.endswith("zero_shot")].drop(columns="reply")
        rows = shot.melt(["judge", "text", "material"], said, value_name="reply").dropna(subset="reply")
    elif name == "prometheus":
        rows = one.frame.assign(reply=one.frame["feedback"].fillna(""))
    elif name == "summeval":
        rows = one.frame[one.frame["judge"].str.endswith("rts")]
    elif name in ("sas_sampled", "sas_freeform", "physics"):
        rows = one.frame
    else:
        return
    for judge, part in rows.groupby("judge"):
        yield judge, part["reply"].tolist(), part["text"].tolist(), part["material"].fillna("").tolist()


def _ground(quote: str, text: str, material: str) -> tuple[str, int, bool, str, bool]:
    """(status, words, whether elided, how it is written beside the text, whether it stands there letter by letter)."""
    elided = "..." in quote or "…" in quote
    words = len(folded(quote).replace("...", " ").split())
    status, _, spelling = ground(quote, None, QUOTED_CRITERION, Subject.of(text, units(text)))
    if status in HOLDS:
        return "verified", words, elided, spelling, quote in text
    beside = find_folded(folded(unquoted(quote)), fold(material)) is not None
    return "material" if beside else status, words, elided, spelling, False


PARTS = {
    "parse": parse,
    "quotes": quotes,
    "agreement": partial(recorded_calibration.agreement, table=table),
    "labels": partial(recorded_calibration.labels, table=table),
    "samples": partial(recorded_samples.samples, table=table),
    "probabilities": partial(recorded_samples.probabilities, table=table),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", choices=[[], *PARTS], metavar="PART")
    parser.add_argument("--set", action="append", choices=SETS, help="one of the sets; may be given again")
    given = parser.parse_args()
    sets = [(name, SETS[name]()) for name in given.set or SETS]
    for name in given.parts or PARTS:
        PARTS[name](sets)


if __name__ == "__main__":
    main()

"""What people were asked and what they said: the queue, what settled the labels, and each person's votes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from tasks.contracts.tables.people import DOUBTS, SETTLED
from tasks.display import say
from tasks.display.table import Cell, Cells, Table, count

BY_PEOPLE = ("one_vote", "agreed_votes", "majority", "discussion")
DIFFERED, AGREED, AUDITED = "the annotators differed", "they agreed", "they agreed, audited cases alone"
CASES = 12
"""Cases of the queue that are in the page."""


def settled_table(labels: pa.Table) -> Table:
    """What settled how many labels."""
    counted = Counter(labels["settled_by"].to_pylist())
    rows = _shares({words: counted[name] for name, words in SETTLED.items()}, len(labels))
    return Table("settled", "What settled the labels", ("By", "labels", "%"), rows)


def settled_takeaway(labels: pa.Table) -> str:
    """How many labels rest on people, and how many are open."""
    if not len(labels):
        return "There are no labels yet"
    counted = Counter(labels["settled_by"].to_pylist())
    people = sum(counted[name] for name in BY_PEOPLE)
    told = f"People settled {say.share(people / len(labels))} of {say.plural(len(labels), 'label')}"
    return f"{told}; {say.share(counted['open'] / len(labels))} are open"


def corrected_table(labels: pa.Table, audited: Collection[str]) -> Table:
    """What people made of the annotators' levels. audited: responses that were drawn though nothing spoke against
    them."""
    asked = labels.filter(pc.field("settled_by").isin(BY_PEOPLE) & pc.field("level").is_valid())
    counted: dict[str, Counter[str]] = {words: Counter() for words in (DIFFERED, AGREED, AUDITED)}
    for row in asked.select(["response_id", "level", "history"]).to_pylist():
        given = [step["level"] for step in row["history"] if step["kind"] == "annotator"]
        if len(given) > 1:
            alike = len(set(given)) == 1
            kept = ("both" if alike else "one") if row["level"] in given else "neither"
            counted[AGREED if alike else DIFFERED][kept] += 1
            if alike and row["response_id"] in audited:
                counted[AUDITED][kept] += 1
    rows: list[Cells] = []
    for words, of in counted.items():
        if of.total():
            neither = Cell(100 * of["neither"] / of.total(), digits=1)
            rows.append((words, count(of["both"]), count(of["one"]), count(of["neither"]), neither))
    header = ("Where", "both were right", "one was", "neither", "neither, %")
    notes = ("Most cases that people see are in doubt: only the audited tell how often annotators err together.",)
    return Table("corrected", "What people made of the annotators' levels", header, tuple(rows), notes)


def audited(queue: pa.Table) -> set[str]:
    """Responses that are asked about for no other reason."""
    rows = zip(queue["response_id"].to_pylist(), queue["reasons"].to_pylist(), strict=True)
    return {response for response, reasons in rows if reasons == ["audit"]}


def reason_table(queue: pa.Table) -> Table:
    """Why cases are asked about; one may have several reasons."""
    counted = Counter(pc.list_flatten(queue["reasons"]).to_pylist())
    rows = _shares({words: counted[name] for name, words in DOUBTS.items()}, len(queue))
    return Table("reasons", "Why they are asked about", ("Reason", "cases", "% of the cases"), rows)


def case_table(queue: pa.Table, votes: pa.Table) -> Table:
    """The first cases, and how many persons have voted on each."""
    voted = voters(votes)
    rows: list[Cells] = []
    for row in sorted(queue.to_pylist(), key=lambda row: (row["subject_kind"], row["rank"]))[:CASES]:
        people = len(voted.get((row["subject_kind"], row["response_id"]), ()))
        rows.append((say.name(row["response_id"]), say.visible(row["why"]), str(row["rank"]), count(people)))
    more = len(queue) - len(rows)
    notes = (f"{say.count(more)} more in the table queue",) if more > 0 else ()
    return Table("cases", "First in the queue", ("Response", "why", "rank", "voted"), tuple(rows), notes)


def queue_takeaway(queue: pa.Table, votes: pa.Table) -> str:
    """How many cases have been voted on."""
    if not len(queue):
        return "Nothing waits for people"
    cases = set(zip(queue["subject_kind"].to_pylist(), queue["response_id"].to_pylist(), strict=True))
    done = len(cases & voters(votes).keys())
    return f"People have voted on {say.count(done)} of {say.plural(len(cases), 'case')}"


def voters(votes: pa.Table) -> dict[tuple[str, str], set[str]]:
    """(label or score, response) → who voted on it. What stands before a label's last colon is its response."""
    found: dict[tuple[str, str], set[str]] = {}
    columns = (votes[name].to_pylist() for name in ("subject_kind", "subject", "rater_id"))
    for kind, subject, rater in zip(*columns, strict=True):
        if kind in ("label", "score"):
            response = subject.rpartition(":")[0] if kind == "label" else subject
            found.setdefault((kind, response), set()).add(rater)
    return found


def progress_table(votes: pa.Table) -> Table:
    """What each person has done."""
    mine = votes.filter(pc.field("subject_kind").isin(["label", "score"]))
    header = ("Person", "cases", "votes", "cannot be judged", "adjudications", "blind, %", "last")
    if not len(mine):
        return Table("progress", "Votes by person", header, ())
    frame = mine.select(["subject_kind", "subject", "value", "rater_id", "voted_at", "role", "blind"]).to_pandas()
    frame["case"] = frame["subject"].where(frame["subject_kind"] == "score", frame["subject"].str.rpartition(":")[0])
    rows = tuple(_progress(str(rater), of) for rater, of in frame.groupby("rater_id", sort=True))
    return Table("progress", "Votes by person", header, rows)


def _progress(rater: str, of: pd.DataFrame) -> Cells:
    adjudicated = of["role"] == "adjudication"
    blind = of.loc[~adjudicated, "blind"].dropna()
    return (
        say.name(rater),
        count(of["case"].nunique()),
        count(int((~adjudicated).sum())),
        count(int((of["value"] == "x").sum())),
        count(int(adjudicated.sum())),
        Cell(100 * float(blind.astype(float).mean()) if len(blind) else None, digits=0),
        say.name(max(of["voted_at"])),
    )


def _shares(counted: Mapping[str, int], every: int) -> tuple[Cells, ...]:
    return tuple((words, count(n), Cell(100 * n / every, digits=1)) for words, n in counted.items() if n)

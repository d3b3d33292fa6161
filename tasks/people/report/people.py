"""What people were asked and what they said, as tables: the queue, what settled the labels, and each person's votes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from rubricflow.tasks.core.contracts.tables.people import DOUBTS, SETTLED
from rubricflow.tasks.core.display import say
from rubricflow.tasks.core.display.table import Cell, Cells, Table, count, number

BY_PEOPLE = ("one_vote", "agreed_votes", "majority", "discussion")
DIFFERED, AGREED, AUDITED = "the annotators differed", "they agreed", "they agreed, audited cases alone"
CASES = 12
"""Cases of the queue that are in the page."""


def settled_table(labels: pa.Table) -> Table:
    """What settled how many labels."""
    rows = _shares(labels["settled_by"], SETTLED, len(labels))
    return Table("settled", "What settled the labels", ("By", "labels", "%"), rows)


def settled_takeaway(labels: pa.Table) -> str:
    """How many labels rest on people, and how many are open."""
    if not len(labels):
        return "There are no labels yet"
    counted = Counter(labels["settled_by"].to_pylist())
    by_people = say.share(sum(counted[name] for name in BY_PEOPLE) / len(labels))
    still_open = say.share(counted["open"] / len(labels))
    return f"People settled {by_people} of {say.plural(len(labels), 'label')}; {still_open} are open"


def corrected_table(labels: pa.Table, queue: pa.Table) -> Table:
    """What people made of the annotators' levels; of the cases that nothing spoke against also apart."""
    audits = {row["response_id"] for row in queue.to_pylist() if row["reasons"] == ["audit"]}
    counted: dict[str, Counter[str]] = {words: Counter() for words in (DIFFERED, AGREED, AUDITED)}
    by_people = labels.filter(pc.field("settled_by").isin(BY_PEOPLE) & pc.field("level").is_valid())
    for row in by_people.to_pylist():
        levels = [step["level"] for step in row["history"] if step["kind"] == "annotator"]
        if len(levels) > 1:
            alike = len(set(levels)) == 1
            right = "neither" if row["level"] not in levels else "both" if alike else "one"
            counted[AGREED if alike else DIFFERED][right] += 1
            if alike and row["response_id"] in audits:
                counted[AUDITED][right] += 1
    rows = list[Cells]()
    for words, counts in counted.items():
        if counts:
            neither = Cell(100 * counts["neither"] / counts.total(), digits=1)
            rows.append((words, *(count(counts[right]) for right in ("both", "one", "neither")), neither))
    header = ("Where", "both were right", "one was", "neither", "neither, %")
    notes = ("Most cases that people see are in doubt: only the audited tell how often annotators err together.",)
    return Table("corrected", "What people made of the annotators' levels", header, rows, notes)


def reason_table(queue: pa.Table) -> Table:
    """Why cases are asked about; one may have several reasons."""
    rows = _shares(pc.list_flatten(queue["reasons"]), DOUBTS, len(queue))
    return Table("reasons", "Why they are asked about", ("Reason", "cases", "% of the cases"), rows)


def case_table(queue: pa.Table, votes: pa.Table) -> Table:
    """The first cases, and how many persons have voted on each."""
    voters = cases_of(votes).groupby(["subject_kind", "case"])["rater_id"].nunique()
    first = queue.sort_by([("subject_kind", "ascending"), ("rank", "ascending")]).slice(0, CASES)
    rows = []
    for row in first.to_pylist():
        people = int(voters.get((row["subject_kind"], row["response_id"]), 0))
        rows.append((say.name(row["response_id"]), say.visible(row["why"]), str(row["rank"]), count(people)))
    more = len(queue) - len(rows)
    notes = (f"{say.count(more)} more in the table queue",) if more else ()
    return Table("cases", "First in the queue", ("Response", "why", "rank", "voted"), rows, notes)


def queue_takeaway(queue: pa.Table, votes: pa.Table) -> str:
    """How many cases have been voted on."""
    if not len(queue):
        return "Nothing waits for people"
    cases = {(row["subject_kind"], row["response_id"]) for row in queue.to_pylist()}
    voted = set(cases_of(votes)[["subject_kind", "case"]].itertuples(index=False, name=None))
    return f"People have voted on {say.count(len(cases & voted))} of {say.plural(len(cases), 'case')}"


def progress_table(votes: pa.Table) -> Table:
    """What each person has done."""
    rows = list[Cells]()
    for rater, own in cases_of(votes).groupby("rater_id"):
        adjudicated = own["role"] == "adjudication"
        blind = own.loc[~adjudicated, "blind"].dropna().astype(float).mean()
        sums = own["case"].nunique(), (~adjudicated).sum(), (own["value"] == "x").sum(), adjudicated.sum()
        figures = [count(int(figure)) for figure in sums]
        rows.append((say.name(str(rater)), *figures, number(100 * blind, 0), say.name(own["voted_at"].max())))
    header = ("Person", "cases", "votes", "cannot be judged", "adjudications", "blind, %", "last")
    return Table("progress", "Votes by person", header, rows)


def cases_of(votes: pa.Table) -> pd.DataFrame:
    """Votes on labels and scores, with the response that each is about: what stands before a label's last colon."""
    frame: pd.DataFrame = votes.to_pandas()
    frame = frame[frame["subject_kind"].isin(["label", "score"])].astype({"subject": str})
    response = frame["subject"].str.rpartition(":")[0] if len(frame) else frame["subject"]
    return frame.assign(case=frame["subject"].where(frame["subject_kind"] == "score", response))


def _shares(values: pa.ChunkedArray, words: Mapping[str, str], every: int) -> list[Cells]:
    """How often each of the values that have words is there, and per cent of all."""
    counted = Counter(values.to_pylist())
    shown = [name for name in words if counted[name]]
    return [(words[name], count(counted[name]), number(100 * counted[name] / every, 1)) for name in shown]

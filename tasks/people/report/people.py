"""What people were asked and what they said: the queue, what settled the labels, and each person's votes.

Agreement as SVG: a row for each concept with its interval; before people were asked a square, afterwards a disc.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping

import pyarrow as pa
import pyarrow.compute as pc
from markupsafe import Markup

from rubricflow.tasks.core.contracts.tables.people import DOUBTS, SETTLED, Phase
from rubricflow.tasks.core.display import draw, say
from rubricflow.tasks.core.display.axis import axis
from rubricflow.tasks.core.display.charts import LABELS, middle, rows
from rubricflow.tasks.core.display.table import Cell, Cells, Table, count, number

BY_PEOPLE = ("one_vote", "agreed_votes", "majority", "discussion")
DIFFERED, AGREED, AUDITED = "the annotators differed", "they agreed", "they agreed, audited cases alone"
CASES = 12
"""Cases of the queue that are in the page."""


def settled_table(labels: pa.Table) -> Table:
    """What settled how many labels."""
    counted = Counter(labels["settled_by"].to_pylist())
    rows = _shares(counted, SETTLED, len(labels))
    return Table("settled", "What settled the labels", ("By", "labels", "%"), rows)


def settled_takeaway(labels: pa.Table) -> str:
    """How many labels rest on people, and how many are open."""
    if not len(labels):
        return "There are no labels yet"
    counted = Counter(labels["settled_by"].to_pylist())
    people = sum(counted[name] for name in BY_PEOPLE)
    sentence = f"People settled {say.share(people / len(labels))} of {say.plural(len(labels), 'label')}"
    return f"{sentence}; {say.share(counted['open'] / len(labels))} are open"


def corrected_table(labels: pa.Table, audited: Collection[str]) -> Table:
    """What people made of the annotators' levels. audited: responses that were drawn though nothing spoke against
    them."""
    by_people = labels.filter(pc.field("settled_by").isin(BY_PEOPLE) & pc.field("level").is_valid())
    counted: dict[str, Counter[str]] = {words: Counter() for words in (DIFFERED, AGREED, AUDITED)}
    for row in by_people.select(["response_id", "level", "history"]).to_pylist():
        levels = [step["level"] for step in row["history"] if step["kind"] == "annotator"]
        if len(levels) > 1:
            alike = len(set(levels)) == 1
            right = "neither" if row["level"] not in levels else "both" if alike else "one"
            counted[AGREED if alike else DIFFERED][right] += 1
            if alike and row["response_id"] in audited:
                counted[AUDITED][right] += 1
    rows = list[Cells]()
    for words, counts in counted.items():
        if counts.total():
            neither = Cell(100 * counts["neither"] / counts.total(), digits=1)
            rows.append((words, *(count(counts[right]) for right in ("both", "one", "neither")), neither))
    header = ("Where", "both were right", "one was", "neither", "neither, %")
    notes = ("Most cases that people see are in doubt: only the audited tell how often annotators err together.",)
    return Table("corrected", "What people made of the annotators' levels", header, rows, notes)


def audited(queue: pa.Table) -> set[str]:
    """Responses that are asked about for no other reason."""
    rows = queue.select(["response_id", "reasons"]).to_pylist()
    return {row["response_id"] for row in rows if row["reasons"] == ["audit"]}


def reason_table(queue: pa.Table) -> Table:
    """Why cases are asked about; one may have several reasons."""
    counted = Counter(pc.list_flatten(queue["reasons"]).to_pylist())
    rows = _shares(counted, DOUBTS, len(queue))
    return Table("reasons", "Why they are asked about", ("Reason", "cases", "% of the cases"), rows)


def case_table(queue: pa.Table, votes: pa.Table) -> Table:
    """The first cases, and how many persons have voted on each."""
    voted = voters(votes)
    rows = []
    for row in sorted(queue.to_pylist(), key=lambda row: (row["subject_kind"], row["rank"]))[:CASES]:
        people = len(voted.get((row["subject_kind"], row["response_id"]), ()))
        rows.append((say.name(row["response_id"]), say.visible(row["why"]), str(row["rank"]), count(people)))
    more = len(queue) - len(rows)
    notes = (f"{say.count(more)} more in the table queue",) if more > 0 else ()
    return Table("cases", "First in the queue", ("Response", "why", "rank", "voted"), rows, notes)


def queue_takeaway(queue: pa.Table, votes: pa.Table) -> str:
    """How many cases have been voted on."""
    if not len(queue):
        return "Nothing waits for people"
    cases = {(row["subject_kind"], row["response_id"]) for row in queue.to_pylist()}
    done = len(cases & voters(votes).keys())
    return f"People have voted on {say.count(done)} of {say.plural(len(cases), 'case')}"


def voters(votes: pa.Table) -> dict[tuple[str, str], set[str]]:
    """(label or score, response) → who voted on it. What stands before a label's last colon is its response."""
    raters_of_case = defaultdict[tuple[str, str], set[str]](set)
    for vote in votes.select(["subject_kind", "subject", "rater_id"]).to_pylist():
        kind, subject = vote["subject_kind"], vote["subject"]
        if kind in ("label", "score"):
            response = subject.rpartition(":")[0] if kind == "label" else subject
            raters_of_case[kind, response].add(vote["rater_id"])
    return raters_of_case


def progress_table(votes: pa.Table) -> Table:
    """What each person has done."""
    cases = votes.filter(pc.field("subject_kind").isin(["label", "score"]))
    header = ("Person", "cases", "votes", "cannot be judged", "adjudications", "blind, %", "last")
    if not len(cases):
        return Table("progress", "Votes by person", header, ())
    frame = cases.select(["subject_kind", "subject", "value", "rater_id", "voted_at", "role", "blind"]).to_pandas()
    frame["case"] = frame["subject"].where(frame["subject_kind"] == "score", frame["subject"].str.rpartition(":")[0])
    rows = list[Cells]()
    for rater, of_rater in frame.groupby("rater_id", sort=True):
        adjudicated = of_rater["role"] == "adjudication"
        blind = of_rater.loc[~adjudicated, "blind"].dropna()
        blind_share = Cell(100 * float(blind.astype(float).mean()) if len(blind) else None, digits=0)
        sums = (~adjudicated, of_rater["value"] == "x", adjudicated)
        numbers = (of_rater["case"].nunique(), *(int(those.sum()) for those in sums))
        rows.append((say.name(str(rater)), *map(count, numbers), blind_share, say.name(max(of_rater["voted_at"]))))
    return Table("progress", "Votes by person", header, rows)


def _shares(counted: Counter[str], words: Mapping[str, str], every: int) -> list[Cells]:
    return [
        (words[name], count(counted[name]), number(100 * counted[name] / every, 1)) for name in words if counted[name]
    ]


RIGHT = 90.0
"""Per cent of the width where the axis ends; figures stand right of it."""


def spans(title: str, phase: Phase, concepts: Mapping[str, Cell], within: Iterable[float]) -> Markup:
    """One row for each concept, at least one, whose value is known. within: values that the axis holds, so that charts
    can be compared."""
    on = axis(within, most=4, left=LABELS, right=RIGHT)
    numbers = {concept: say.number(cell.value or 0.0) for concept, cell in concepts.items()}
    height, marks = rows(on, list(numbers.items()))
    for index, cell in enumerate(concepts.values()):
        x, y = on.x(cell.value or 0.0), middle(index)
        marks += on.span(cell.low, cell.high, y, "gl" if phase == "before" else "ml")
        marks.append(draw.square(x, y) if phase == "before" else draw.circle(x, y, 4.5, "mf"))
    words = "; ".join(f"{concept} {number}" for concept, number in numbers.items())
    return draw.svg(height, marks, f"{title}: {words}")

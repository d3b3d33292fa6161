"""What a judge's quotes are worth, said wherever it is said that they stand in the answers: how many of their points
people give too, and whether they follow the order of the criteria."""

from __future__ import annotations

from typing import NamedTuple

from rubricflow.tasks.core.contracts.tables.judging import STANDING
from rubricflow.tasks.core.display import say
from rubricflow.tasks.core.display.table import Row

NO_JUROR = "(bundle_id IS NULL OR bundle_id NOT IN (SELECT bundle_id FROM juror_bundles))"
"""The jurors of a jury judge under bundles of their own."""
MACHINE = f"""
    rater_kind NOT IN ('human', 'adjudication') AND (rater_kind <> 'replayed' OR bundle_id IS NOT NULL) AND {NO_JUROR}
"""
"""The study's judge: what the data recorded of another machine was graded under no bundle."""
WORTH_OF_QUOTES = f"""
    WITH machine AS (SELECT * FROM judgments WHERE {MACHINE}),
    people AS (
        SELECT response_id, criterion_id, bool_or(decision > 0) AS given FROM judgments
        WHERE rater_kind IN ('human', 'adjudication') AND decision IS NOT NULL GROUP BY ALL),
    quotes AS (SELECT response_id, criterion_id, unnest(evidence) AS quote FROM machine),
    order_of AS (
        SELECT rubric_id, unnest(ids) AS criterion_id, generate_subscripts(ids, 1) AS place
        FROM (SELECT rubric_id, from_json(content->'$.criteria[*].id', '["VARCHAR"]') AS ids FROM bundles)),
    placed AS (
        SELECT q.response_id, c.place, count(*) AS sentence
        FROM (SELECT DISTINCT response_id, criterion_id, quote.start AS start FROM quotes
              WHERE quote.status IN {STANDING} AND quote.start IS NOT NULL) AS q
        JOIN responses AS r USING (response_id) JOIN items AS i ON i.item_id = r.item_id
        JOIN order_of AS c ON c.rubric_id = i.rubric_id AND c.criterion_id = q.criterion_id
        JOIN units AS u ON u.response_id = q.response_id AND u.kind = 'sentence' AND u.start <= q.start
        GROUP BY q.response_id, q.criterion_id, c.place, q.start),
    dealt AS (
        SELECT avg((a.place = b.sentence)::INT) * count(DISTINCT (a.place, a.sentence)) AS by_chance
        FROM placed AS a JOIN placed AS b USING (response_id) GROUP BY response_id)
    SELECT (SELECT count(*) FROM quotes) AS quotes,
        (SELECT count(*) FROM quotes WHERE quote.status IN {STANDING}) AS standing,
        count(*) FILTER (verified AND decision > 0 AND given IS NOT NULL) AS credited,
        count(*) FILTER (verified AND decision > 0 AND given) AS credited_by_people,
        count(*) FILTER (decision = 0 AND given IS NOT NULL) AS not_credited,
        count(*) FILTER (decision = 0 AND given) AS not_credited_by_people,
        (SELECT count(*) FROM placed) AS placed,
        (SELECT count(*) FROM placed WHERE place = sentence) AS in_order,
        (SELECT coalesce(sum(by_chance), 0.0) FROM dealt) AS by_chance
    FROM machine LEFT JOIN people USING (response_id, criterion_id)"""
"""One row about a run's quotes and decisions. by_chance: how many of the placed quotes would be in order if the quotes
of each answer were dealt to its criteria by chance."""
FEWEST, FAR, TRUSTED = 30, 0.2, 0.9
"""Quotes from which their order tells something, how far above chance it does, and the share of points that people
give too from which it does not matter."""


class WorthOfQuotes(NamedTuple):
    """Counts of WORTH_OF_QUOTES in words."""

    counts: Row

    @property
    def with_people(self) -> str:
        """How many of the points that quotes stand for people give too; without a full stop."""
        counts = self.counts
        if not counts["credited"]:
            return "nobody checked the points that they stand for"
        return f"people give {self.share('credited_by_people', 'credited')} of the points that they stand for"

    @property
    def sentence(self) -> str:
        """What share stands in the answers, and in the same breath what that is worth; '' without quotes."""
        if not self.counts["quotes"]:
            return ""
        return f"{self.share('standing', 'quotes')} of quotes are in the answer; {self.with_people}"

    @property
    def order(self) -> str:
        """How many quotes are sentence k for criterion k, and how many by chance; '' where none has a place."""
        if not self.counts["placed"]:
            return ""
        return f"{self.share('in_order', 'placed')} of quotes are sentence k for criterion k ({self.chance} by chance)"

    @property
    def chance(self) -> str:
        return self.share("by_chance", "placed")

    @property
    def warning(self) -> str:
        """Why the quotes are not to be shown to students before somebody looked at them; '' where nothing speaks
        against it."""
        counts = self.counts
        agreed = counts["credited_by_people"] / counts["credited"] if counts["credited"] else 0.0
        ahead = (counts["in_order"] - counts["by_chance"]) / max(1, counts["placed"])
        if counts["placed"] < FEWEST or ahead < FAR or agreed >= TRUSTED:
            return ""
        return (
            f"The quotes follow the order of the criteria: {self.order}, and {self.with_people}. Look at some before "
            "students see them."
        )

    def share(self, part: str, whole: str) -> str:
        return say.share(self.counts[part] / self.counts[whole])

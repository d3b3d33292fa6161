"""The run's metrics, looked up by name; what is missing comes with its reason. And counts over all responses, asked of
the run's tables in SQL so that memory stays flat."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from statistics import fmean

import duckdb
import pyarrow as pa

from rubricflow.tasks.core.display.page import Figure, Named
from rubricflow.tasks.core.display.quotes import MACHINE, WORTH_OF_QUOTES
from rubricflow.tasks.core.display.table import Row, Rows
from rubricflow.tasks.core.display.verdict import FINAL_SCORES
from rubricflow.tasks.core.stats.bootstrap import cautions
from rubricflow.tasks.core.stats.metrics import METRICS, Metric, Unit
from rubricflow.tasks.core.stats.verdict import Estimate

ALL = "all"
NOTHING_SCORED = "no held-out response has both a human and a machine score"
STAGES = ("released", "calibrated", "human", "raw", "")
"""Stages of gates, the weightiest first: what goes out, then every score, then people."""


class Figures:
    """Rows of `metrics` by metric, stage, slice and value."""

    def __init__(self, rows: Rows, metrics: Sequence[Metric] = METRICS) -> None:
        self.metrics = {metric.name: metric for metric in metrics}
        """What is known of each metric, by name."""
        gates = [(gate, gate.question or metric.title) for metric in metrics for gate in metric.gates]
        gates.sort(key=lambda pair: STAGES.index(pair[0].stage))
        self.questions = {gate.name: question for gate, question in gates}
        """Gates in words, the weightiest first."""
        self.resampled = next((row["resampled"] for row in rows if row["resampled"] in ("author", "response")), "")
        """What the intervals resample."""
        self.cautions = tuple(cautions(row["clusters"] for row in rows))
        """What to know of intervals that are marked."""
        undefined = [row["note"] for row in rows if (row["metric"], row["slice"], row["value"]) == ("qwk", ALL, None)]
        self._why = undefined[-1] if undefined else None
        self._rows: dict[tuple[str, str, str, str], list[Row]] = defaultdict(list)
        self._values: dict[tuple[str, str], dict[str, None]] = defaultdict(dict)
        for row in rows:
            self._rows[row["metric"], row["stage"], row["slice"], row["value_of"]].append(row)
            self._values[row["metric"], row["slice"]][row["value_of"]] = None

    def unit(self, metric: str) -> Unit:
        """How a metric's figures are written; those of a mean over items as those of the items."""
        registered = self.metrics.get(metric.removesuffix("_item_mean"))
        return registered.unit if registered else "number"

    def listed(self, section: str) -> list[Metric]:
        return [metric for metric in self.metrics.values() if metric.section == section]

    def named(self, metric: str, estimate: Estimate) -> tuple[Named, Figure]:
        known = self.metrics[metric]
        return Named(known.title, known.meaning), Figure(estimate, known.unit)

    def values(self, metric: str, part: str) -> list[str]:
        return [*self._values[metric, part]]

    def machine(self, metric: str, stage: str = "calibrated", part: str = ALL, value: str = ALL) -> Estimate:
        """The machine with the target (else with people together) at a stage."""
        rows = self._rows.get((metric, stage, part, value), [])
        for reference in ("target", "people"):
            for row in rows:
                if row["rater_a"] == reference:
                    return estimate_of(row)
        return estimate_of(rows[0]) if len(rows) == 1 else self._missing()

    def people(self, metric: str, part: str = ALL, value: str = ALL, on: int | None = None) -> Estimate:
        """People with each other: of several pairs the mean, which has no interval. on: how many answers the machine
        is compared on; None with the reason where a pair scored others, as such figures do not compare."""
        rows = self._rows.get((metric, "human", part, value), [])
        defined = [row for row in rows if row["value"] is not None]
        if not rows:
            return self._missing("no two people scored")
        if on is not None and {row["n"] for row in defined} - {on}:
            most = max(row["n"] for row in defined)
            return Estimate(None, note=f"no two people scored all of these answers, but {most:,} of {on:,}")
        if len(rows) == 1 or not defined:
            return estimate_of(rows[0])
        mean = fmean(row["value"] for row in defined)
        return Estimate(mean, n=max(row["n"] for row in defined), note=f"mean of {len(defined)} pairs of people")

    def raters(self, metric: str, stage: str = "calibrated") -> list[str]:
        """Whose figures of the whole set there are, in order."""
        return [row["rater_b"] for row in self._rows.get((metric, stage, ALL, ALL), [])]

    def rater(self, metric: str, name: str, stage: str = "calibrated") -> Estimate:
        """A rater's figure of the whole set; '' for the only one of a stage."""
        rows = self._rows.get((metric, stage, ALL, ALL), [])
        return next((estimate_of(row) for row in rows if name in ("", row["rater_b"])), self._missing())

    def any(self, metric: str, part: str = ALL, value: str = ALL) -> Estimate:
        """A metric that has one stage only, whichever it is."""
        for stage in ("calibrated", "human", "released", "raw"):
            if (metric, stage, part, value) in self._rows:
                return self.machine(metric, stage, part, value)
        return self._missing()

    def _missing(self, why: str = "") -> Estimate:
        if not self._rows:
            return Estimate(None, note="there are no human scores to compare with")
        return Estimate(None, note=why or self._why or "not measured for these scores")


def estimate_of(row: Row) -> Estimate:
    value = row["value"]
    note = row["note"] or ("" if value is not None else "undefined")
    return Estimate(value, row["low"], row["high"], clusters=row["clusters"], n=row["n"], note=note)


TO_READ = 50
"""Looks of each kind, at most, that are shown with their passages."""
PEOPLE_GIVE = """
            SELECT response_id, criterion_id, bool_or(decision > 0) AS given FROM judgments
            WHERE rater_kind IN ('human', 'adjudication') AND decision IS NOT NULL GROUP BY ALL"""
QUERIES = {
    "responses": """
        WITH people AS (
            SELECT response_id, count(*) FILTER (rater_kind = 'human') AS persons,
                bool_or(rater_id = $target OR (rater_kind = 'human' AND $target = 'mean')) AS labelled
            FROM gradings WHERE rater_kind IN ('human', 'adjudication') AND score IS NOT NULL GROUP BY response_id)
        SELECT split, coalesce(labelled, false) AS labelled, least(coalesce(persons, 0), 2) AS persons,
            p.score IS NOT NULL AS scored, count(*) AS n
        FROM (SELECT response_id, split FROM responses)
        LEFT JOIN people USING (response_id)
        LEFT JOIN (SELECT response_id, score FROM predictions) p USING (response_id)
        GROUP BY ALL ORDER BY ALL""",
    "final": FINAL_SCORES,
    "jury_rules": "SELECT * FROM jury_rules ORDER BY chosen DESC, rule",
    "jurors": "SELECT * FROM jurors",
    "worth": WORTH_OF_QUOTES,
    "set": """
        SELECT count(*) AS responses, count(DISTINCT item_id) AS items, count(author_id) AS with_author,
            count(DISTINCT author_id) AS authors, coalesce(max(length(text)), 0) AS longest FROM responses""",
    "nothing": f"""
        WITH asked AS (
            SELECT response_id, rater_id, sample, unscored_reason,
                score IS NOT NULL OR cardinality(trait_scores) > 0 AS has
            FROM gradings WHERE {MACHINE} AND status <> 'precheck'),
        decided AS (
            SELECT response_id, rater_id, sample, mode(unscored_reason) AS why FROM judgments
            WHERE unscored_reason IS NOT NULL GROUP BY ALL),
        last AS (
            SELECT response_id, rater_id, sample, error FROM attempts
            QUALIFY row_number() OVER (PARTITION BY response_id, rater_id, sample, part ORDER BY attempt DESC) = 1),
        said AS (SELECT response_id, rater_id, sample, min(error) AS error FROM last GROUP BY ALL)
        SELECT CASE WHEN unscored_reason IN ('criterion_unscored', 'trait_unscored') THEN coalesce(why, unscored_reason)
                ELSE unscored_reason END AS reason,
            nullif(mode(coalesce(error, '')), '') AS error, count(*) AS n
        FROM asked LEFT JOIN decided USING (response_id, rater_id, sample)
        LEFT JOIN said USING (response_id, rater_id, sample)
        WHERE NOT (SELECT bool_or(has) FROM asked) GROUP BY reason ORDER BY n DESC, reason""",
    "quotes": f"""
        SELECT quote.status AS status, count(*) AS n
        FROM (SELECT unnest(evidence) AS quote FROM judgments WHERE {MACHINE}) GROUP BY ALL ORDER BY ALL""",
    "lost_verdicts": """
        SELECT unscored_reason AS reason, count(*) AS n, (SELECT count(*) FROM comparisons) AS asked
        FROM comparisons WHERE winner IS NULL GROUP BY ALL ORDER BY n DESC, reason""",
    "supports": f"""
        WITH people AS ({PEOPLE_GIVE})
        SELECT kind, count(*) AS looks, count(*) FILTER (doubted) AS doubted, count(probability) AS known,
            count(percent) AS asked, count(given) AS marked,
            count(*) FILTER ((kind = 'credit') <> given) AS wrong,
            count(given) FILTER (doubted) AS doubted_marked,
            count(*) FILTER (doubted AND (kind = 'credit') <> given) AS found
        FROM supports LEFT JOIN people USING (response_id, criterion_id) GROUP BY ALL ORDER BY ALL""",
    "to_read": f"""
        WITH people AS ({PEOPLE_GIVE}), sought AS (
            SELECT rubric_id, unnest(from_json(content -> 'criteria',
                '[{{"id": "VARCHAR", "text": "VARCHAR"}}]'), recursive := true) FROM bundles)
        SELECT CASE kind WHEN 'credit' THEN 'credit' ELSE 'no credit' END
                || CASE WHEN doubted AND kind = 'credit' THEN ', doubted' WHEN doubted THEN ', proposed' ELSE '' END
                AS look,
            CASE given WHEN true THEN 'give it' WHEN false THEN 'do not' ELSE '–' END AS people,
            coalesce(sought.text, criterion_id)[:300] AS looked_for,
            coalesce(substr(responses.text, supports.start + 1, supports."end" - supports.start)[:500], '–') AS passage,
            coalesce(format('{{:.2f}}', probability), '–') AS likely, response_id
        FROM supports JOIN responses USING (response_id) JOIN items USING (item_id)
        LEFT JOIN sought ON sought.rubric_id = items.rubric_id AND sought.id = criterion_id
        LEFT JOIN people USING (response_id, criterion_id)
        QUALIFY row_number() OVER (
            PARTITION BY kind, doubted, given ORDER BY hash(response_id, criterion_id), rater_id, sample) <= {TO_READ}
        ORDER BY kind, doubted DESC, given, probability, response_id, criterion_id""",
    "decisions": f"""
        SELECT action, decision IS NULL AS unscored, coalesce(decision > 0 AND verified IS NULL, false) AS ungrounded,
            count(*) AS n FROM judgments WHERE {MACHINE} GROUP BY ALL ORDER BY ALL""",
    "attempts": """
        SELECT role, model, stored, reply IS NULL AS failed, len(violations) > 0 AS violated, count(*) AS calls,
            count(DISTINCT response_id) AS responses, sum(prompt_tokens)::BIGINT AS prompt_tokens,
            sum(completion_tokens)::BIGINT AS completion_tokens, sum(cached_tokens)::BIGINT AS cached_tokens,
            sum(prompt_tokens) FILTER (cached_tokens IS NOT NULL)::BIGINT AS cacheable_tokens,
            sum(latency_s) AS latency_s
        FROM attempts GROUP BY ALL ORDER BY ALL""",
    "costs": """
        SELECT model, sum(usd) AS usd, count(*) AS calls, count(*) FILTER (usd IS NULL) AS unknown
        FROM costs GROUP BY ALL ORDER BY ALL""",
    "repeats": f"""
        SELECT count(*) AS responses, count(*) FILTER (levels = 1) AS same, coalesce(max(asked), 0) AS asked,
            avg(spread) AS spread
        FROM (SELECT count(score) AS asked, count(DISTINCT score) AS levels, max(score) - min(score) AS spread
              FROM gradings WHERE {MACHINE} GROUP BY response_id HAVING count(score) > 1)""",
    "alike": """
        SELECT sum(n)::BIGINT AS answers, max(n) AS same
        FROM (SELECT item_id, raw, count(*) AS n FROM predictions
              WHERE raw IS NOT NULL AND route_reason IS DISTINCT FROM 'precheck' GROUP BY ALL)
        GROUP BY item_id HAVING sum(n) > 1 ORDER BY item_id""",
    "possible": """
        SELECT scope, possible_target, count(*) AS n
        FROM release_rules AS rule
        JOIN final_scores AS p ON rule.scope IN ('all', p.item_id) AND p.risk <= rule.possible_threshold
        WHERE p.route_reason IN ('no_promise', 'risk') AND p.decided_by = 'waits'
        GROUP BY ALL ORDER BY possible_target, n DESC, scope""",
    "input_warnings": "SELECT kind, responses, examples FROM input_warnings ORDER BY kind",
    "quarantine": "SELECT table_name, rule, count(*) AS n FROM quarantine GROUP BY ALL ORDER BY ALL",
}


def counts(connection: duckdb.DuckDBPyConnection, target: str) -> dict[str, pa.Table]:
    """Query → its rows, over a connection with a view per table (`tasks.core.store.catalogue.catalogue`).

    target: the human score that counts, a rater id or 'mean'.
    """
    return {
        query: connection.sql(sql, params={"target": target} if "$target" in sql else {}).to_arrow_table()
        for query, sql in QUERIES.items()
    }

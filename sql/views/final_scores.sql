-- One row per graded answer: the score that goes out, or that it waits for a person. Nothing else says which it is.
-- What people marked in the data has no route: nobody asks where the machine's score would go.
SELECT
    p.run_id,
    p.response_id,
    p.item_id,
    p.rater_id,
    CASE
        WHEN s.settled_by IS NOT NULL THEN s.score
        WHEN p.route = 'release' THEN p.score
    END AS final_score,
    CASE
        WHEN s.settled_by = 'cannot_be_judged' THEN 'cannot_be_judged'
        WHEN s.settled_by IS NOT NULL AND s.score IS NOT NULL THEN 'person'
        WHEN s.settled_by IS NULL AND p.route = 'release' AND p.score IS NOT NULL THEN 'machine'
        ELSE 'waits'
    END AS decided_by,
    s.settled_by,
    p.score AS machine_score,
    p.raw AS judge_score,
    p.low,
    p.high,
    p.risk,
    CASE WHEN s.marks IS NULL THEN p.route END AS route,
    CASE WHEN s.marks IS NULL THEN p.route_reason END AS route_reason,
    p.unscored_reason,
    s.levels AS settled_levels,
    s.note,
    s.history,
    s.marks
FROM predictions AS p
LEFT JOIN settled_scores AS s USING (run_id, response_id)

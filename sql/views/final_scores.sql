-- One row per graded answer: the score that goes out, or that it waits for a person. Nothing else says which it is.
-- What people marked in the data has no route: nobody asks where the machine's score would go. Where released scores of
-- held-out answers are wrong more often than promised (gate released_errors), none goes out.
SELECT
    p.run_id,
    p.response_id,
    p.item_id,
    p.rater_id,
    CASE
        WHEN s.settled_by IS NOT NULL THEN s.score
        WHEN p.route = 'release' AND broken.run_id IS NULL THEN p.score
    END AS final_score,
    CASE
        WHEN s.settled_by = 'cannot_be_judged' THEN 'cannot_be_judged'
        WHEN s.settled_by IS NOT NULL AND s.score IS NOT NULL THEN 'person'
        WHEN s.settled_by IS NULL AND p.route = 'release' AND p.score IS NOT NULL AND broken.run_id IS NULL THEN 'machine'
        ELSE 'waits'
    END AS decided_by,
    s.settled_by,
    p.score AS machine_score,
    p.raw AS judge_score,
    p.low,
    p.high,
    p.risk,
    CASE WHEN s.marks IS NULL THEN if(broken.run_id IS NULL, p.route, 'review') END AS route,
    CASE
        WHEN s.marks IS NOT NULL THEN NULL
        WHEN p.route = 'release' AND broken.run_id IS NOT NULL THEN 'promise_broken'
        ELSE p.route_reason
    END AS route_reason,
    p.unscored_reason,
    s.levels AS settled_levels,
    s.note,
    s.history,
    s.marks
FROM predictions AS p
LEFT JOIN settled_scores AS s USING (run_id, response_id)
LEFT JOIN (
    SELECT DISTINCT run_id
    FROM verdicts
    WHERE gate = 'released_errors' AND slice = 'all' AND value_of = 'all' AND outcome = 'fail'
) AS broken USING (run_id)

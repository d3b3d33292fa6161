-- One row per response: the human scores, the judge's own score, the machine's (calibrated) with interval, risk and route, the final score, and where it came from.
SELECT
    r.run_id,
    r.response_id,
    r.item_id,
    r.author_id,
    r.split,
    p.rater_id,
    h.human_scores,
    h.human_mean,
    p.raw AS judge_score,
    p.latent,
    p.score AS machine_score,
    p.low,
    p.high,
    p.risk,
    f.route,
    f.route_reason,
    f.final_score,
    f.decided_by,
    p.score - h.human_mean AS error,
    p.clipped,
    p.unscored_reason,
    p.calibration_id,
    r.groups,
    r.text
FROM responses AS r
LEFT JOIN predictions AS p USING (run_id, response_id)
LEFT JOIN (
    SELECT
        run_id,
        response_id,
        map_from_entries(list((rater_id, score) ORDER BY rater_id)) AS human_scores,
        avg(score) FILTER (rater_kind = 'human') AS human_mean
    FROM gradings
    WHERE rater_kind IN ('human', 'adjudication') AND score IS NOT NULL
    GROUP BY run_id, response_id
) AS h USING (run_id, response_id)
LEFT JOIN final_scores AS f ON f.run_id = p.run_id AND f.response_id = p.response_id AND f.rater_id = p.rater_id

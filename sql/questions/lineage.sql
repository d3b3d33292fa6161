-- Every model call behind one released score, with the grading, bundle and calibration between them ($response_id).
SELECT
    p.response_id,
    p.score AS machine_score,
    p.route,
    p.raw AS judge_score,
    p.calibration_id[:12] AS calibration,
    c.method,
    c.n AS calibrated_on,
    g.rater_id,
    g.bundle_id[:12] AS bundle,
    a.part,
    a.attempt,
    a.role,
    a.model,
    a.request_digest[:12] AS request,
    a.violations,
    a.reply
FROM predictions AS p
LEFT JOIN calibrations AS c USING (calibration_id)
LEFT JOIN attempts AS a USING (response_id)
LEFT JOIN gradings AS g
    ON g.response_id = p.response_id AND g.rater_id = coalesce(a.rater_id, p.rater_id) AND g.sample = coalesce(a.sample, 0)
WHERE p.response_id = $response_id
ORDER BY g.rater_id, a.part, a.attempt

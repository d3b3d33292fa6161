-- What was said of an answer's score, in order, and the score that goes out ($response_id).
SELECT
    s.step,
    f.history[s.step].kind AS kind,
    f.history[s.step].who AS who,
    f.history[s.step].score AS said,
    f.history[s.step].at AS at,
    f.history[s.step].comment AS comment,
    f.final_score,
    f.decided_by,
    f.settled_by
FROM final_scores AS f
LEFT JOIN LATERAL unnest(range(1, len(f.history) + 1)) AS s (step) ON true
WHERE f.response_id = $response_id
ORDER BY s.step

-- What was said of each label of a response, in order, and what settled it ($response_id).
SELECT
    l.criterion_id,
    s.step,
    l.history[s.step].kind AS kind,
    l.history[s.step].who AS who,
    l.history[s.step].level AS said,
    l.history[s.step].at AS at,
    l.history[s.step].comment AS comment,
    l.level AS final,
    l.settled_by
FROM labels AS l
LEFT JOIN LATERAL unnest(range(1, len(l.history) + 1)) AS s (step) ON true
WHERE l.response_id = $response_id
ORDER BY l.criterion_id, s.step

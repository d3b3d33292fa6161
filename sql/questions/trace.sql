-- How one response came by its grade: each concept's reading, correction and contribution, and what it looked at ($response_id).
SELECT
    t.criterion_id,
    list_position(t.level_probabilities, list_max(t.level_probabilities)) - 1 AS level,
    list_max(t.level_probabilities) AS sure,
    t.expected,
    t.share,
    t.corrected,
    t.contribution,
    list_transform(t.attention[:3], lambda a: r.text[a.start + 1:a.end]) AS looks_at,
    t.score,
    t.probability,
    t.logit,
    t.runner_up,
    t.human
FROM traces AS t
LEFT JOIN responses AS r USING (response_id)
WHERE t.response_id = $response_id
ORDER BY t.criterion_id = 'bias', abs(t.contribution) DESC, t.criterion_id

-- The marked responses that a response's judge was shown (judge.examples), and what people gave them ($response_id).
WITH shown AS (
    SELECT DISTINCT rater_id, substr(source, length('example:') + 1) AS example
    FROM attempts, unnest(memory) AS u (source)
    WHERE response_id = $response_id AND starts_with(source, 'example:')
)
SELECT s.rater_id, s.example AS response_id, g.rater_id AS marked_by, g.score, r.text[:80] AS begins
FROM shown AS s
LEFT JOIN gradings AS g ON g.response_id = s.example AND g.rater_kind IN ('human', 'adjudication')
LEFT JOIN responses AS r ON r.response_id = s.example
ORDER BY s.rater_id, s.example, g.rater_id

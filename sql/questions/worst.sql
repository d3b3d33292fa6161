-- The held-out responses furthest from the human mean, with their text.
SELECT response_id, item_id, human_mean, judge_score, machine_score, low, high, error, text
FROM scores
WHERE split IN ('test', 'crossed') AND error IS NOT NULL
ORDER BY abs(error) DESC, response_id
LIMIT 20

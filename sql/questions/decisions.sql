-- Per criterion, how sure the judge was of its likeliest level and how often people gave it; the most overconfident first.
SELECT
    j.rater_id,
    r.item_id,
    j.criterion_id,
    count(*) AS decisions,
    avg(list_max(j.level_probabilities)) AS sure,
    avg((list_position(j.level_probabilities, list_max(j.level_probabilities)) - 1 = h.decision)::INT) AS right_share,
    sure - right_share AS overconfident,
    avg(1 - 2 * j.level_probabilities[h.decision + 1] + list_sum(list_transform(j.level_probabilities, lambda p: p * p)))
        AS brier
FROM judgments AS j
JOIN judgments AS h USING (response_id, criterion_id)
JOIN responses AS r USING (response_id)
WHERE j.level_probabilities IS NOT NULL AND h.rater_kind = 'human' AND h.decision IS NOT NULL
GROUP BY j.rater_id, r.item_id, j.criterion_id
ORDER BY overconfident DESC, j.rater_id, r.item_id, j.criterion_id

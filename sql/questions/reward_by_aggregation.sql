-- Rewards by aggregation and rater: of all responses, and of each group of them.
SELECT
    w.aggregation,
    w.rater_id,
    g.variable,
    g.value,
    count(*) AS responses,
    count(*) FILTER (w.reward IS NULL) AS unscored,
    avg(w.reward) AS mean,
    stddev_samp(w.reward) AS sd,
    min(w.reward) AS least,
    max(w.reward) AS most
FROM rewards AS w
LEFT JOIN responses AS r USING (response_id)
CROSS JOIN LATERAL (
    SELECT 'all' AS variable, 'all' AS value
    UNION ALL
    SELECT entry.key, entry.value FROM unnest(map_entries(r.groups)) AS u (entry)
) AS g
GROUP BY ALL
ORDER BY g.variable, g.value, w.rater_id, w.aggregation

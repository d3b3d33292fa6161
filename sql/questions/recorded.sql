-- Foreign replies: how often the score that we read equals the one that the other system recorded.
SELECT
    g.rater_id,
    g.item_id,
    count(*) FILTER (g.unscored_reason IS DISTINCT FROM 'no_reply') AS replies,
    count(g.score) AS read_by_us,
    count(g.signals['recorded']) AS recorded_by_them,
    count(g.score) / nullif(count(*) FILTER (g.unscored_reason IS DISTINCT FROM 'no_reply'), 0) AS parse_rate,
    avg((abs(g.score - g.signals['recorded']) < 1e-6)::INT) AS same,
    corr(g.score, g.signals['recorded']) AS pearson
FROM gradings AS g
WHERE g.rater_kind = 'replayed' AND g.bundle_id IS NOT NULL
GROUP BY g.rater_id, ROLLUP (g.item_id)
ORDER BY g.rater_id, g.item_id

-- Agreement of each study's judge with people, run by run: read with any client of DuckDB from warehouse.duckdb.
SELECT
    r.study,
    r.written,
    m.stage,
    m.slice,
    m.value_of,
    m.metric,
    m.value,
    m.low,
    m.high,
    m.n
FROM metrics AS m
JOIN runs AS r USING (run_id)
WHERE m.metric IN ('qwk', 'exact', 'mae', 'bias') AND m.slice = 'all' AND (m.rater_a = 'target' OR m.stage = 'human')
ORDER BY r.study, m.metric, m.stage, r.written

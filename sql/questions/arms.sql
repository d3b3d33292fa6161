-- Trained arms on the test split: mean over seeds of each figure and of its 95% interval's ends, and the seeds' standard deviation.
SELECT
    part,
    metric,
    arm,
    count(value) AS seeds,
    avg(value) AS mean,
    stddev_samp(value) AS sd,
    avg(low) AS low,
    avg(high) AS high,
    max(n) AS responses,
    string_agg(DISTINCT note, '; ') AS note
FROM arm_metrics
GROUP BY part, metric, arm
ORDER BY part, metric, if(metric IN ('mae', 'unmarked'), mean, -mean) NULLS LAST, arm

-- Learning curves: mean and standard deviation over seeds of what training logged, and of looks at the test split.
SELECT
    arm,
    part,
    metric,
    step,
    count(value) AS seeds,
    avg(value) AS mean,
    stddev_samp(value) AS sd
FROM learning
GROUP BY arm, part, metric, step
ORDER BY arm, part, metric, step

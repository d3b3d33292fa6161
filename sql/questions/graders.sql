-- Graders on the test split: mean and standard deviation over seeds of each figure, with the study's own settings.
SELECT
    metric,
    criterion_id,
    method,
    count(value) AS seeds,
    avg(value) AS mean,
    stddev_samp(value) AS sd,
    min(n) AS responses,
    string_agg(DISTINCT note, '; ') AS note
FROM trials
WHERE split = 'test' AND setting = ''
GROUP BY metric, criterion_id, method
ORDER BY metric, criterion_id NOT IN ('', 'all'), criterion_id, mean DESC NULLS LAST, method

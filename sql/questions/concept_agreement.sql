-- How far raters of concepts agree, before and after people were asked, with 95% intervals.
SELECT
    raters,
    metric,
    criterion_id,
    any_value(value) FILTER (phase = 'before') AS before,
    any_value([low, high]) FILTER (phase = 'before') AS before_95,
    any_value(n) FILTER (phase = 'before') AS before_n,
    any_value(value) FILTER (phase = 'after') AS after,
    any_value([low, high]) FILTER (phase = 'after') AS after_95,
    any_value(n) FILTER (phase = 'after') AS after_n,
    string_agg(note, '; ') AS note
FROM agreements
GROUP BY raters, metric, criterion_id
ORDER BY raters, metric, criterion_id <> 'all', criterion_id

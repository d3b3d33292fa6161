-- What calls were made for, field by field, by which model, and how often it held afterwards (first calls: everything).
SELECT
    rater_id,
    role,
    model,
    CASE WHEN len(mends) = 0 THEN 'everything' ELSE mended END AS mended,
    count(*) AS calls,
    count(DISTINCT response_id) AS responses,
    count(*) FILTER (
        CASE
            WHEN len(mends) = 0 THEN len(violations) = 0
            ELSE
                error IS NULL
                AND NOT list_contains(list_transform(violations, lambda v: split_part(v, ':', 2)), mended)
                AND len(list_filter(violations, lambda v: split_part(v, ':', 1) IN ('unreadable', 'ambiguous', 'quoted'))) = 0
        END
    ) AS held
FROM attempts, unnest(CASE WHEN len(mends) = 0 THEN [''] ELSE mends END) AS u (mended)
GROUP BY ALL
ORDER BY rater_id, role, model, mended

-- Labels on which raters' levels differ from each other or from the final one, furthest apart first.
SELECT
    l.response_id,
    l.criterion_id,
    list_transform(l.history, lambda s: s.who || ': ' || coalesce(s.level::TEXT, 'none')) AS said,
    l.level AS final,
    l.settled_by,
    list_max(u.levels) - list_min(u.levels) AS apart,
    list_filter(list_transform(l.history, lambda s: s.comment), lambda c: c IS NOT NULL) AS comments,
    r.text[:80] AS begins
FROM labels AS l
JOIN LATERAL (
    SELECT list_filter(list_append(list_transform(l.history, lambda s: s.level), l.level), lambda x: x IS NOT NULL) AS levels
) AS u ON true
LEFT JOIN responses AS r USING (response_id)
WHERE list_max(u.levels) > list_min(u.levels)
ORDER BY apart DESC, l.response_id, l.criterion_id

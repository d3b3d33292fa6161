-- The cases that wait for people, most pressing first: why, and how many persons have voted on each.
WITH voted AS (
    SELECT
        subject_kind,
        CASE WHEN subject_kind = 'label' THEN regexp_replace(subject, ':[^:]*$', '') ELSE subject END AS response_id,
        count(DISTINCT rater_id) AS people
    FROM votes
    GROUP BY ALL
)
SELECT
    q.rank,
    q.subject_kind,
    q.response_id,
    q.why,
    q.reasons,
    q.criteria,
    q.priority,
    coalesce(v.people, 0) AS voted,
    r.text[:80] AS begins
FROM queue AS q
LEFT JOIN responses AS r USING (response_id)
LEFT JOIN voted AS v USING (subject_kind, response_id)
ORDER BY q.subject_kind, q.rank

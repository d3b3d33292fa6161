-- What became of the quotes that raters offered, per criterion.
SELECT criterion_id, status, count(*) AS quotes, count(DISTINCT response_id) AS responses
FROM evidence
GROUP BY ALL
ORDER BY criterion_id, quotes DESC

-- Of every step of a cascade: answers that came, stopped and went on, limit, cost, and errors among the marked answers that stop there.
WITH moved AS (
    SELECT l.scope, l.step,
        count(*) FILTER (list_contains(e.asked, l.step) AND e.step >= l.step) AS came,
        count(*) FILTER (e.stopped AND e.step = l.step) AS stopped
    FROM cascade_limits AS l
    JOIN escalations AS e
        ON l.scope = e.item_id OR (l.scope = 'all' AND e.item_id NOT IN (SELECT scope FROM cascade_limits))
    GROUP BY ALL
)
SELECT l.scope, l.step, l.rater_id, m.came, m.stopped, m.came - m.stopped AS went_on, l.most_risk, l.cost, l.unit,
    l.n AS marked, l.stopped AS marked_stopped, l.wrong AS marked_wrong, l.alone AS wrong_if_alone, l.note
FROM cascade_limits AS l
LEFT JOIN moved AS m USING (scope, step)
ORDER BY l.scope, l.step

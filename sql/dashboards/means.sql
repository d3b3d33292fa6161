-- Corrected means and differences with their intervals, next to what labels and judge alone say; the latest first.
SELECT
    r.written,
    m.arm,
    m.less,
    m.slice,
    m.value_of,
    m.value,
    m.low,
    m.high,
    m.by_labels,
    m.labels_low,
    m.labels_high,
    m.by_judge,
    m.labels,
    m.answers,
    m.to_halve
FROM means AS m
JOIN runs AS r USING (run_id)
ORDER BY r.written DESC, m.slice <> 'all', m.slice, m.value_of, m.less, m.arm

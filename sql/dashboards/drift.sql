-- What every watch has seen, look by look: evidence as a part of what is needed, and how far each figure moved.
SELECT
    r.study AS watch,
    d.log,
    d.look,
    d.channel,
    d.slice,
    d.value_of,
    d.moved,
    d.evidence / d.bar AS part_of_bar,
    d.old,
    d.new,
    d.difference,
    d.low,
    d.high,
    d.n_old,
    d.n_new,
    d.since
FROM drifts AS d
JOIN runs AS r USING (run_id)
ORDER BY watch, d.look, NOT d.moved, part_of_bar DESC

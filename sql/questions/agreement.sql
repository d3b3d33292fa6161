-- Agreement per item on held-out responses: before and after calibration, next to two people.
PIVOT (
    SELECT slice, value_of, metric, stage, avg(value) AS value
    FROM metrics
    WHERE metric IN ('qwk', 'icc', 'mae', 'within_1') AND slice IN ('all', 'item') AND (rater_a = 'target' OR stage = 'human')
    GROUP BY ALL
) ON stage USING first(value)
ORDER BY metric, slice, value_of

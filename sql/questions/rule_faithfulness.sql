-- How far each grader follows each edit of the mark scheme: floor rate and rule-sensitivity ratio, 1 is faithful.
SELECT
    totals,
    rater_id,
    edit,
    n,
    unscored,
    gold_change,
    floor_rate,
    rsr,
    in_rubric_n,
    in_rubric,
    in_rubric_low,
    in_rubric_high,
    in_rubric_note
FROM rule_faithfulness
ORDER BY totals, family, edit, rater_id

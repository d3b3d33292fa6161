-- People who need retraining first, then the strictest: severity, fit, discrimination and halo of each, by trait.
SELECT
    rater_id,
    trait,
    array_to_string(flags, ', ') AS flags,
    leniency,
    low,
    high,
    severity,
    severity_se,
    infit,
    outfit,
    discrimination,
    halo,
    ratings,
    shared,
    note
FROM rater_effects
WHERE slice = 'all'
ORDER BY len(flags) = 0, trait, leniency NULLS LAST, rater_id

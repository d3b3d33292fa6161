-- One row per quote that a rater offered: the decision it supports and what the verifier found.
SELECT
    j.run_id,
    j.response_id,
    j.rater_id,
    j.criterion_id,
    j.stated,
    j.decision,
    j.action,
    e.unit_id,
    e.quote,
    e.status,
    e.start,
    e."end"
FROM judgments AS j, unnest(j.evidence) AS u(e)

-- Steps that were put in question: what each said, what it did to the belief and rested on, what replaced it and what came of that.
SELECT
    v.arm,
    v.seed,
    v.response_id,
    v.sample,
    v.rank,
    v.step,
    v.steps,
    substring(r.text, s.start + 1, s."end" - s.start) AS says,
    s.change,
    s.grounding_scheme,
    s.grounding_answer,
    s.prefix_residual,
    s.fate,
    v.sub_steps,
    v.refused,
    v.reply,
    v.marks,
    r.mark,
    r.gold,
    v.kept
FROM revisions AS v
LEFT JOIN rollouts AS r
    ON r.arm = 'base' AND r.part = 'train' AND r.seed = v.seed AND r.response_id = v.response_id AND r.sample = v.sample
LEFT JOIN steps AS s
    ON s.arm = 'base' AND s.seed = v.seed AND s.response_id = v.response_id AND s.sample = v.sample AND s.step = v.step
ORDER BY v.arm, v.kept DESC, s.change NULLS LAST, v.seed, v.response_id, v.sample, v.rank

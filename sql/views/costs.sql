-- One row per model call: what its reply cost in US dollars, null where its price or its tokens are not known. A reply that several calls share costs once.
SELECT
    a.run_id,
    a.response_id,
    a.rater_id,
    a.sample,
    a.part,
    a.attempt,
    a.role,
    a.model,
    a.provider,
    a.stored,
    a.prompt_tokens,
    a.cached_tokens,
    a.written_tokens,
    a.completion_tokens,
    CASE
        WHEN a.place > 1 OR regexp_matches(a.error, '^(too_long|refused|busy|unreachable|starting|not_recorded)') THEN 0
        ELSE (
            greatest(a.prompt_tokens - coalesce(a.cached_tokens, 0) - coalesce(a.written_tokens, 0), 0) * p.input
            + coalesce(a.cached_tokens, 0) * p.cached
            + coalesce(a.written_tokens, 0) * p.cache_write
            + a.completion_tokens * p.output
        ) / 1e6
    END AS usd
FROM (
    SELECT
        *,
        row_number() OVER (
            PARTITION BY run_id, request_digest ORDER BY stored, response_id, rater_id, sample, part, attempt
        ) AS place
    FROM attempts
) AS a
LEFT JOIN prices AS p
    ON p.run_id = a.run_id
    AND p.model = a.model
    AND p.in_batch = (a.provider IS NOT NULL)
    AND a.provider IS DISTINCT FROM 'plain'
    AND greatest(a.prompt_tokens, 1) > p.above
    AND (p.up_to IS NULL OR a.prompt_tokens <= p.up_to)

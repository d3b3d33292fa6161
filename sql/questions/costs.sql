-- What models cost, by rater, model and what was asked for: calls, tokens, US dollars, and calls of unknown cost.
SELECT
    rater_id,
    model,
    role,
    count(*) AS calls,
    sum(prompt_tokens) AS prompt_tokens,
    sum(cached_tokens) AS cached_tokens,
    sum(completion_tokens) AS completion_tokens,
    sum(usd) AS usd,
    count(*) FILTER (usd IS NULL) AS of_unknown_cost
FROM costs
GROUP BY ALL
ORDER BY usd DESC NULLS LAST, rater_id, model, role

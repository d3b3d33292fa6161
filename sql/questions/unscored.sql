-- Every response without a released score, and why.
SELECT p.response_id, p.item_id, p.unscored_reason, a.error, a.violations, a.reply
FROM predictions AS p
LEFT JOIN attempts AS a USING (response_id, rater_id)
WHERE p.score IS NULL
ORDER BY p.response_id

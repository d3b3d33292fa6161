-- How far the judge goes with people, per item or criterion of a log: credit from the middle of the scale on, and what may be relied on.
WITH middles AS (
    SELECT rubric_id, ((content->>'$.scale.min')::DOUBLE + (content->>'$.scale.max')::DOUBLE) / 2 AS middle FROM bundles
),
credited AS (
    SELECT s.item_id, s.route, s.human_mean >= m.middle AS by_people, s.judge_score >= m.middle AS by_judge
    FROM scores AS s
    JOIN items AS i USING (item_id)
    JOIN middles AS m USING (rubric_id)
)
SELECT
    item_id,
    count(*) AS answers,
    count(by_people) AS labelled,
    avg(by_judge::INT) FILTER (by_people) AS hit_rate,
    avg(by_judge::INT) FILTER (NOT by_people) AS false_credit,
    avg((route = 'release')::INT) AS relied_on
FROM credited
GROUP BY item_id
ORDER BY item_id

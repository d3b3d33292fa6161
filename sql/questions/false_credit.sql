-- Where credit or a penalty is counted without the criterion that licenses it, the most under flat aggregation first.
SELECT
    e.rubric_id,
    e.parent,
    e.child,
    e.relation,
    count(*) FILTER (e.aggregation = 'flat') AS cases,
    sum(e.leaked) FILTER (e.aggregation = 'flat') AS flat,
    sum(e.leaked) FILTER (e.aggregation = 'hard_verdict') AS hard_verdict,
    sum(e.leaked) FILTER (e.aggregation = 'hard_local') AS hard_local,
    sum(e.leaked) FILTER (e.aggregation = 'hard_propagated') AS hard_propagated,
    sum(e.leaked) FILTER (e.aggregation = 'gear') AS gear,
    p.text AS parent_text,
    c.text AS child_text
FROM edge_cases AS e
JOIN graph_nodes AS p ON p.rubric_id = e.rubric_id AND p.criterion_id = e.parent
JOIN graph_nodes AS c ON c.rubric_id = e.rubric_id AND c.criterion_id = e.child
WHERE e.state = 'violated'
GROUP BY ALL
ORDER BY flat DESC NULLS LAST, e.rubric_id, e.parent, e.child

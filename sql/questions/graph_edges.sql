-- Which dependencies each rubric's graph holds, and which were proposed and dropped, and why.
SELECT
    e.rubric_id,
    e.parent,
    e.child,
    e.relation,
    e.confidence,
    e.source,
    e.kept,
    e.dropped,
    e.detail,
    p.text AS parent_text,
    c.text AS child_text
FROM graph_edges AS e
LEFT JOIN graph_nodes AS p ON p.rubric_id = e.rubric_id AND p.criterion_id = e.parent
LEFT JOIN graph_nodes AS c ON c.rubric_id = e.rubric_id AND c.criterion_id = e.child
ORDER BY e.rubric_id, e.kept DESC, e.proposal

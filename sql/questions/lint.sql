-- What the rubric linter has to say.
SELECT rubric_id, unnest(lint) AS warning FROM rubrics ORDER BY ALL

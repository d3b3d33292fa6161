"""The nouns of the pipeline, as frozen models that the rest is written in. Imports nothing else of the project.

`schema` (what a table's model is: Arrow types, rules, documentation), `tables/` (one model a table; `catalogue` lists
them), `settings/` (what a study or an experiment file may say; `written` reads YAML and locates what is wrong),
`bundle` (a locked rubric with its protocol), `protocols`, `composite` (criteria made of sub-points, and such as cannot
hold together), `graph` (which criterion licenses which), `backends` (who can answer, what each needs, optional extras,
trained graders), `errors` (what a user can mend), `scoped` (a value that holds within a block).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Record = dict[str, Any]
"""Values by name, to be made, such as a row of a table; `core/llm/schema` names an object of JSON so."""
Fields = Mapping[str, Any]
"""The same, to be read."""
Meanings = Mapping[str, str]
"""What a field may hold → what that means, in words."""
ScaleBounds = tuple[float, float, float]
"""(lowest, highest, step) of a score scale."""

"""Graph: a query's rubric in, the dependencies of its criteria out."""

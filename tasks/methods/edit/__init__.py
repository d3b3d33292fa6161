"""Edit: an LLM grader trained where its reasoning leaves the rubric."""

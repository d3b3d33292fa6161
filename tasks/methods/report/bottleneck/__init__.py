"""What trained graders look like: the report that compares them, and pictures of how they came by a grade."""

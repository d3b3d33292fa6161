"""Methods for research: Edit, concept bottlenecks, comparisons of protocols, and their reports."""

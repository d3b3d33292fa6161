"""From judgments to rewards: graphs of prerequisites, aggregation, the server for trainers, and their reports."""

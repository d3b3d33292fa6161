"""People: the queue, votes, adjudication, the page."""

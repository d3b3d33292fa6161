"""From a table of responses to scores that may be released: ingest, lock, judge, calibrate, evaluate, report,
gradebook."""

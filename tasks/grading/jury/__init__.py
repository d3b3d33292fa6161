"""The jury: what several judges say of the same responses, made into one more rater's decisions and scores.

In: bundles, people's scores, and every juror's judgments and gradings. Out: tables `judgments` and `gradings` of the
jury, and `jury_rules`. In reading order:

task     the entry point: a rule for all items together, then shard by shard
choose   which rule, by labels of the calibration split
combine  jurors' scores, decisions and signals under a rule
"""

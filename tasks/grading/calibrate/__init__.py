"""Calibration: mappings of a judge's scores to the human scale, fitted per item or pooled, and what may be released.

In: gradings of one machine rater, human scores, bundles and texts. Out: tables `calibrations`, `candidates`,
`release_rules` and `predictions`. In reading order:

task         the entry point: fit, then predict pack by pack, here or by workers
rows         one grading per response with its label; the labelled rows of one mapping
features     gradings as a matrix of the signals that the bundle names; what the text itself tells
fit          a mapping for every item, and what cross-fitted scores of the labels are worth
choose       which method, by figures inside folds
methods      the methods behind one interface, in folds and over them
alignment    Rulers' phase III and curves of the raw score
stack        features, text and item under one ridge
spread       how far human scores may lie, and the risk of each score
release      the promise: levels, threshold and route
calibration  a mapping as it is stored
predictions  a mapping applied to gradings, and the run's table of them, pack by pack
next_labels  which responses people should score next
"""

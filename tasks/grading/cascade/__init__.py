"""Cascades: a cheap judge for all answers, a dear one for those that the cheap one is unsure of, people for the rest.

In: what judge and calibrate wrote of every step. Out: limits, the answers that go on to a step, and in the end one
rater's judgments, gradings and predictions, as of a judge alone. In reading order:

task     the entry points: labelled answers, limits, who goes on, and the one rater
limits   which limits keep the promise of release at the least cost
scopes   the labelled answers of an item, or of all, as the choice of limits takes them, and the rows that say what came
"""

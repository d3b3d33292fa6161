"""Statistics as formulas over arrays, held against libraries in the tests; no input or output of files.

In: scores of people and machines as arrays. Out: a figure with a note where it says little, intervals, verdicts. In
reading order:

arrays            types of arrays, and ratios
agreement         QWK, accuracy, correlation, alpha and the like
bootstrap         their intervals: sums over pairs, clusters redrawn
metrics, verdict  the catalogue of metrics; what an interval says of a gate
scores            human scores by response; the target
true_score        accuracy against the true score, by repeated ratings; groups of students
probability       how good probabilities of levels are; intervals of scores
preferences       strengths of answers by comparisons, and margins against people's preferences
drift             whether values that keep coming are as before, looked at every day
promise           the risk that a study promises, and the labels it takes
raters, facets, facet_likelihood  rater effects and the many-facet model
reward_hacking    scores of a training run
"""

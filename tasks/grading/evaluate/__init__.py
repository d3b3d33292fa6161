"""How good the scores are: people's and the machine's scores in, metrics, verdicts and rater effects out.

task        the stage: reads the tables, writes the rows; the judge's probabilities of single decisions
figures     every figure in order, and the gates that it is held against
slices      the parts of the held-out set, a figure as a row; what goes out, and whether intervals and risks hold
agree       agreement of every pair of raters, whole, by item, type and group; two runs on the same responses
people      reliability, true score, what the machine loses against a second person; levels awarded, validity,
            fairness to groups
baselines   all raters by one measure: people, the text, length, other runs
raters      strict, erratic, drifting raters by the many-facet model
experiment  the tables of published experiments over several runs
"""

"""What another tool's judge says over time and by model: true means of its scores, and whether it moved.

In: the verdicts of logs as tables (`logs.record.VERDICTS`) and people's labels. Out: rows of `means` and `drifts`.
In reading order:

moved  what is watched of a log, answer by answer, and what moved between logs
"""

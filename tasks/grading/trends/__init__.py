"""What another tool's judge says over time and by model: true means of its scores, and whether it moved.

In: the verdicts of logs as tables (`logs.record.VERDICTS`) and people's labels. Out: rows of `means` and `drifts`.
In reading order:

means  arms of cases, and their corrected means and differences by slice
moved  what is watched of a log, answer by answer, and what moved between logs
task   the entry point: keeps what was found, so that a scheduled look adds a log and loses none
"""

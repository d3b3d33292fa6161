"""The report of a graded run: one HTML page, the lines that the command prints, and artifacts in Prefect's UI.

In: all tables of a finished run. Out: `report.html` in its folder.

task            the stage: reads the tables, writes the page, prints the end
view            tables in, a page of sections out: the order of everything on it; the end in a few sentences
figures         the run's metrics by name, with the reason where one is missing; counts over all responses, in SQL
gates           can I use it: the promise about released scores, gates, what to look at first
answers         the table of all answers, and those shown whole
agreement       the machine next to people and baselines, and to preferences; raters who are severe or need retraining
evidence        what quotes are worth, the judge's probabilities; which scores are taken for which; fairness to groups
made            what was read, calibration, cost, checks
charts          tables with a plot on one axis

The verdict itself, and what quotes are worth, stand in `core/display`: the gradebook says the same.
"""

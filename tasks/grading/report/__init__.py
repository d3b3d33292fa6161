"""The report of a graded run: one HTML page, the lines that the command prints, and artifacts in Prefect's UI.

In: all tables of a finished run. Out: `report.html` in its folder.

task            the stage: reads the tables, writes the page, prints the end
view            tables in, a page of sections out: the order of everything on it
counts          counts over all responses, in SQL
figures         the run's metrics by name, with the reason where one is missing
verdict         headline, key figures, gates, what to look at first
release         the promise about released scores, and what goes to people
answers         the table of all answers, and those shown whole
agreement       people with people, the machine with people, the true score
raters          raters by agreement with the human score, severity, who needs retraining
distribution    which marks are awarded, where they differ, what calibration changed
groups, evidence, provenance    fairness; quotes and decisions; what was read, what it took, how it was made
charts          forest plots, bars, curves
summary         the end in three sentences, and all figures as rows
"""

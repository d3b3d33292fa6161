"""The report of trained arms: Edit's tables come in, one HTML page and a summary go out.

- figures: arms over seeds, which differences are more than chance, and whether marks follow edited schemes
- cases: wrong rollouts step by step, and what became of them
- view: the page's sections and learning curves
- task: the stage entry point
"""

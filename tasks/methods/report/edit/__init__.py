"""The report of trained arms: Edit's tables come in, one HTML page and a summary go out.

- figures: arms over seeds, and which differences are more than chance
- cases: wrong rollouts step by step, and what became of them
- charts: beliefs, phases and learning curves as SVG
- view: the page's sections, rule faithfulness at the end
- task: the stage entry point
"""

"""What graphs and rewards look like: their tables come in; pictures of rubric graphs and the reward report go out.

- figures: the diagnostics, and single responses that were paid most for unlicensed criteria
- graphs: what the graphs are like, and how rewards are distributed
- picture: a rubric's graph as HTML
- view: the page's sections
- task: the stage entry point
"""

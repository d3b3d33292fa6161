"""What graphs and rewards look like: their tables come in; pictures of rubric graphs and the reward report go out.

- view: the page's sections, and the table of all aggregations that the terminal shows, too
- picture: a rubric's graph as HTML
- task: the stage entry point
"""

"""What graphs, rewards and a training look like: their tables come in, pages and pictures go out.

- rewards: the sections of the reward report, and the table of all aggregations that the terminal shows, too
- picture: a rubric's graph as HTML
- training: what a trainer's rewards were recorded as, section by section
- task: the stage entry points
"""

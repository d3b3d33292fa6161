"""The graders' report: tables of a run that trained graders in; a page, its traces and a summary out.

- figures: graders side by side over seeds, by concept and by setting; interventions; how concepts hang together
- traces: how single responses came by their grade, as HTML
- view: the sections of the page
- task: the stage entry point
"""

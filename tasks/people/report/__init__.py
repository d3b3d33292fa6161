"""The annotation report: tables of an annotated run in; a page and a summary out.

- view: agreement as people read it, and the sections of the page
- people: the queue, what settled the labels, and each person's votes, as tables and a chart
- task: the stage entry point
"""

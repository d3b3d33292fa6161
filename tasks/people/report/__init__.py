"""The annotation report: tables of an annotated run in; a page and a summary out.

- view: the page: agreement, what settled the labels, the queue, and each person's votes
- task: the stage entry point
"""

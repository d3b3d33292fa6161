"""Grades and feedback for people: one final score an answer, as sheets, platforms' import files and pages."""

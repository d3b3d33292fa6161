"""The gradebook: a graded run's tables in, sheets, files for learning platforms and pages of feedback out.

book        questions, students, answers with one final score; what counted in an answer
tables      a run's tables as a gradebook
sheets      a row an answer or a student, as CSV or Excel, and the forms of Moodle and Canvas
folder      a page for every student, and the teacher's list
"""

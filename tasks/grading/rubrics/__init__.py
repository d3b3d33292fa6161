"""What is the matter with a rubric: seen from its text, by people's marks, and by a judge; and a better one proposed.

Reading order: `findings` (rules that need no model, by what `wording` tells); `item_analysis` (each
criterion of a graded run against people's scores); `revision` (mends by code, changes in words, a study file
of the proposal); `asked` (what a judge is asked: its critique, a revision); `page`.
"""

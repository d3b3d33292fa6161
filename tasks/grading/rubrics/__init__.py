"""What is the matter with a rubric: seen from its text, by people's marks, and by a judge; and a better one proposed.

Reading order: `findings` (rules that need no model); `task` (reads a graded run) and `item_analysis` (each criterion
against people's scores); `asked` (a judge's critique and revision); `revision` (mends by code, changes in words);
`page`.
"""

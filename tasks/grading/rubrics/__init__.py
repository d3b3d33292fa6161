"""What is the matter with a rubric: seen from its text, by people's marks, and by a judge; and a better one proposed.

Reading order: `findings` (rules that need no model), `page` (all of it on a page).
"""

"""Text without models: strings go in, units, spans and folded forms come out. All pure, used by many rooms.

Modules in reading order: `tokens` (words, numbers and their edges), `languages` (negations and dictionaries), `fold`
(texts that read alike, and the way back), `quotes` (a quote in a text), `units` (sentences and paragraphs), `highlight`
(a text in pieces), `traces` (turns and steps of conversations), `markup` (HTML as text), `patterns` (a study's regular
expressions), `formulas` (cells that no spreadsheet runs), `templates` (prompts in files), `digest` (of a text).
"""

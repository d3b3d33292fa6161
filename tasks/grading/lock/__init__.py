"""Locking: items and the study's rubrics in; linted rubrics and bundles, locked by their hash, out.

Reading order: `task` (the stage's entry points); `rubric` (authored or derived rubrics, and what makes one unusable);
`bundles` (a rubric as a protocol judges it, and what its prompts lack); `induce` (criteria and paraphrases by a model),
`offline` (the same by rules of thumb); `lint` (warnings, score bands); `people` (human scores held against rubrics).
"""

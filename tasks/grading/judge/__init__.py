"""Judging: responses under locked bundles in; judgments, gradings and attempts out.

Reading order: `task` (the stage's entry point), `shard_judge` and `second_look` (what is done with a shard); `grade`
(a batch: ask, verify, score); `protocol` (what a protocol does) and `protocols`; `rows` (cases, raters and their
tables); `prompt` and `schema` (what a model reads and may answer), `teaching` and `memory` (what is shown with a
response); `itemised` and `mend` (checks and repairs); `verify`, `evidence` and `doubted_quotes` (whether quotes prove a
level); `score` (levels to scores); `keep` (decisions of an earlier run); `rater` (opens the study's rater), `embedded`
and `simulated` (raters without a model); `prove` and `costs` (what is known of a study before anything is asked).
"""

"""From the files of a study to the canonical tables.

In: a study's sources (tables, folders of essays, public data sets). Out: items, responses, units, gradings, judgments
and notes of people, input warnings, each response in its split.

task       the stage: survey all rows, draw splits, write a shard for each chunk; scores of an average rater
sources    which files there are, a shipped layout's (`layouts`) among them, read a chunk at a time
columns    a chunk's columns and cells: texts, numbers, lists
canonical  a chunk as rows of the canonical tables
survey     what is wrong with all rows together; splits, shards, and what a table of recorded replies can grade
prepared   columns of public data sets that need a few lines before they map
oddities   what is odd about the responses
draft      a first study and rubric, drafted from what a data file shows
"""

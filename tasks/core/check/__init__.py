"""Checkpoints: what a stage wrote is held against its contracts before the next stage reads it.

In: references to the tables just written. Out: the same references, findings in `checks`, refused rows in `quarantine`,
or an error that stops the run. In reading order:

task        the entry points `checked` and `data_docs`
checkpoint  a table's findings, stored and found again; types by Arrow; keys and references by DuckDB; the rows refused
suite       rules that one row can show, by Great Expectations; what one rule found, in words
docs        validation results kept as JSON, and Data Docs of them
pages       the frame of their pages
"""

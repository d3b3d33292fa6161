"""Where tables are kept, and how foreign files become frames.

In: rows of the contracts' tables, and people's files. Out: Parquet files with done-marks, read back only if whole.

files      files written whole, put aside, handed out; digests
objects    a warehouse's place: a folder, or a bucket with its mirror
part       one Parquet file and its done-mark; the done-marks of a run
warehouse  runs: commit shards, read tables
catalogue  a run's own records, and SQL over a run or a warehouse; ordered: tables larger than memory
manifest   writing a run's manifest; a whole run looked at again
sqlite_file           a file that many processes write
cells, delimited, sheets, documents, document_reader, pdf, essays  foreign files as cells and texts
reshape, source  chunks of a source in the form in which its columns map, and its errors gathered
"""

"""The only table I/O: Parquet tables and their references, the run manifest, the DuckDB catalogue."""

"""The HTML report of a run: tables in, a view of exactly what is shown, one static page out."""

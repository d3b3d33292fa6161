"""Reports: what people look at, a folder each; made from the tables of a run."""

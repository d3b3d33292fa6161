"""When, and what with what: one flow per file, named like its stage, and the command line."""

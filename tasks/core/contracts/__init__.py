"""The nouns: one frozen model per table, the bundle, and the study file. Imports nothing else of the project."""

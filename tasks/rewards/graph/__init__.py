"""Graphs of rubrics: roles of criteria, and which criterion depends on which (GEAR).

In: items with their questions, bundles with their criteria, graphs and votes that people wrote. Out: tables
`rubric_graphs`, `graph_nodes`, `graph_edges` and `votes`. In reading order:

task          the entry point, here or shared out to workers in packs of rubrics
build         subjects, roles, pairs and votes become graphs and rows
subject       what a graph is made of: the rubric; graphs that a person wrote
annotator     who annotates and how it is asked; the roles of criteria
dependencies  which pairs of criteria are dependencies
heuristic     rules of thumb in place of a model
project       votes counted, and proposals projected onto a valid graph
"""

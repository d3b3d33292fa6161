"""Graphs of rubrics: roles of criteria, and which criterion depends on which (GEAR).

In: items with their questions, bundles with their criteria, graphs and votes that people wrote. Out: tables
`rubric_graphs`, `graph_nodes`, `graph_edges` and `votes`. In reading order:

task          the entry point, here or shared out to workers in packs of rubrics
build         subjects, roles, dependencies and votes become graphs and rows
subject       what a graph is made of: the rubric; graphs that a person wrote
annotator     the language model that is asked, and how its prompts are written
dependencies  a rubric asked about whole, in several orders, and what all replies agree on; what criteria state
project       votes counted, and proposals projected onto a valid graph
"""

"""Public data sets: a mapping each (`<name>.yaml`), and a function of the same name in `scored` (essays, short answers
and generated texts that people scored) or `rubrics` (rubrics and their criteria) where its columns need a few lines
before they map."""

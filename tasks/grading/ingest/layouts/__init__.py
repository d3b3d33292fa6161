"""Public data sets: a mapping each (`<name>.yaml`), and in `prepared` a function of that name where its columns need a
few lines before they map."""

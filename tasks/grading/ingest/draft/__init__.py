"""A first study and rubric, drafted from what a data file shows.

`roles`: column names, `guess`: their cells, `drafted`: the source and its questions, `asking`: what a person confirms,
`study_text`: the files.
"""

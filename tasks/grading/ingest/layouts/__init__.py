"""One public data set each: a mapping, and at most a few lines that its columns need before they map."""

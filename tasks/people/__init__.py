"""Where people decide: the review of scores, and the annotation of concepts with its report."""

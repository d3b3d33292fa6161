"""Grade open-ended text with locked rubrics, verified evidence and scores calibrated to human raters."""

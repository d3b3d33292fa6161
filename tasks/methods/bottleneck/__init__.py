"""Bottleneck graders: the model, its training, baselines, interventions and traces."""

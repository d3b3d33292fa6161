"""Bottleneck: responses and concept labels in; trained graders, what they are worth and the first as a file out.

- data: labels and estimates as arrays; class_set: a run's tables as such, and rows that follow
- backbone, states: texts to tokens, and tokens to states
- model, loop: the parts of a grader, its losses and the training loop
- fit, baselines, text_bottlenecks, prompted: the methods
- rater_noise: labels that weigh raters by their own noise
- measures, intervene: what a grader is worth, and what becomes of grades when people set concepts
- arm: one method with one seed, trained and measured
- grader, card: the exported file and its model card
- task: the stage entry point
"""

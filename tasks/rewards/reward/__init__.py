"""Reward: judgments and rubric graphs come in; rewards, dependency cases and their figures go out (GEAR).

- compiled: a rubric and its graph as arrays, and a batch of responses over many of them
- local: judgments as local scores, before any dependency
- aggregate: rewards from local scores, and which criteria are worth another reply
- exact: exact marginals and the variance of a reward
- leakage: whether credit gets past a dependency that does not hold
- figures: numbers about rewards with intervals
- learn, factors: retention factors of single edges from human scores, or from a table
- recipes: steps of three published ways to train with rubrics
- rows, task: the tables of a run; aggregations, ablations and other raters side by side
"""

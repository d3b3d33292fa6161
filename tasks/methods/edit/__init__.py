"""Edit: a grader learns to mend its own reasoning. Responses with target scores come in; trained arms, their gradings
and what they are worth go out.

- rollout: samples, the printed mark scheme, steps of a rollout and the mark it states
- policy, tree: the language model, its prompts, and many continuations in one pass
- belief: what the policy's probabilities say of each step: its belief in marks, and what it leans on
- locality, revise: what a revision may hold, and how a wrong rollout is mended
- phases: values in and rows out: rollouts, signals, revisions, pools
- tuning, rl: adapters, supervised and by reinforcement
- rule_edits, measures: whether marks follow an edited scheme, and how well arms mark
- workspace, task: the course of a run
- world, decoder: the laboratory: questions with exact gold marks, and a small policy for them
"""

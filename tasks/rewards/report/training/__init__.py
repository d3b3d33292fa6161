"""What a training looks like from its rewards: what a trainer's rewards were recorded as comes in, a page goes out.

- curves: figures of each step, each criterion, and how far the judge can be trusted
- view: the page's sections
- task: the entry point
"""

"""What a training looks like from its rewards: what a trainer's rewards were recorded as comes in, a page goes out.

- view: the page's sections, and the figures in them
- task: the entry point
"""

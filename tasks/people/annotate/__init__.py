"""Annotate: annotators' judgments and final labels in; agreement and construction checks out.

- agreement: how far raters of concepts agree; table `agreements`
- inventory: whether an inventory keeps what it is constructed by, table `constructions`; a model proposes a first one
- task: the stage entry points
"""

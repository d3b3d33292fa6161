"""Annotate: annotators' judgments and final labels in; agreement and construction checks out.

- propose: a model proposes an inventory of concepts, which educators then edit
- agreement: how far raters of concepts agree; table `agreements`
- inventory: whether an inventory keeps what it is constructed by; table `constructions`
- task: the stage entry points
"""

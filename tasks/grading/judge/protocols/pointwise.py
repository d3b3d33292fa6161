"""Pointwise: a call per criterion, so that a changed criterion costs one criterion, or per few criteria, so that the
response is read fewer times. All else is as in rulers."""

from rubricflow.tasks.grading.judge.protocols.rulers import RulersProtocol

PROTOCOL = RulersProtocol()

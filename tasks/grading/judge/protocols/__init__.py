"""One module per protocol, named as the bundle names it; see `tasks.grading.judge.protocol.JudgingProtocol`."""

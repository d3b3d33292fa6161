"""What a monitor reads: counts, times and the figures of the rewards, in Prometheus' text form."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from tasks.serve.answered import Summary

_SECONDS = (0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 900)


class Meters:
    """The meters of one server."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        named = {"namespace": "rubricflow", "registry": self.registry}
        self.requests = Counter("requests", "Requests for rewards, by status of the answer", ["status"], **named)
        self.seconds = Histogram("request_seconds", "Seconds to the answer", buckets=_SECONDS, **named)
        self.open = Gauge("open_rollouts", "Rollouts that wait or are being judged", **named)
        self.judging = Gauge("joint_batches", "Joint batches that are being judged", **named)
        self.rollouts = Counter("rollouts", "Rollouts answered", **named)
        self.unscored = Counter("unscored_rollouts", "Rollouts without a reward, by reason", ["reason"], **named)
        self.calls = Counter("judge_calls", "Calls to the judge; replies from the store are none", **named)
        self.tokens = Counter("judge_tokens", "Tokens of these calls", ["kind"], **named)
        self.figures = Gauge("last_mean", "Mean of the last answered request", ["figure"], **named)

    def note(self, summary: Summary) -> None:
        """Takes the figures of an answered request."""
        self.rollouts.inc(summary["rollouts"])
        for reason, count in summary["reasons"].items():
            self.unscored.labels(reason).inc(count)
        self.calls.inc(summary["calls"])
        self.tokens.labels("prompt").inc(summary["prompt_tokens"])
        self.tokens.labels("completion").inc(summary["completion_tokens"])
        figures = {name: summary[name] for name in ("reward", "flat", "gear", "false_credit", "suppressed")}
        for name, value in figures.items():
            if isinstance(value, float):
                self.figures.labels(name).set(value)

    def page(self) -> bytes:
        """The page that Prometheus reads."""
        return generate_latest(self.registry)

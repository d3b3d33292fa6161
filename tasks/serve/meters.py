"""What a monitor reads: counts, times and the figures of the rewards, in Prometheus' text form."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from tasks.serve.answered import Summary

_SECONDS = (0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 900)


class Meters:
    """The meters of one server."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        names, own = "rubricflow", self.registry
        self.requests = Counter(
            "requests", "Requests for rewards, by status of the answer", ["status"], names, registry=own
        )
        self.seconds = Histogram("request_seconds", "Seconds to the answer", (), names, registry=own, buckets=_SECONDS)
        self.open = Gauge("open_rollouts", "Rollouts that wait or are being judged", (), names, registry=own)
        self.judging = Gauge("joint_batches", "Joint batches that are being judged", (), names, registry=own)
        self.rollouts = Counter("rollouts", "Rollouts answered", (), names, registry=own)
        self.unscored = Counter(
            "unscored_rollouts", "Rollouts without a reward, by reason", ["reason"], names, registry=own
        )
        self.calls = Counter("judge_calls", "Calls to the judge, without stored replies", (), names, registry=own)
        self.tokens = Counter("judge_tokens", "Tokens of these calls", ["kind"], names, registry=own)
        self.figures = Gauge("last_mean", "Mean of the last answered request", ["figure"], names, registry=own)

    def note(self, summary: Summary) -> None:
        """Takes the figures of an answered request."""
        self.rollouts.inc(summary["rollouts"])
        for reason, count in summary["reasons"].items():
            self.unscored.labels(reason).inc(count)
        self.calls.inc(summary["calls"])
        self.tokens.labels("prompt").inc(summary["prompt_tokens"])
        self.tokens.labels("completion").inc(summary["completion_tokens"])
        figures = {
            "reward": summary["reward"],
            "flat": summary["flat"],
            "gear": summary["gear"],
            "false_credit": summary["false_credit"],
            "suppressed": summary["suppressed"],
            "unverified": summary["unverified"],
        }
        for name, value in figures.items():
            if value is not None:
                self.figures.labels(name).set(value)

    def page(self) -> bytes:
        """The page that Prometheus reads."""
        return generate_latest(self.registry)

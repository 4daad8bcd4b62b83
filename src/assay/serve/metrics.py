"""Numbers of a service in the format of Prometheus."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_BUCKETS = (0.25, 0.5, 1, 2, 4, 8, 16, 32, 64, 128, 256)


class Metrics:
    """Counters of one service, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter("assay_requests", "Requests by route and status.", ["route", "status"],
                                registry=self.registry)
        self.accepted = Counter("assay_jobs_begun", "Verdicts begun, again after a lost judge too.",
                                registry=self.registry)
        self.repeated = Counter("assay_requests_known", "Requests that had been made before.", registry=self.registry)
        self.refused = Counter("assay_requests_refused", "Requests refused, by reason.", ["reason"],
                               registry=self.registry)
        self.verdicts = Counter("assay_verdicts", "Verdicts by label and kind.", ["label", "kind"],
                                registry=self.registry)
        self.seconds = Histogram("assay_verdict_seconds", "Seconds of judging.", buckets=_BUCKETS,
                                 registry=self.registry)
        self.waiting = Gauge("assay_queue_waiting", "Verdicts that wait.", registry=self.registry)
        self.running = Gauge("assay_judges_busy", "Judges at work.", registry=self.registry)
        self.workers = Gauge("assay_judges", "Judges.", registry=self.registry)
        self.lost = Gauge("assay_judges_lost", "Judges that died and were replaced.", registry=self.registry)

    def text(self) -> bytes:
        """All of them, as scraped."""
        return generate_latest(self.registry)

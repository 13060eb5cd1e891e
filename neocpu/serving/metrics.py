"""Prometheus metrics of the models a server has."""

from __future__ import annotations

from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

BUCKETS: Final = (
    *(0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0),
)
"""Seconds: from a small network on a fast core to a long queue."""
_LABELS: Final = ("model", "version")


class Metrics:
    """The metrics of one server; in a registry of its own unless told otherwise."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.registry = registry
        self.requests = Counter(
            "neocpu_requests",
            "Inference requests answered, by HTTP status code",
            (*_LABELS, "code"),
            registry=registry,
        )
        self.queue = Histogram(
            "neocpu_queue_seconds",
            "Time a request waited for the calls before it",
            _LABELS,
            registry=registry,
            buckets=BUCKETS,
        )
        self.inference = Histogram(
            "neocpu_inference_seconds",
            "Time the module ran",
            _LABELS,
            registry=registry,
            buckets=BUCKETS,
        )
        self.in_flight = Gauge(
            "neocpu_requests_in_flight",
            "Requests accepted and not yet answered",
            _LABELS,
            registry=registry,
        )
        self.ready = Gauge(
            "neocpu_model_ready",
            "Copies of the model that are warmed up and open: 2 while one replaces another",
            _LABELS,
            registry=registry,
        )


class ModelMetrics:
    """The metrics of one model: looked up once, not with every request."""

    def __init__(self, metrics: Metrics, name: str, version: str) -> None:
        self._requests = metrics.requests
        self._labels = (name, version)
        self.queue = metrics.queue.labels(name, version)
        self.inference = metrics.inference.labels(name, version)
        self.in_flight = metrics.in_flight.labels(name, version)
        self.ready = metrics.ready.labels(name, version)

    def answered(self, code: int) -> None:
        """Count a request that was answered or refused with ``code``."""
        self._requests.labels(*self._labels, str(code)).inc()

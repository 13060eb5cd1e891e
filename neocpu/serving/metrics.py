"""Prometheus metrics of a server's models."""

from __future__ import annotations

from functools import cache, partial
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Summary

BUCKETS: Final = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
"""Bounds in seconds, from a small network on a fast core to a long queue."""
ROWS: Final = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 128, 256)
_LABELS: Final = ("model", "version")
SIZES: Final = 32
"""The most sizes of a model that have series of their own. Clients choose them."""
OTHERS: Final = "others"
"""The name of all further sizes."""


class Metrics:
    """The metrics of one server, in the given registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.registry = registry
        counter = partial(Counter, registry=registry)
        gauge = partial(Gauge, labelnames=_LABELS, registry=registry)
        histogram = partial(Histogram, labelnames=_LABELS, registry=registry)
        self.requests = counter(
            "neocpu_requests",
            "Inference requests answered, by HTTP status code",
            (*_LABELS, "code"),
        )
        self.queue = histogram(
            "neocpu_queue_seconds",
            "Time a request waited for the calls before it, and for others to be computed with",
            buckets=BUCKETS,
        )
        self.inference = histogram(
            "neocpu_inference_seconds", "Time the module ran", buckets=BUCKETS
        )
        self.sizes = Summary(
            "neocpu_size_inference_seconds",
            f"Time the module ran, by size of a model with ranges: its first {SIZES}, and {OTHERS}",
            (*_LABELS, "size"),
            registry=registry,
        )
        self.named_sizes: dict[tuple[str, str], set[str]] = {}
        self.batch = histogram(
            "neocpu_batch_rows", "Rows of requests that a run computed together", buckets=ROWS
        )
        self.spare = counter(
            "neocpu_spare_rows",
            "Rows that runs computed for nobody, their plans having more than there were",
            _LABELS,
        )
        self.in_flight = gauge(
            "neocpu_requests_in_flight", "Requests accepted and not yet answered"
        )
        self.ready = gauge(
            "neocpu_model_ready",
            "Copies of the model that are warmed up and open: 2 while one replaces another",
        )


class ModelMetrics:
    """The metrics of one model, looked up once and not in every request."""

    def __init__(self, metrics: Metrics, name: str, version: str) -> None:
        self._requests = cache(lambda code: metrics.requests.labels(name, version, str(code)))
        self._batch = metrics.batch.labels(name, version)
        self._spare = metrics.spare.labels(name, version)
        self.queue = metrics.queue.labels(name, version)
        self.inference = metrics.inference.labels(name, version)
        self.in_flight = metrics.in_flight.labels(name, version)
        self.ready = metrics.ready.labels(name, version)
        self._sizes = partial(metrics.sizes.labels, name, version)
        self._named_sizes = metrics.named_sizes.setdefault((name, version), set())

    def ran(self, seconds: float, rows: int, size: int) -> None:
        """Count a run of a plan of ``size`` rows that computed ``rows`` rows of requests."""
        self.inference.observe(seconds)
        self._batch.observe(rows)
        self._spare.inc(size - rows)

    def ran_size(self, seconds: float, size: str) -> None:
        """Count a run of a model with ranges for a size, such as ``h=480,w=640``."""
        if len(self._named_sizes) < SIZES:  # threads that race may name a few more
            self._named_sizes.add(size)
        self._sizes(size if size in self._named_sizes else OTHERS).observe(seconds)

    def answered(self, code: int) -> None:
        """Count a request that was answered or refused with ``code``."""
        self._requests(code).inc()

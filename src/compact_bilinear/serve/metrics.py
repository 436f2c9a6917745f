"""Counters and times for Prometheus, one set for each server."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST as CONTENT_TYPE

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)


class Metrics:
    """What is measured; :meth:`text` gives it as Prometheus reads it."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter(
            "cbp_requests_total", "Requests that were answered", ("endpoint", "status"), registry=self.registry
        )
        self.seconds = Histogram(
            "cbp_request_seconds",
            "From a request's head to the end of its answer",
            ("endpoint",),
            buckets=SECONDS,
            registry=self.registry,
        )
        self.images = Counter("cbp_images_total", "Images that were answered or refused", ("outcome",), registry=self.registry)
        self.waiting = Gauge("cbp_images_waiting", "Images that are accepted and not answered yet", registry=self.registry)
        self.held = Gauge("cbp_held_bytes", "Bodies of requests in memory", registry=self.registry)
        self.batch = Histogram(
            "cbp_batch_images", "Images in a batch", buckets=(1, 2, 4, 8, 16, 32, 64), registry=self.registry
        )
        self.model = Histogram("cbp_model_seconds", "The model's time for a batch", buckets=SECONDS, registry=self.registry)

    def note_batch(self, images: int, seconds: float) -> None:
        """A batch went through the model."""
        self.batch.observe(images)
        self.model.observe(seconds)

    def text(self) -> bytes:
        """All of it."""
        return generate_latest(self.registry)


__all__ = ["CONTENT_TYPE", "Metrics"]

"""Metric families in the form of prometheus_client, with exact names and few objects."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from prometheus_client import Metric
from prometheus_client.samples import Sample

from tower.metrics.histogram import Histogram


def gauge(name: str, text: str, value: float, /, **labels: str) -> Metric:
    """Return a gauge with one sample; further ones are added with ``add_sample``."""
    return _single(name, text, "gauge", value, labels)


def counter(name: str, text: str, value: float, /, **labels: str) -> Metric:
    """Return a counter with one sample; *name* ends with ``_total``."""
    return _single(name, text, "counter", value, labels)


def counters(name: str, text: str, label: str, counts: Mapping[str, float], **labels: str) -> Metric:
    """Return a counter with one sample for each key of *counts*, which is the value of *label*."""
    return _several(name, text, "counter", label, counts, labels)


def gauges(name: str, text: str, label: str, values: Mapping[str, float], **labels: str) -> Metric:
    """Return a gauge with one sample for each key of *values*, which is the value of *label*."""
    return _several(name, text, "gauge", label, values, labels)


def histogram(name: str, text: str, values: Histogram, /, **labels: str) -> Metric:
    """Return a histogram with the samples of *values*."""
    metric = Metric(name, text, "histogram")
    metric.samples = list(_buckets(name, values, labels))
    return metric


def _single(name: str, text: str, kind: str, value: float, labels: Mapping[str, str]) -> Metric:
    metric = Metric(name, text, kind)
    metric.samples.append(Sample(name, dict(labels), value))
    return metric


def _several(
    name: str, text: str, kind: str, label: str, values: Mapping[str, float], labels: Mapping[str, str]
) -> Metric:
    metric = Metric(name, text, kind)
    metric.samples = [Sample(name, {**labels, label: key}, value) for key, value in values.items()]
    return metric


def _buckets(name: str, values: Histogram, labels: Mapping[str, str]) -> Iterable[Sample]:
    """Yield the cumulative buckets, then the count and the sum."""
    total, bucket = 0, f"{name}_bucket"
    for bound, count in zip((*map(repr, values.bounds), "+Inf"), values.counts, strict=True):
        total += count
        yield Sample(bucket, {**labels, "le": bound}, total)
    yield Sample(f"{name}_count", dict(labels), total)
    yield Sample(f"{name}_sum", dict(labels), values.sum)

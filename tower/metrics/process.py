"""Metrics of the process: version, processor time, memory, file descriptors."""

from __future__ import annotations

import platform
from collections.abc import Iterable

from prometheus_client import CollectorRegistry, Metric, ProcessCollector
from prometheus_client.registry import Collector

from tower import BUILD
from tower.metrics.families import gauge

BUILD_INFO = "tower_build_info"


class ProcessInfo(Collector):
    """The version of Tower, and prometheus_client's metrics of the process.

    :param program: ``proxy`` or ``agent``.
    """

    def __init__(self, program: str, version: str) -> None:
        self._labels = {
            "program": program,
            "version": version,
            "python": platform.python_version(),
            "build": BUILD,
        }
        self._process = ProcessCollector(registry=CollectorRegistry())

    def collect(self) -> Iterable[Metric]:
        """Yield the metrics."""
        yield gauge(
            BUILD_INFO,
            "Versions of Tower and of Python, and native or pure; the value is 1.",
            1,
            **self._labels,
        )
        yield from self._process.collect()

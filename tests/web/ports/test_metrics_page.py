"""Tests of `tower.web.ports.metrics_page`."""

from __future__ import annotations

from collections.abc import Callable

from attrs import define, field
from twisted.internet.defer import succeed
from twisted.trial.unittest import SynchronousTestCase

from tower.web.outcome import Response, StreamingResponse
from tower.web.ports.metrics_page import page_maker


@define
class _SlowClient:
    """A body that takes one piece at a time."""

    on_drained: Callable[[], None] | None = None
    on_closed: Callable[[], None] | None = None
    written: list[bytes] = field(factory=list)
    finished: bool = False

    def write(self, data: bytes) -> bool:
        """Take a piece."""
        self.written.append(data)
        return False

    def finish(self) -> None:
        """End the body."""
        self.finished = True


class MetricsPageTests(SynchronousTestCase):
    """The answer, by the size of the page."""

    def test_short(self) -> None:
        """A short page is sent at once."""
        answer = self.successResultOf(page_maker(lambda: succeed([b"a 1.0\n", b"b 2.0\n"]))())
        assert isinstance(answer, Response)
        self.assertEqual((answer.code, answer.body), (200, b"a 1.0\nb 2.0\n"))

    def test_long(self) -> None:
        """A long page is written as the client takes it."""
        pieces = [bytes([number]) * 300_000 for number in range(3)]
        answer = self.successResultOf(page_maker(lambda: succeed(pieces))())
        assert isinstance(answer, StreamingResponse)
        client = _SlowClient()
        answer.start(client)
        for count in (1, 2, 3):
            self.assertEqual(client.written, pieces[:count])
            self.assertFalse(client.finished)
            assert client.on_drained is not None
            client.on_drained()
        self.assertTrue(client.finished)

"""Tests for `tower.server.health_pages`."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from tower.server.health_pages import HealthCheck, HealthPages


class HealthPagesTests(SynchronousTestCase):
    """Two pages, one of them with another check."""

    def setUp(self) -> None:
        """Make the pages."""
        self.problem = ""
        ping = HealthCheck("ping", lambda: "")
        store = HealthCheck("poststarthook/store", lambda: self.problem)
        self.pages = HealthPages({"livez": [ping], "readyz": [ping, store]})

    def ask(self, target: str) -> tuple[int, str]:
        """Return code and text of a page."""
        path, _, query = target.encode().partition(b"?")
        answer = self.pages.answer(path, query)
        assert answer is not None, target
        self.assertIn((b"Content-Type", b"text/plain; charset=utf-8"), answer.headers)
        return answer.code, answer.body.decode()

    def test_healthy(self) -> None:
        """A page is brief; with verbose it has a line for each check."""
        for target in ("/livez", "/readyz", "/readyz/ping", "/readyz/poststarthook/store", "/readyz?x=1"):
            self.assertEqual(self.ask(target), (200, "ok"), target)
        self.assertEqual(self.ask("/livez?verbose"), (200, "[+]ping ok\nlivez check passed\n"))
        lines = "[+]ping ok\n[+]poststarthook/store ok\nreadyz check passed\n"
        for query in ("verbose", "verbose=1", "a=b&verbose="):
            self.assertEqual(self.ask(f"/readyz?{query}"), (200, lines))

    def test_failed(self) -> None:
        """A failed check fails its pages, without the reason, which its own page has."""
        self.problem = "not finished"
        lines = "[+]ping ok\n[-]poststarthook/store failed: reason withheld\nreadyz check failed\n"
        for target in ("/readyz", "/readyz?verbose"):
            self.assertEqual(self.ask(target), (500, lines))
        self.assertEqual(
            self.ask("/readyz/poststarthook/store"), (500, "internal server error: not finished\n")
        )
        self.assertEqual(self.ask("/livez")[0], 200)

    def test_exclude(self) -> None:
        """Excluded checks do not count; unknown names are shown, quoted."""
        self.problem = "bad"
        self.assertEqual(self.ask("/readyz?exclude=poststarthook/store"), (200, "ok"))
        self.assertEqual(
            self.ask("/readyz?verbose&exclude=ping&exclude=poststarthook%2Fstore"),
            (200, "[+]ping excluded: ok\n[+]poststarthook/store excluded: ok\nreadyz check passed\n"),
        )
        self.problem = ""
        self.assertEqual(
            self.ask("/readyz?verbose&exclude=z&exclude=a%22%0ab&exclude=z")[1].splitlines()[-2:],
            [
                r'warn: some health checks cannot be excluded: no matches for "a\"\nb","z"',
                "readyz check passed",
            ],
        )
        self.assertEqual(self.ask("/readyz?exclude=z"), (200, "ok"))

    def test_no_page(self) -> None:
        """There are no other pages."""
        for path in (b"/readyz/", b"/readyz/x", b"/livez/poststarthook/store", b"/", b"/readyzz"):
            self.assertIsNone(self.pages.answer(path, b""))

    def test_paths(self) -> None:
        """All paths are known, for the index."""
        self.assertEqual(
            sorted(self.pages.paths),
            ["/livez", "/livez/ping", "/readyz", "/readyz/ping", "/readyz/poststarthook/store"],
        )

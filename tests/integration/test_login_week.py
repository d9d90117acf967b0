"""A week of work with ``tower login`` and kubectl: real programs, and the provider, share a clock that jumps.

Timers of the programs follow monotonic time; those of `tests.web.login.test_week`, in memory, have the clock.
"""

from __future__ import annotations

import re

from tests.integration import dex
from tests.integration.login_case import LoginCase
from tests.integration.member import kubectls
from tests.integration.programs import wait_for
from tower.web.access.authentication.login.confirmer import AGE

HOUR = 3600

#: Days, hours of work of each, and the day with a watch.
DAYS, WORK, WATCHED = 7, 9, 2


class LoginWeekTests(LoginCase):
    """The proxy, Dex, the plugin and the other commands have the clock; kubectl needs none."""

    timeout = 600

    def advance(self, seconds: int) -> None:
        """Set the clock ahead."""
        self.clock.advance(seconds, self.tower, [self.provider.program.pid])

    def visits(self) -> int:
        """Return how often a user has logged in at the provider."""
        return self.provider.program.output().count("login successful")

    def confirmations(self) -> int:
        """Return how often the provider has confirmed a session."""

        def page() -> str:
            """Return the metrics; empty: the administrator's kubeconfig has expired by the last jump."""
            answer = self.tower.admin().get("/metrics")
            return answer.body.decode() if answer.status == 200 else ""

        text = wait_for("the metrics", page)
        found = re.search(r'tower_login_confirmations_total\{result="confirmed"\} (\d+)', text)
        assert found is not None, text
        return int(found[1])

    def works(self, when: str) -> None:
        """Check that kubectl works."""
        code, out, error = self.ask()
        self.assertEqual(code, 0, f"{when}: {error}")
        self.assertIn("default", out)

    def ask(self) -> tuple[int, str, str]:
        """Run kubectl."""
        return self.jane.try_kubectl(kubectls()[-1], "--context", "tower/alpha", "get", "namespaces")

    def watch_for_a_while(self) -> None:
        """Run kubectl while its token expires, and the provider confirms the session repeatedly."""
        words = ("--context", "tower/alpha", "get", "namespaces", "--watch")
        watch = self.jane.begin_kubectl(kubectls()[-1], *words)
        self.addCleanup(watch.communicate)
        self.addCleanup(watch.kill)
        assert watch.stdout is not None
        watch.stdout.readline()
        passed, step = 0, int(AGE) + 10
        while passed < HOUR // 2:
            before = self.confirmations()
            self.advance(step)
            passed += step
            wait_for("the confirmation", lambda before=before: self.confirmations() > before)  # type: ignore[misc]
            self.assertIsNone(watch.poll(), f"the watch has ended after {passed} s")
        name = "made-in-the-watch"
        self.cluster.member.kubectl("create", "namespace", name)
        while name not in watch.stdout.readline():
            self.assertIsNone(watch.poll(), "the watch has ended")

    def test_week(self) -> None:
        """One login by browser a day is enough for kubectl at each hour, and for a long watch."""
        for day in range(DAYS):
            if day:
                code, _, error = self.ask()
                self.assertNotEqual(code, 0)
                self.assertIn(f"has expired: run 'tower login {self.url}'", error)
            self.assertIn(f"logged in to {self.url} as {dex.USER} until ", self.log_in())
            for hour in range(WORK):
                self.works(f"day {day}, hour {hour}")
                if (day, hour) == (WATCHED, 1):
                    self.watch_for_a_while()
                self.advance(HOUR)
            self.assertEqual(self.visits(), day + 1)
            self.advance((24 - WORK) * HOUR)
        self.assertGreaterEqual(self.confirmations(), DAYS * (WORK - 1))
        self.assertNotIn("Traceback", self.tower.proxy.output())

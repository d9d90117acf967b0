"""Tests of `tower.control.front_door.user_authorization`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tests.fakes.requests import FakeRequest
from tower.clusters.policies.rbac_objects import RbacObjects
from tower.control.front_door.user_authorization import UserAuthorization
from tower.control.proxy_options import Options
from tower.errors import ConfigurationError
from tower.kube.status import StatusError
from tower.reactor.signals import Reloads
from tower.store import MemoryStore
from tower.web.access.authentication.identity import Identity
from tower.web.access.authorization.impersonation import Impersonation
from tower.web.access.authorization.mode_filter import ModeAuthorization
from tower.web.access.authorization.own_rbac import OwnRbac
from tower.web.outcome import Relay


class UserAuthorizationTests(SynchronousTestCase):
    """The modes of a command line."""

    def make(self, *arguments: str) -> UserAuthorization:
        """Return what the options configure."""
        options = Options({})
        options.parse([*arguments, "--publish-service-address=127.0.0.1"])
        self.reloads, self.clock = Reloads(), Clock()
        reactor: Any = self.clock
        self.store = MemoryStore()
        self.rbac = OwnRbac(RbacObjects(self.store, reactor))
        return UserAuthorization(options, reactor, self.reloads, self.rbac)

    def allows(self, made: UserAuthorization, *groups: str) -> bool:
        """Return whether a request of jane's is allowed."""
        relay = Relay("alpha", b"/clusters/alpha")
        request = FakeRequest(
            target=b"/clusters/alpha/x", identity=Identity("jane", groups), destination=relay
        )
        assert made.rules is not None
        try:
            return made.rules(request, "alpha") is None
        except StatusError:
            return False

    def test_nothing(self) -> None:
        """If all is allowed first, there is no filter and no service."""
        for arguments in ((), ("--authorization-mode=AlwaysAllow,AlwaysDeny",)):
            made = self.make(*arguments)
            self.assertIsNone(made.rules)
            self.assertEqual(len(list(made)), 2)  # the sweeps of Tower's own API

    def test_order(self) -> None:
        """A request needs one mode that allows it; administrators need none."""
        self.assertTrue(self.allows(self.make("--authorization-mode=AlwaysDeny,AlwaysAllow")))
        denied = self.make("--authorization-mode=AlwaysDeny")
        self.assertFalse(self.allows(denied))
        self.assertTrue(self.allows(denied, "tower:admins"))

    def test_policy_file(self) -> None:
        """The policy file is read again while the service runs, and by a reload."""
        path = Path(self.mktemp())
        path.write_text("# none")
        made = self.make("--authorization-mode=ABAC", f"--authorization-policy-file={path}")
        self.assertFalse(self.allows(made))
        made.startService()
        self.addCleanup(made.stopService)
        path.write_text('{"user":"jane"}')
        self.clock.advance(1)
        self.assertTrue(self.allows(made))
        path.write_text("")
        self.reloads.run()
        self.assertFalse(self.allows(made))

    def test_webhook(self) -> None:
        """The webhook is asked again about live requests, and users who act, when its permissions expire."""
        path = Path(self.mktemp())
        path.write_text(
            '{"clusters": [{"name": "h", "cluster": {"server": "https://127.0.0.1:1"}}], '
            '"users": [{"name": "u"}], "current-context": "c", '
            '"contexts": [{"name": "c", "context": {"cluster": "h", "user": "u"}}]}'
        )
        asked: list[float] = []

        async def ask_again(_: object) -> None:
            asked.append(self.clock.seconds())

        self.patch(ModeAuthorization, "ask_again", ask_again)
        self.patch(Impersonation, "ask_again", ask_again)
        for ttl, times in (("1m", [0.0, 60.0]), ("0", [0.0, 10.0, 20.0])):
            made = self.make(
                "--authorization-mode=Webhook",
                f"--authorization-webhook-config-file={path}",
                f"--authorization-webhook-cache-authorized-ttl={ttl}",
            )
            asked.clear()
            made.startService()
            for _ in range(len(times) - 1):
                self.clock.advance(times[1])
            made.stopService()
            self.assertEqual(asked, sorted(times * 2))

    def test_wrong_files(self) -> None:
        """An error names the option."""
        for mode, option in (
            ("ABAC", "authorization-policy-file"),
            ("RBAC", "authorization-kubeconfig"),
            ("Webhook", "authorization-webhook-config-file"),
        ):
            arguments = (f"--authorization-mode={mode}", f"--{option}={self.mktemp()}")
            error = self.assertRaises(ConfigurationError, self.make, *arguments)
            self.assertIn(f"--{option}", str(error))

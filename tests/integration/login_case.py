"""Base of tests of users with an own machine, whose time of day they share with the proxy."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from tests.integration import dex
from tests.integration.harness import Tower
from tests.integration.member import Running
from tests.integration.person_login import PersonAtMachine, follower
from tests.integration.programs import wait_for
from tests.integration.shared_clock import SharedClock
from tests.integration.token_users import allow


class LoginCase(SynchronousTestCase):
    """A Tower with Dex as identity provider, one real cluster, and a user who may enter it.

    :ivar jane: commands of this user have the clock.
    """

    def setUp(self) -> None:
        """Start all."""
        self.folder = Path(tempfile.mkdtemp(prefix="tower-test-"))
        self.addCleanup(shutil.rmtree, self.folder, True)
        self.cluster = Running(self.folder, "--bare")
        self.addCleanup(self.cluster.stop)
        self.cluster.run()
        self.provider = dex.Dex(self.folder)
        self.addCleanup(self.provider.stop)
        self.provider.start()
        self.tower = Tower(self.folder)
        self.addCleanup(self.tower.stop)
        self.tower.proxy = self.tower.proxy_program(
            f"--oidc-issuer-url={self.provider.url}",
            f"--oidc-client-id={dex.CLIENT}",
            f"--login-client-id={self.provider.url}={dex.PUBLIC_CLIENT}",
            f"--oidc-ca-file={self.provider.ca}",
            "--oidc-username-claim=email",
            "--oidc-groups-claim=groups",
        )
        self.tower.start()
        self.url = f"https://127.0.0.1:{self.tower.secure_port}"
        wait_for("the keys", lambda: "its keys are in use" in self.tower.proxy.output(), 30)
        self.tower.add("alpha", self.cluster.member.admin)
        allow(self.tower, "authors", {"kind": "Group", "name": "authors"}, "alpha")
        admin = self.cluster.member.kubectl
        admin("create", "clusterrole", "reader", "--verb=get,list,watch", "--resource=namespaces,configmaps")
        admin("create", "clusterrolebinding", "authors", "--clusterrole=reader", "--group=authors")
        self.clock = SharedClock(self.folder)
        self.jane = PersonAtMachine(self.folder, follower(), self.clock.environment)

    def log_in(self) -> str:
        """Log in by browser; return the output."""
        ca = str(self.tower.state / "serving-ca.pem")
        return self.jane.tower("login", self.url, "--certificate-authority", ca)

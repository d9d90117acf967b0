"""Base of the tests of the pages about login, rights and audit, with programs and files of their commands."""

from __future__ import annotations

import http.client
import shutil
import ssl
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from tests.integration import dex, harness
from tests.integration.guide import Guide, path_with
from tests.integration.member import Member, kubectls, member
from tests.integration.ports import free_port
from tests.integration.programs import LOOPBACK, Program, wait_for
from tests.integration.review_webhook import ReviewWebhook
from tests.integration.token_issuer import TokenIssuer

DEPLOYMENT = """\
apiVersion: v1
kind: ConfigMap
metadata: {name: shop}
"""


class AccessPagesCase(SynchronousTestCase):
    """The commands: one state directory, one cluster, and several proxies one after another."""

    timeout = 450

    def setUp(self) -> None:
        """Start the cluster, Dex, an issuer for pipelines, and a webhook; make the files of the pages."""
        self.folder = Path(tempfile.mkdtemp(prefix="tower-test-"))
        self.addCleanup(shutil.rmtree, self.folder, True)
        self.ran: set[tuple[str, str, int]] = set()
        self.member: Member = member()
        self.dex = dex.Dex(self.folder)
        self.addCleanup(self.dex.stop)
        self.dex.start()
        self.issuer = TokenIssuer(self.folder, "ci")
        self.addCleanup(self.issuer.close)
        self.hook = ReviewWebhook(self.folder, lambda events: events)
        self.addCleanup(self.hook.stop)
        self.tower = harness.Tower(self.folder)
        self.addCleanup(self.tower.stop)
        self.state, self.metrics = self.tower.state, free_port()
        self.state.mkdir(0o700)
        self.url = f"https://{LOOPBACK}:{self.tower.secure_port}"
        self.names = {
            "https://tower.example.org:8443": self.url,
            "https://tower.example.org": self.url,
            "tower.example.org:8443": self.url.removeprefix("https://"),
            "tower.example.org": LOOPBACK,
            "https://dex.example.org": self.dex.url,
            "9090": str(self.metrics),
        }
        installed = Path(sys.executable).parent
        self.path = path_with(
            self.folder / "bin", kubectls()[-1], installed / "tower", installed / "tower-proxy"
        )
        self.operator = {
            "PATH": self.path,
            "TOWER_STATE_DIR": str(self.state),
            "TOWER_HOST": LOOPBACK,
            "TOWER_PORT": str(self.tower.port),
            "TOWER_SECURE_PORT": str(self.tower.secure_port),
            "TOWER_CLUSTER_PORTS": f"{self.tower.cluster_ports[0]}-{self.tower.cluster_ports[-1]}",
        }
        self.prepare_files()

    def program(self, name: str, line: str) -> None:
        """Put a program on the operator's PATH, in place of one that needs another machine."""
        path = self.folder / "bin" / name
        path.write_text(f"#!/bin/sh\n{line}\n")
        path.chmod(0o700)

    def prepare_files(self) -> None:
        """Make the files that the pages' commands name."""
        for source, name in (
            (self.dex.ca, "dex-ca.pem"),
            (self.member.admin, "rules.kubeconfig"),
            (self.hook.kubeconfig, "audit-webhook.kubeconfig"),
        ):
            shutil.copy(source, self.folder / name)
        (self.folder / "audit-policy.yaml").write_text(self.guide("audit-log.md").fenced["Policy"][0])
        (self.folder / "policies.jsonl").write_text(self.guide("authorization-modes.md").fenced["ABAC"][0])
        (self.folder / "deployment.yaml").write_text(DEPLOYMENT)
        (self.folder / "token").write_text(
            self.issuer.token(sub="repo:acme/shop:ref:refs/heads/main", repository="acme/shop")
        )

    def guide(self, page: str, names: Mapping[str, str] | None = None, **environment: str) -> Guide:
        """Return a page for an operator."""
        environment = {**self.operator, **environment}
        return Guide(page, self.folder, environment, {**self.names, **(names or {})})

    def run_block(self, page: str, guide: Guide, heading: str, number: int = 0) -> str:
        """Run a block; return its output."""
        self.ran.add((page, heading, number))
        return guide.run(heading, number)

    @contextmanager
    def proxy(
        self, page: str, heading: str, number: int = 0, folder: Path | None = None
    ) -> Iterator[Program]:
        """Run the proxy of a block while the caller uses it."""
        self.ran.add((page, heading, number))
        guide = Guide(page, folder or self.folder, self.operator, self.names)
        self.assertTrue(guide.command(heading, number).startswith("tower-proxy "))
        program = guide.program(f"proxy-{heading}-{number}".replace(" ", "-"), heading, number)
        program.start()
        try:
            wait_for("the proxy", lambda: self.is_ready(program))
            shutil.copy(self.state / "admin.kubeconfig", self.folder)
            (self.folder / "tower-ca.crt").write_text(self.tower.ca)
            yield program
        finally:
            program.stop()

    def is_ready(self, program: Program) -> bool:
        """Return whether the proxy answers."""
        if not program.running():
            raise AssertionError(f"the proxy ended: {program.tail()}")
        context = ssl._create_unverified_context()
        connection = http.client.HTTPSConnection(LOOPBACK, self.tower.secure_port, context=context, timeout=5)
        try:
            connection.request("GET", "/readyz")
            return connection.getresponse().status == 200
        except OSError:
            return False
        finally:
            connection.close()

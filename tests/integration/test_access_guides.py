"""The pages about login, rights and audit, command by command, with real programs."""

from __future__ import annotations

import http.client
import json
import re
import shutil
import ssl
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from textwrap import indent

import yaml
from twisted.trial.unittest import SynchronousTestCase

from tests.integration import dex, harness
from tests.integration.guide import DOCS, Guide, path_with
from tests.integration.member import Member, kubectls, member
from tests.integration.person_login import follower
from tests.integration.ports import free_port
from tests.integration.programs import LOOPBACK, Program, clean_environment, run, wait_for
from tests.integration.review_webhook import ReviewWebhook
from tests.integration.token_issuer import TokenIssuer
from tests.integration.token_users import allow
from tower.options.variables import OPTIONS

PAGES = (
    "agent-policy.md",
    "audit-log.md",
    "authentication.md",
    "authorization-modes.md",
    "authorization.md",
    "hardening.md",
    "login.md",
)
#: Blocks that are not run, by page, heading and number, with the reason.
NOT_RUN = {
    ("authentication.md", "Service accounts", 0): "copies a file from another machine by SSH",
}
PLACEHOLDER = "      -----BEGIN CERTIFICATE-----\n      …\n      -----END CERTIFICATE-----\n"
DEPLOYMENT = """\
apiVersion: v1
kind: ConfigMap
metadata: {name: shop}
"""


def quoted_ca(url: str, path: Path) -> str:
    """Return a URL with its CA, for YAML in one line."""
    return f"{url}, certificateAuthority: {json.dumps(path.read_text())}"


class OptionTests(SynchronousTestCase):
    """The page about kube-apiserver's options."""

    def test_all(self) -> None:
        """It has all options that both programs have, and no others."""
        program = Path(f"/proc/{member().info['pids']['kube-apiserver']}/exe").resolve()
        help_text = run([str(program), "--help"], timeout=60).stdout.decode()
        upstream = set(re.findall(r"^ +--([a-z0-9-]+)", help_text, re.MULTILINE))
        table = re.findall(r"^\| (.*?) \|", (DOCS / "kube-apiserver-options.md").read_text(), re.MULTILINE)
        listed = {name for cell in table for name in re.findall(r"`--([a-z0-9-]+)`", cell)}
        self.assertGreater(len(listed), 60)
        self.assertEqual(listed, OPTIONS & upstream)


class PageTests(SynchronousTestCase):
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

    def prepare_files(self) -> None:
        """Make the files that the pages' commands name."""
        pki = self.member.place / "pki"
        for source, name in (
            (self.dex.ca, "dex-ca.pem"),
            (pki / "service-accounts.crt", "alpha-accounts.pub"),
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

    def test_every_command_is_run(self) -> None:
        """All commands of the pages work, or are in the list of those that no test can run."""
        self.short_starts()
        self.in_the_member()
        self.authorization_and_login()
        self.hardening()
        blocks = {
            (page, heading, number)
            for page in PAGES
            for heading, found in Guide(page, Path(), {}, {}).blocks.items()
            for number in range(len(found))
        }
        self.assertEqual(blocks - self.ran, set(NOT_RUN))

    def short_starts(self) -> None:
        """Proxies with the options of examples start."""
        file = self.folder / "authentication.yaml"
        text = self.guide("authentication.md").fenced["Several issuers"][0]
        self.assertIn(PLACEHOLDER, text)
        file.write_text(text.replace(PLACEHOLDER, indent(self.dex.ca.read_text(), "      ")))
        for page, heading, number in (
            ("authentication.md", "Several issuers", 0),
            ("authentication.md", "Service accounts", 1),
            ("authorization-modes.md", "Modes", 0),
            ("audit-log.md", "Events", 0),
        ):
            with self.proxy(page, heading, number):
                pass
        with self.proxy("login.md", "Options") as program:
            wait_for("the keys", lambda: "its keys are in use" in program.output(), 30)
            modes = self.guide("authorization-modes.md")
            self.assertIn("created", self.run_block("authorization-modes.md", modes, "RBAC"))

    def in_the_member(self) -> None:
        """Commands for the administrator of a cluster."""
        self.member.kubectl("create", "serviceaccount", "robot")
        self.addCleanup(self.member.kubectl, "delete", "serviceaccount", "robot")
        guide = self.guide("authentication.md", KUBECONFIG=str(self.member.admin))
        token = self.run_block("authentication.md", guide, "Service accounts", 2)
        self.assertEqual(token.count("."), 2)
        self.assertIn("created", self.run_block("authentication.md", guide, "Reviewed tokens"))
        policy = self.guide("agent-policy.md", KUBECONFIG=str(self.member.admin))
        self.assertIn("created", self.run_block("agent-policy.md", policy, "The ConfigMap"))
        for kind, names in (
            ("clusterrolebinding", ("tower-authenticator",)),
            ("serviceaccount", ("tower-authenticator",)),
            ("rolebinding", ("agent-policy",)),
            ("role", ("agent-policy",)),
            ("configmap", ("agent-policy",)),
        ):
            self.member.kubectl("-n", "tower-system", "delete", kind, *names)

    def authorization_and_login(self) -> None:
        """Policies and roles of an administrator; a user and a pipeline log in."""
        text = self.guide("login.md").fenced["Pipelines and pods"][0]
        text = text.replace(self.dex.url, "https://dex.example.org")
        for url, found, path in (
            ("https://dex.example.org", self.dex.url, self.dex.ca),
            ("https://token.actions.githubusercontent.com", self.issuer.url, self.issuer.ca),
        ):
            self.assertIn(url, text)
            text = text.replace(url, quoted_ca(found, path))
        (self.folder / "authentication.yaml").write_text(text)
        with self.proxy("login.md", "Pipelines and pods") as program:
            wait_for("the keys", lambda: program.output().count("its keys are in use") == 2, 30)
            self.tower.add("alpha", self.member.agent)
            self.authorization()
            self.login()

    def authorization(self) -> None:
        """The page about policies and roles."""
        page = "authorization.md"
        guide = self.guide(page)
        for heading, number, text in (
            ("A policy", 0, "developers"),
            ("Names in the cluster", 0, "created"),
            ("Dry run", 0, "deleted"),
            ("Explanations", 0, "jane enters cluster alpha by access policy developers"),
            ("Roles for Tower itself", 0, "tower:auditor"),
            ("Roles for Tower itself", 1, "created"),
            ("Acting as another user", 0, "clusterrolebinding.rbac.authorization.k8s.io/support"),
        ):
            self.assertIn(text, self.run_block(page, guide, heading, number))

    def user(self, name: str, names: Mapping[str, str] | None = None) -> Guide:
        """Return the page about login for a user at a machine of the user's own."""
        home = self.folder / name
        home.mkdir()
        environment = {
            **clean_environment(),
            "PATH": self.path,
            "HOME": str(home),
            "BROWSER": follower(),
            "SSL_CERT_FILE": str(self.folder / "tower-ca.crt"),
        }
        return Guide("login.md", self.folder, environment, {**self.names, **(names or {})})

    def login(self) -> None:
        """The page about login."""
        page = "login.md"
        rights = ("--clusterrole=cluster-admin", f"--user={dex.USER}")
        pipeline = "github:repo:acme/shop:ref:refs/heads/main"
        self.member.kubectl("create", "clusterrolebinding", "login", *rights, f"--user={pipeline}")
        self.addCleanup(self.member.kubectl, "delete", "clusterrolebinding", "login")
        allow(self.tower, "authors", {"kind": "Group", "name": "authors"}, "alpha")
        person = self.user("person")
        out = self.run_block(page, person, "Users")
        self.assertRegex(
            out, rf"logged in to {self.url} as {dex.USER} until .*\ncontexts in .*\n  tower/alpha\n"
        )
        self.assertRegex(self.run_block(page, person, "Users", 1), "tower/alpha +alpha +True +full")
        admin = ["--kubeconfig", str(self.folder / "admin.kubeconfig")]
        binding = ("create", "clusterrolebinding", "authors", "--clusterrole=tower:viewer", "--group=authors")
        made = run([str(kubectls()[-1]), *admin, *binding], timeout=60)
        self.assertEqual(made.returncode, 0, made.stderr)
        self.assertIn("alpha", self.run_block(page, person, "Options", 1))
        self.assertIn("deploy-shop", self.run_block(page, self.guide(page), "Pipelines and pods", 1))
        out = self.run_block(page, self.user("job"), "Pipelines and pods", 2)
        self.assertIn(f" as {pipeline} until ", out)
        self.assertIn("configmap/shop created", out)
        self.addCleanup(self.member.kubectl, "delete", "configmap", "shop")
        (session,) = re.findall(rf"(s-\w+) +{pipeline}", self.tower.tower("session", "list"))
        names = {"s-61d6419ba586808163cae32a": session, "jane@example.org": dex.USER}
        self.assertIn(dex.USER, self.run_block(page, self.guide(page, names), "Sessions"))
        self.assertIn("no login sessions", self.tower.tower("session", "list"))

    def hardening(self) -> None:
        """The page for the security review, and the queries of the audit log."""
        page = "hardening.md"
        for name in ("audit-policy.yaml", "audit-webhook.kubeconfig"):
            shutil.copy(self.folder / name, self.state)
        issuers = yaml.safe_load((self.folder / "authentication.yaml").read_text())
        running = (self.dex.url, self.issuer.url)  # doctor finds the others, which do not exist
        issuers["jwt"] = [each for each in issuers["jwt"] if each["issuer"]["url"] in running]
        (self.state / "authentication.yaml").write_text(yaml.safe_dump(issuers))
        shutil.copy(self.member.admin, self.state / "alpha.kubeconfig")
        guide = Guide(page, self.state, self.operator, self.names)
        with self.proxy(page, "The proxy", folder=self.state) as program:
            wait_for("the keys", lambda: program.output().count("its keys are in use") == 2, 30)
            self.tower.agents[0].wait_until_ready()
            jane = self.tower.person("alpha", "jane", "--group", "nobody")
            self.assertEqual(jane.get("/api/v1/secrets").status, 403)
            for heading, number in (
                ("The proxy", 1),
                ("TLS and ports", 0),
                ("Users", 0),
                ("Users", 1),
                ("Access to clusters", 0),
                ("Roles for Tower itself", 0),
                ("Keys, certificates and backups", 0),
                ("Agents and member clusters", 0),
                ("Upgrades and monitoring", 0),
            ):
                out = self.run_block(page, guide, heading, number)
                if (heading, number) != ("Users", 1):  # the output of block 0 is shown
                    for line in "".join(guide.fenced.get(heading, ())).splitlines():
                        self.assertIn(line, out)
            log = self.state / "audit.log"
            wait_for("the event", lambda: '"code":403' in log.read_text())
            self.assertIn('["jane","/clusters/alpha/api/v1/secrets"]', self.run_block(page, guide, "Audit"))
            shutil.copy(log, self.folder)
            out = self.run_block("audit-log.md", self.guide("audit-log.md"), "Events", 1)
            self.assertIn("list\t/clusters/alpha/api/v1/secrets\t403", out)
        self.assertTrue(self.hook.reviews, "the webhook got no events")

"""The pages about login, rights and audit, command by command, with real programs."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from textwrap import indent

import yaml
from twisted.trial.unittest import SkipTest, SynchronousTestCase

from tests.integration import dex
from tests.integration.access_pages import AccessPagesCase
from tests.integration.guide import DOCS, Guide
from tests.integration.member import kubectls
from tests.integration.person_login import follower
from tests.integration.programs import clean_environment, run, wait_for
from tests.integration.token_users import allow, anybody
from tower.cli.systemd.install import install
from tower.cli.systemd.machine import ServiceHost
from tower.cli.systemd.service_files import ServiceFiles

PAGES = (
    "agent-policy.md",
    "audit-log.md",
    "authentication.md",
    "authorization-modes.md",
    "authorization.md",
    "hardening.md",
    "login.md",
)
#: Commands in texts that are not advice: a problem of kubectl.
OUTSIDE = {"kubectl get --raw"}
ACCOUNT = "system:serviceaccount:build:ci"
PLACEHOLDER = "      -----BEGIN CERTIFICATE-----\n      …\n      -----END CERTIFICATE-----\n"


def quoted_ca(url: str, path: Path) -> str:
    """Return a URL with its CA, for YAML in one line."""
    return f"{url}, certificateAuthority: {json.dumps(path.read_text())}"


class TextTests(SynchronousTestCase):
    """The pages' texts."""

    def test_no_command_is_outside_of_blocks(self) -> None:
        """Commands with options are in blocks, which are run; text only repeats them."""
        blocks = [each for page in PAGES for each in Guide(page, Path(), {}, {}).blocks.values()]
        commands = "".join(text for each in blocks for text in each)
        for page in ("audit-log.md", "authentication.md", "authorization.md", "hardening.md"):
            text = re.sub(r"(?ms)^```.*?^```|^ {4}.*?$", "", (DOCS / page).read_text())
            inline = {
                " ".join(each.split())
                for each in re.findall(r"`((?:tower|kubectl|jq|curl)[ \n][^`]* -[^`]*)`", text)
            }
            self.assertEqual({each for each in inline if each not in commands} - OUTSIDE, set(), page)


class PageTests(AccessPagesCase):
    """The commands."""

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
        self.assertEqual(blocks - self.ran, set())

    def short_starts(self) -> None:
        """Proxies with the options of examples start."""
        key = self.member.place / "pki/service-accounts.crt"
        self.program("scp", f"test $1 = alpha:/etc/kubernetes/pki/sa.pub && cp '{key}' $2")
        self.run_block("authentication.md", self.guide("authentication.md"), "Service accounts")
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
            self.tower.add("alpha", self.member.agent, f"--allow-system-identity={ACCOUNT}")
            self.authorization()
            self.login()
        self.anonymous()

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
            out = self.run_block(page, guide, heading, number)
            self.assertIn(text, out)
            if heading == "Dry run":
                self.assertIn(guide.fenced[heading][0], guide.errors)
                self.assertIn(
                    "Warning: would change: group developers in cluster alpha: no-exec access -> no entry",
                    guide.errors,
                )
            elif heading == "Explanations":
                self.assertEqual(out.count("jane enters cluster alpha by access policy developers\n"), 3)
                self.assertIn("tower: jane must not create pods/exec in cluster alpha: access policy", out)
        self.facts(guide.fenced["Names in the cluster"][0])
        self.acting(guide)

    def acting(self, guide: Guide) -> None:
        """A user acts as a service account; the page names the agent's option."""
        page = "authorization.md"
        self.assertIn(f"--allow-system-identity {ACCOUNT}`", (DOCS / page).read_text())
        shutil.copy(self.member.admin, self.folder / "alpha.kubeconfig")
        self.member.kubectl("create", "namespace", "build")
        self.addCleanup(self.member.kubectl, "delete", "namespace", "build", "--wait=false")
        for number in (0, 1):
            self.assertIn("created", self.run_block(page, guide, "Service accounts", number))
        right = {"resource": "serviceaccounts", "name": "ci", "namespace": "build"}
        wait_for("the agent's right", lambda: self.agent_may_be(right), 20)
        self.assertIn("system:serviceaccounts:build", self.run_block(page, guide, "Service accounts", 2))

    def facts(self, rules: str) -> None:
        """The rules let an agent forward UIDs."""
        right = {"group": "authentication.k8s.io", "resource": "uids"}
        self.assertFalse(self.agent_may_be(right))
        self.member.kubectl("apply", "-f", "-", stdin=rules.encode())
        self.addCleanup(self.member.kubectl, "delete", "-f", "-", stdin=rules.encode())
        wait_for("the right", lambda: self.agent_may_be(right), 20)

    def agent_may_be(self, right: dict[str, str]) -> bool:
        """Return whether the agent's account may impersonate a resource."""
        user = "system:serviceaccount:tower-system:tower-agent"
        spec = {"user": user, "resourceAttributes": {"verb": "impersonate", **right}}
        kind = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview"}
        review = json.dumps({**kind, "spec": spec}).encode()
        answer = self.member.kubectl("create", "-f", "-", "-o", "json", stdin=review)
        return bool(json.loads(answer)["status"]["allowed"])

    def anonymous(self) -> None:
        """The files about anonymous users: they enter by a policy, for one path."""
        folder = self.folder / "anonymous"
        folder.mkdir()
        file, policy = self.guide("authentication.md").fenced["Anonymous users"]
        (folder / "authentication.yaml").write_text(file)
        with self.proxy("authentication.md", "Several issuers", folder=folder):
            self.tower.agents[0].wait_until_ready()
            client = anybody(self.tower)
            path = "/clusters/alpha/version"
            self.assertEqual(client.get(path).status, 403)
            admin = ["--kubeconfig", str(self.folder / "admin.kubeconfig")]
            done = run([str(kubectls()[-1]), *admin, "apply", "-f", "-"], stdin=policy.encode(), timeout=60)
            self.assertEqual(done.returncode, 0, done.stderr)
            wait_for("the agent", lambda: client.get(path).status != 503)
            self.assertIn(b"gitVersion", client.get(path).body)
            self.assertEqual(client.get("/clusters/alpha/api").status, 401)

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
        text = self.guide("authorization.md").command("Names in the cluster")
        policy = text.partition("\n")[2].partition("EOF\n")[0]
        (self.state / "policy.yaml").write_text(policy.replace("name: operators", "name: vendors"))
        self.rate_service()
        with self.proxy(page, "The proxy", folder=self.state) as program:
            wait_for("the keys", lambda: program.output().count("its keys are in use") == 2, 30)
            self.tower.agents[0].wait_until_ready()
            jane = self.tower.person("alpha", "jane", "--group", "nobody")
            self.assertEqual(jane.get("/api/v1/secrets").status, 403)
            joe, session = self.tower.person("alpha", "joe"), self.user("night")
            Guide.run(session, "Users")
            listed = self.tower.tower("credential", "list")
            (credential,) = re.findall(r"(c-\w+) .* joe .*", listed)
            names = {"c-0bd2cf3994b68279": credential, "jane@example.org": dex.USER}
            guide = Guide(page, self.state, self.operator, {**self.names, **names})
            for heading, number in (
                ("The proxy", 1),
                ("TLS and ports", 0),
                ("Users", 0),
                ("Users", 1),
                ("Users", 2),
                ("Access to clusters", 0),
                ("Roles for Tower itself", 0),
                ("Keys, certificates and backups", 0),
                ("The machine", 0),
                ("Agents and member clusters", 0),
                ("Agents and member clusters", 1),
                ("Upgrades and monitoring", 0),
            ):
                out = self.run_block(page, guide, heading, number)
                if number == (heading == "The proxy"):  # the block whose output is shown
                    for line in "".join(guide.fenced.get(heading, ())).splitlines():
                        self.assertIn(line, out)
                if (heading, number) == ("Access to clusters", 0):
                    self.assertIn("/vendors created (server dry run)", out)
            self.assertEqual(joe.get("/api").status, 401)
            self.assertIn("no login sessions", self.tower.tower("session", "list"))
            self.assertIn("resourceNames:\n  - dev\n  - ops\n", (self.state / "agent.yaml").read_text())
            log = self.state / "audit.log"
            wait_for("the event", lambda: '"code":403' in log.read_text())
            self.assertIn('["jane","/clusters/alpha/api/v1/secrets"]', self.run_block(page, guide, "Audit"))
            shutil.copy(log, self.folder)
            out = self.run_block("audit-log.md", self.guide("audit-log.md"), "Events", 1)
            self.assertIn("list\t/clusters/alpha/api/v1/secrets\t403", out)
            (credential,) = set(
                re.findall(r'"jane".*"cluster.kubesphere.io/credential":"(c-\w+)"', log.read_text())
            )
            names = {"c-0bd2cf3994b68279": credential}
            self.run_block("audit-log.md", self.guide("audit-log.md", names), "Events", 2)
            self.assertEqual(jane.get("/api").status, 401)
        self.assertTrue(self.hook.reviews, "the webhook got no events")

    def rate_service(self) -> None:
        """Let systemd-analyze rate the installed unit; systemd itself need not run."""
        root = self.folder / "root"
        executable = root / "opt/bin/tower-proxy"
        executable.parent.mkdir(parents=True)
        executable.touch(0o755)
        install(ServiceFiles("proxy", executable), ServiceHost(root))
        analyze, unit = shutil.which("systemd-analyze"), root / "etc/systemd/system/tower-proxy.service"
        if analyze is None:
            raise SkipTest("systemd-analyze is missing: install systemd")
        self.program(
            "systemd-analyze",
            f'test "$*" = "security tower-proxy" && exec {analyze} --no-pager security --offline=true {unit}',
        )

"""Trusted callers and a real API server: as users that they name, and with tokens of its accounts."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import yaml

from tests.integration import harness
from tests.integration.member import member
from tests.integration.old_peers import OldAgent
from tests.integration.person import Answer, Person
from tests.integration.programs import wait_for

REVIEWS = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
REVIEW = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
NAMESPACES = "/api/v1/namespaces"
JANE = {"Impersonate-User": "jane", "Impersonate-Group": "dev"}


class TrustedCallerTests(harness.TowerTestCase):
    """Clusters with one real API server: `alpha` allows tokens of its accounts, the others do not."""

    def setUp(self) -> None:
        """Connect an agent of each kind."""
        super().setUp()
        self.member = member()
        self.log = self.folder / "access.log"
        self.tower.proxy.stop()
        self.tower.proxy = self.tower.proxy_program(f"--access-log={self.log}")
        self.tower.start()
        self.account = f"Bearer {self.member.cluster_admin.token}"

    def caller(self, cluster: str, *options: str) -> Person:
        """Return a trusted caller of *cluster*, with a certificate."""
        path: Path = self.folder / f"caller-{cluster}.kubeconfig"
        path.unlink(missing_ok=True)
        words = ("trusted-caller", cluster, "--user", "kubesphere", "--output", str(path), *options)
        self.tower.tower(*words)
        return Person(path)

    def who_am_i(self, person: Person, **headers: str) -> tuple[int, str]:
        """Return the status, and the user that the API server sees."""
        sent = {"Content-Type": "application/json", **{k.replace("_", "-"): v for k, v in headers.items()}}
        answer = person.request(
            "POST", person.prefix + REVIEWS, body=json.dumps(REVIEW).encode(), headers=sent
        )
        value = json.loads(answer.body)
        if answer.status >= 300:
            return answer.status, str(value["message"])
        return answer.status, str(value["status"]["userInfo"]["username"])

    def get(self, person: Person, headers: dict[str, str]) -> Answer:
        """Request the namespaces."""
        return person.request("GET", person.prefix + NAMESPACES, headers=headers)

    def old_agent(self, cluster: str) -> None:
        """Add a cluster with an old agent, whose account may impersonate alone."""
        self.tower.tower("cluster", "add", cluster)
        words = shlex.split(self.tower.tower("join", cluster, "--protocol", "v1"))
        flags = dict(zip(words[1::2], words[2::2], strict=True))
        agent = OldAgent(
            self.folder,
            flags["--proxy-server"],
            flags["--name"],
            flags["--token"],
            self.member.service,
            ca=self.member.ca,
            bearer=self.member.least.token_file,
        )
        self.addCleanup(agent.program.stop)
        agent.program.start()
        agent.wait_until_ready()

    def acts_for_users(self, caller: Person) -> None:
        """It acts as itself without rights, and as users with theirs; never as the cluster itself."""
        self.assertEqual(self.who_am_i(caller), (201, "kubesphere"))
        self.assertEqual(self.who_am_i(caller, Impersonate_User="jane"), (201, "jane"))
        self.assertEqual(self.get(caller, {}).status, 403)
        self.assertEqual(self.get(caller, JANE).status, 200)
        self.assertEqual(self.get(caller, {"Impersonate-User": "jane"}).status, 403)
        masters = {"Impersonate-User": "jane", "Impersonate-Group": "system:masters"}
        self.assertEqual(self.get(caller, masters).status, 403)

    def test_new_agents(self) -> None:
        """Tokens of accounts pass where the owner allows them, and never for an agent with a certificate."""
        self.tower.add("alpha", self.member.agent, "--allow-member-tokens")
        self.tower.add("beta", self.member.agent)
        self.tower.add("gamma", self.member.admin, "--allow-member-tokens")
        alpha, beta, gamma = map(self.caller, ("alpha", "beta", "gamma"))
        self.acts_for_users(alpha)
        account = self.member.cluster_admin.user
        self.assertEqual(self.who_am_i(alpha, Authorization=self.account), (201, account))
        self.assertEqual(self.get(alpha, {"Authorization": self.account}).status, 200)
        self.assertEqual(self.get(alpha, {"Authorization": "Bearer wrong"}).status, 401)
        self.assertEqual(self.get(alpha, {"Authorization": self.account, **JANE}).status, 403)
        code, text = self.who_am_i(beta, Authorization=self.account)
        self.assertEqual((code, "--allow-member-tokens" in text), (403, True))
        code, text = self.who_am_i(gamma, Authorization=self.account)
        self.assertEqual((code, "client certificate" in text), (403, True))
        self.assertEqual(self.get(beta, JANE).status, 200)
        jane = self.tower.person("alpha", "jane", "--group", "dev")
        self.assertEqual(self.who_am_i(jane, Authorization=self.account), (201, "jane"))
        self.assertEqual(self.get(jane, {"Impersonate-User": "root"}).status, 403)
        self.assertIn("trusted-caller", self.tower.tower("credential", "list"))
        self.alone(jane)
        self.check_log(account)

    def alone(self, jane: Person) -> None:
        """KubeFed sends only an account's token, to the cluster's own port, once that is allowed there."""
        account = self.member.cluster_admin.user
        nobody = Person(self.without_credential(self.caller("alpha", "--via", "port").kubeconfig))
        self.assertEqual(self.who_am_i(nobody, Authorization=self.account)[0], 401)
        self.tower.tower("cluster", "set", "alpha", "--member-tokens", "allow-alone")
        review = {"Authorization": self.account}
        wait_for("the port", lambda: self.is_served(nobody, review))
        self.assertEqual(self.who_am_i(nobody, Authorization=self.account), (201, account))
        self.assertEqual(self.get(nobody, {**review, **JANE}).status, 403)
        forged = f"{self.account[:-6]}AAAAAA"
        self.assertEqual(self.who_am_i(nobody, Authorization=forged)[0], 401)
        self.assertEqual(self.get(nobody, {}).status, 401)
        self.assertEqual(self.get(jane, {}).status, 200)
        self.tower.tower("cluster", "set", "alpha", "--member-tokens", "reject")
        wait_for("the port", lambda: not self.is_served(nobody, review))

    def is_served(self, person: Person, headers: dict[str, str]) -> bool:
        """Return whether a request is served; the port is opened again when its setting changes."""
        try:
            return self.get(person, headers).status == 200
        except OSError:
            return False

    def without_credential(self, kubeconfig: Path) -> Path:
        """Return a copy of a kubeconfig without its user's credential."""
        config = yaml.safe_load(kubeconfig.read_text())
        config["users"][0]["user"] = {}
        path = self.folder / "nobody.kubeconfig"
        path.write_text(yaml.safe_dump(config))
        return path

    def check_log(self, account: str) -> None:
        """The access log has each request as what it was, and no token."""

        def lines() -> list[dict[str, str]]:
            return [json.loads(line) for line in self.log.read_text().splitlines()]

        def kinds() -> set[tuple[str | None, ...]]:
            keys = ("user", "role", "impersonatedUser", "memberToken")
            return {
                tuple(line.get(key) for key in keys) for line in lines() if line.get("cluster") == "alpha"
            }

        expected = {
            ("kubesphere", "trusted-caller", None, None),
            ("kubesphere", "trusted-caller", "jane", None),
            ("kubesphere", "trusted-caller", None, "true"),
            ("jane", None, None, None),
            ("system:anonymous", None, None, "true"),
        }
        wait_for("the lines", lambda: expected <= kinds())
        for text in (self.log.read_text(), self.tower.proxy.output(), self.tower.agents[0].program.output()):
            self.assertNotIn(self.member.cluster_admin.token, text)
        self.assertNotIn(account, self.log.read_text())

    def test_old_agent(self) -> None:
        """For an old agent the cluster's setting allows such tokens, and the proxy checks all of it."""
        self.old_agent("delta")
        caller = self.caller("delta", "--via", "port")
        self.acts_for_users(caller)
        code, text = self.who_am_i(caller, Authorization=self.account)
        self.assertEqual((code, "--member-tokens allow" in text), (403, True))
        self.tower.tower("cluster", "set", "delta", "--member-tokens", "allow")
        account = self.member.cluster_admin.user
        self.assertEqual(self.who_am_i(caller, Authorization=self.account), (201, account))
        self.assertEqual(self.get(caller, {"Authorization": self.account, **JANE}).status, 403)
        self.assertEqual(self.get(caller, {"Authorization": "Bearer wrong"}).status, 401)
        self.tower.tower("cluster", "set", "delta", "--member-tokens", "reject")
        self.assertEqual(self.who_am_i(caller, Authorization=self.account)[0], 403)
        self.assertEqual(self.who_am_i(caller), (201, "kubesphere"))

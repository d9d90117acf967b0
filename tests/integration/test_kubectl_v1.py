"""The main job with one old end: kubectl through KubeSphere Tower's agent or its proxy, to real clusters."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

from tests.integration import harness
from tests.integration.harness import Tower
from tests.integration.matrix import Matrix
from tests.integration.member import Member, kubectls, member
from tests.integration.old_peers import OldAgent, OldProxy
from tests.integration.person import Person
from tests.integration.ports import free_port
from tests.integration.programs import LOOPBACK, Program, script

NAMESPACE = "/api/v1/namespaces/kube-system"
TOKEN = "an-old-token-of-some-length"


class OldPeersTests(harness.TowerTestCase):
    """Two clusters: alpha has a Tower agent at our proxy and at an old one; beta has an old agent at ours."""

    def setUp(self) -> None:
        """Start both clusters."""
        super().setUp()
        self.alpha, self.beta = member(1), member(2)

    def old_agent(self, tower: Tower, cluster: str, member: Member, *, certificate: bool) -> OldAgent:
        """Add a cluster and start an old agent for it by its join line; return when it is in.

        :param certificate: whether it brings a certificate that may do everything, as one with a kubeconfig
            does, or the token of an account that may impersonate alone, as one with our manifest does.
        """
        tower.tower("cluster", "add", cluster)
        words = shlex.split(tower.tower("join", cluster, "--protocol", "v1"))
        flags = dict(zip(words[1::2], words[2::2], strict=True))
        agent = OldAgent(
            self.folder,
            flags["--proxy-server"],
            flags["--name"],
            flags["--token"],
            member.service,
            ca=member.ca,
            bearer=None if certificate else member.least.token_file,
            pair=member.admin_pair if certificate else None,
        )
        self.addCleanup(agent.program.stop)
        agent.program.start()
        agent.wait_until_ready()
        return agent

    def old_proxy(self, cluster: str, member: Member) -> OldProxy:
        """Start an old proxy, and an agent of ours for it, with an account that may do everything."""
        proxy = OldProxy(self.folder, cluster, TOKEN)
        self.addCleanup(proxy.program.stop)
        proxy.start()
        argv = [script("twistd"), "-n", "--pidfile=", "tower-agent", "--protocol=v1", f"--name={cluster}"]
        argv += [f"--proxy-server={proxy.url.replace('http', 'ws')}", "--insecure-v1-any-host-key"]
        argv += [f"--kubeconfig={member.cluster_admin.kubeconfig}"]
        argv += [f"--health-address={LOOPBACK}:{free_port()}"]
        agent = Program(f"agent-{cluster}", argv, self.folder, {"TOWER_TOKEN": TOKEN})
        self.addCleanup(agent.stop)
        agent.start()
        proxy.wait_for_agents()
        return proxy

    def matrices(self, kubectl: Path, via: str, auth: str, *, certificate: bool) -> None:
        """Run every kubectl operation through either old end, both at once."""
        self.old_agent(self.tower, "beta", self.beta, certificate=certificate)
        options = ("--via", via, "--auth", auth)
        jane = self.tower.kubeconfig("beta", "jane", "--group", "dev", *options)
        weak = self.tower.kubeconfig("beta", "jane", "--group", "team", *options)
        everybody = self.old_proxy("alpha", self.alpha).kubeconfig()
        since = self.beta.audit_size()
        ours = Matrix(self.folder, self.beta, kubectl, jane, weak)
        theirs = Matrix(self.folder, self.alpha, kubectl, everybody)
        for matrix in (ours, theirs):
            matrix.start()
            self.addCleanup(matrix.stop)
        self.assertEqual(ours.failed(), [], f"{kubectl} via {via} with {auth} to an old agent")
        self.assertEqual(theirs.failed(), [], f"{kubectl} through an old proxy to our agent")
        if not certificate:
            self.assertEqual(self.beta.acted(self.beta.least, since), {"jane"})

    def test_oldest(self) -> None:
        """The oldest kubectl here works, through the front door for an agent with a token."""
        self.matrices(kubectls()[0], "front-door", "cert", certificate=False)

    def test_newest(self) -> None:
        """The newest kubectl here works, through the cluster's port for an agent with a certificate."""
        self.matrices(kubectls()[-1], "port", "token", certificate=True)

    def test_each_to_its_own(self) -> None:
        """With a Tower agent and an old one, every port and path reaches its own cluster."""
        self.tower.add("alpha", self.alpha.agent)
        self.old_agent(self.tower, "beta", self.beta, certificate=False)
        uids = {name: self.uid(Person(member.admin)) for name, member in self.members().items()}
        self.assertNotEqual(uids["alpha"], uids["beta"])
        for name, uid in uids.items():
            for via in ("front-door", "port"):
                joe = self.tower.person(name, "joe", "--group", "dev", "--via", via)
                self.assertEqual(self.uid(joe), uid, f"{name} via {via}")
        joe = self.tower.person("alpha", "joe", "--group", "dev")
        refused = joe.request("GET", NAMESPACE, port=self.tower.cluster_port("beta"))
        self.assertIn(refused.status, (401, 403))

    def members(self) -> dict[str, Member]:
        """Return both clusters by name."""
        return {"alpha": self.alpha, "beta": self.beta}

    def uid(self, person: Person) -> str:
        """Return the unique ID of the cluster that a user reaches."""
        answer = person.get(NAMESPACE)
        self.assertEqual(answer.status, 200, answer.body)
        return str(json.loads(answer.body)["metadata"]["uid"])

"""Attack 17: authorities whose private keys KubeSphere Tower ships are refused, in options and in records."""

from __future__ import annotations

import base64
import json
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, cast

import yaml
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tests.fakes.certificates import NOW, PUBLISHED, authority, below, pair, rsa_authority
from tests.fakes.members import SPEC, by_token
from tests.integration.harness import TowerTestCase
from tests.integration.ports import free_port
from tests.integration.programs import LOOPBACK, Program, run
from tower.cloud.session import CloudSession
from tower.clusters import Clusters
from tower.clusters.member_credentials import MemberCredentials
from tower.errors import ConfigurationError, Invalid
from tower.kube.apiserver import APIServer, in_cluster_access
from tower.kube.kubeconfig import kubeconfig, load_kubeconfig, read_kubeconfig
from tower.kube.system_identities import SystemIdentities
from tower.net.tls import published_authorities
from tower.net.tls.ca_pinning import NotThePinnedCA, find_authority, key_hash, strict_context
from tower.net.tls.published_authorities import PUBLISHED_AUTHORITIES
from tower.nodes.apiserver import MemberAPIServer
from tower.nodes.dialer import NodeDialerOptions, create_node_dialer
from tower.reactor.interfaces import ISocketReactor
from tower.store import MemoryStore
from tower.trust.authorities import given_authority, own_authority
from tower.trust.pki import pem_of_key, public_key_hash
from tower.trust.statedir import StateDir
from tower.trust.vault import Vault
from tower.v1.config import AgentConfig
from tower.v1.member_credential import MemberCredential
from tower.web.api.writes.cluster_object import read_access


def config_of(ca_pem: bytes) -> str:
    """Return a kubeconfig whose server *ca_pem* signs."""
    return kubeconfig(server="https://10.0.0.1:6443", ca_pem=ca_pem, cluster="alpha", user="tower", token="t")


class EveryPositionTests(SynchronousTestCase):
    """Each function that reads authorities, with one of the test's whose key counts as published."""

    def setUp(self) -> None:
        """Publish the key of an authority; make one that it signed."""
        self.leaked = rsa_authority()
        self.signed = below(self.leaked)
        self.folder = Path(self.mktemp())
        self.folder.mkdir()
        self.file = self.folder / "bundle.crt"
        self.file.write_bytes(authority("good").pem + self.leaked.pem)

    def publish(self) -> None:
        """Count the key as published from now on."""
        known = PUBLISHED_AUTHORITIES | {public_key_hash(self.leaked.certificate)}
        self.patch(published_authorities, "PUBLISHED_AUTHORITIES", known)

    def refused(
        self, place: str, call: Callable[[], Any], error: type[Exception] = ConfigurationError
    ) -> None:
        """Check that *call* is refused only once the key is published, with the reason."""
        call()
        self.publish()
        text = str(self.assertRaises(error, call))
        self.assertIn("is public (KubeSphere Tower ships it)", text)
        self.assertIn(place, text)

    def test_literal(self) -> None:
        """The key that KubeSphere Tower ships with v0.2.0 and later is known, and the two older ones."""
        self.assertEqual(len(PUBLISHED_AUTHORITIES), 3)
        self.assertIn(
            "b06348278b7dcb17d4c00172e46ea37af0b2580e4e7297ed1b4735f135dbb5e9", PUBLISHED_AUTHORITIES
        )

    def test_given(self) -> None:
        """`--ca-cert` of the proxy: as what signs, and above it."""
        for number, each in enumerate((self.leaked, self.signed)):
            folder = self.folder / str(number)
            folder.mkdir()
            paths = pair(folder, each)
            given_authority(*paths, NOW)
            self.publish()
            error = str(self.assertRaises(ConfigurationError, given_authority, *paths, NOW))
            self.assertIn(f"--ca-cert {paths[0]}: ", error)
            self.assertIn("omit --ca-cert and --ca-key", error)
            self.patch(published_authorities, "PUBLISHED_AUTHORITIES", PUBLISHED_AUTHORITIES)

    def test_kept(self) -> None:
        """The authorities in the proxy's state directory."""
        state = StateDir(self.mktemp())
        for name in ("serving-ca", "users-ca"):
            state.write(f"{name}.pem", pem_of_key(self.leaked.key) + self.leaked.pem)
            own_authority(state, name, NOW)
        self.publish()
        for name in ("serving-ca", "users-ca"):
            error = str(self.assertRaises(ConfigurationError, own_authority, state, name, NOW))
            self.assertIn(str(state.path / f"{name}.pem"), error)
            self.assertIn("move the file away", error)
            self.assertIn("creates a new CA", error)

    def test_agent_file(self) -> None:
        """`--ca-cert` of the agent."""
        self.refused(f"--ca-cert {self.file}", lambda: strict_context(str(self.file)))

    def test_shown_chain(self) -> None:
        """`--ca-hash` of the agent: a chain with it is refused, also when another of the chain is pinned."""
        chain = self.signed.certificates
        for pinned in chain:
            self.patch(published_authorities, "PUBLISHED_AUTHORITIES", PUBLISHED_AUTHORITIES)
            self.refused(
                key_hash(self.leaked.certificate),
                partial(find_authority, chain, [key_hash(pinned)]),
                NotThePinnedCA,
            )

    def test_kubeconfig(self) -> None:
        """`certificate-authority-data` of any kubeconfig."""
        text = config_of(self.signed.pem).encode()
        self.refused("certificate-authority of cluster 'tower-alpha'", lambda: read_kubeconfig(text))

    def test_kubeconfig_of_files(self) -> None:
        """`certificate-authority` of any kubeconfig names the file."""
        config = yaml.safe_load(config_of(b""))
        config["clusters"][0]["cluster"] = {"server": "https://a", "certificate-authority": self.file.name}
        path = self.folder / "config"
        path.write_text(yaml.safe_dump(config))
        self.refused(f"kubeconfig {path}: certificate-authority bundle.crt", lambda: load_kubeconfig(path))
        self.assertRaises(ConfigurationError, APIServer.from_kubeconfig, str(path))

    def test_in_cluster(self) -> None:
        """A pod's service account."""
        (self.folder / "ca.crt").write_bytes(self.leaked.pem)
        environ = {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}
        self.refused(str(self.folder / "ca.crt"), lambda: in_cluster_access(environ, self.folder))

    def test_api_field(self) -> None:
        """`spec.connection.kubeconfig` of a cluster."""
        text = base64.b64encode(config_of(self.leaked.pem).encode()).decode()
        cluster = {"spec": {"connection": {"kubeconfig": text}}}
        self.refused("spec.connection.kubeconfig", lambda: read_access(cluster), Invalid)

    def test_database(self) -> None:
        """A kubeconfig that was stored before: requests to the cluster fail with the reason and the fix."""
        store = MemoryStore()
        accesses = MemberCredentials(store, Vault(Path(self.mktemp())))
        clusters = Clusters(store, None, Clock(), accesses)
        self.addCleanup(clusters.stop)
        access = read_kubeconfig(config_of(self.leaked.pem).encode())
        cluster = self.successResultOf(clusters.add("beta", ssh=SPEC, access=access))
        gate = MemberAPIServer(
            Clock(),
            cast(ISocketReactor, None),
            lambda: accesses.get(cluster),
            identities=SystemIdentities,
            why_not="",
        )
        gate.renew()
        self.assertEqual(gate.problem, "")
        self.publish()
        gate.renew()
        self.assertIn("is public (KubeSphere Tower ships it)", gate.problem)
        self.assertIn("cluster beta", gate.problem)
        self.assertEqual(gate.server, b"")
        self.successResultOf(clusters.change("beta", lambda cluster: cluster, access=by_token()))
        gate.renew()
        self.assertEqual(gate.problem, "")

    def test_old_agent(self) -> None:
        """The CA that an agent of KubeSphere Tower sends for its API server."""

        def received() -> MemberCredential:
            return MemberCredential(AgentConfig(kubernetes="10.0.0.1:443", authority=self.signed.pem))

        self.refused("the certificate authority that the agent sent", received)

    def test_clouds(self) -> None:
        """The file with a cloud's authorities: `ca-file`, `cacert` and `AWS_CA_BUNDLE` all come here."""
        self.refused(str(self.file), lambda: CloudSession(cast(Any, Clock()), ca_file=str(self.file)))

    def test_kubelets(self) -> None:
        """The file with the kubelets' authorities."""
        options = NodeDialerOptions(kubelet_authority=str(self.file))
        self.refused(str(self.file), lambda: create_node_dialer(options, cast(ISocketReactor, Clock())))


class ProgramTests(TowerTestCase):
    """Both programs, with the certificate that was in KubeSphere Tower's repository."""

    def setUp(self) -> None:
        """Write the published certificate, alone and behind another."""
        super().setUp()
        self.ca = self.folder / "published.crt"
        self.ca.write_bytes(authority("good").pem + PUBLISHED.encode())

    def refusal(self, program: Program, **environment: str) -> str:
        """Return the single line of a failed program."""
        done = run(program.argv, folder=self.folder, environment=environment)
        output = (done.stderr + done.stdout).decode()
        self.assertEqual(done.returncode, 1, output)
        self.assertEqual(len(output.strip().splitlines()), 1, output)
        self.assertIn("is public (KubeSphere Tower ships it)", output)
        return output

    def test_proxy(self) -> None:
        """The proxy does not start with it, as an option or in its state."""
        key = self.folder / "key"
        key.write_bytes(pem_of_key(authority().key))
        other = Path(tempfile.mkdtemp(dir=self.folder))
        self.tower.stop()
        options = (f"--ca-cert={self.ca}", f"--ca-key={key}", f"--state-dir={other}")
        self.assertIn(f"--ca-cert {self.ca}", self.refusal(self.tower.proxy_program(*options)))
        for name in ("serving-ca.pem", "users-ca.pem"):
            path = self.tower.state / name
            kept = path.read_bytes()
            path.write_bytes(kept + PUBLISHED.encode())
            self.assertIn(str(path), self.refusal(self.tower.proxy_program()))
            path.write_bytes(kept)
        self.tower.start()

    def test_agent(self) -> None:
        """The agent does not start with it: for the proxy, for its API server, from the environment."""
        self.tower.tower("cluster", "add", "alpha")
        good, bad = self.folder / "good.config", self.folder / "bad.config"
        good.write_text(config_of(authority().pem))
        bad.write_text(config_of(self.ca.read_bytes()))
        self.assertIn(str(bad), self.refusal(self.tower.agent("alpha", bad).program))
        agent = self.tower.agent("alpha", good)
        at = agent.argv.index("--ca-hash")
        words = agent.argv[:at] + agent.argv[at + 2 :]
        agent.program.argv = [*words, f"--ca-cert={self.ca}"]
        self.assertIn(f"--ca-cert {self.ca}", self.refusal(agent.program))
        agent.program.argv = words
        self.assertIn(str(self.ca), self.refusal(agent.program, SSL_CERT_FILE=str(self.ca)))
        for digest in PUBLISHED_AUTHORITIES:
            agent.program.argv = [*words, f"--ca-hash=sha256:{digest}"]
            done = run(agent.program.argv, folder=self.folder)
            self.assertNotEqual(done.returncode, 0)
            self.assertIn(digest, (done.stdout + done.stderr).decode())

    def test_api(self) -> None:
        """The API does not accept a member's kubeconfig with it, and the command does not send it."""
        bad = self.folder / "bad.config"
        bad.write_text(config_of(self.ca.read_bytes()))
        ssh: dict[str, Any] = {
            "user": "tower",
            "keyFile": str(self.folder / "id"),
            "nodes": [f"{LOOPBACK}:{free_port()}"],
        }
        connection = {
            "type": "ssh",
            "ssh": ssh,
            "kubeconfig": base64.b64encode(bad.read_bytes()).decode(),
        }
        body = json.dumps({"metadata": {"name": "beta"}, "spec": {"connection": connection}}).encode()
        path = "/apis/cluster.kubesphere.io/v1alpha1/clusters"
        answer = self.tower.admin().request(
            "POST", path, body=body, headers={"Content-Type": "application/json"}
        )
        self.assertEqual(answer.status, 422, answer.body)
        self.assertIn(b"is public (KubeSphere Tower ships it)", answer.body)
        words = ["--ssh-user", "tower", "--ssh-keyfile", str(self.folder / "id")]
        code, _, error = self.tower.try_tower(
            "cluster", "add", "beta", "--type", "ssh", *words, "--member-kubeconfig", str(bad)
        )
        self.assertNotEqual(code, 0)
        self.assertIn(f"kubeconfig {bad}: certificate-authority", error)

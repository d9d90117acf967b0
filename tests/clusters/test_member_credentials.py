"""The sealed credentials for member clusters."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import cast

from attrs import evolve
from twisted.internet import reactor as global_reactor
from twisted.internet.interfaces import IReactorFromThreads
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase, TestCase

from tests.fakes.certificates import NOW
from tests.fakes.members import AUTHORITY, SERVER, SPEC, TOKEN, by_certificate, by_token, jwt, secrets_of
from tower.clusters import Clusters
from tower.clusters.cluster import Cluster, MemberFacts
from tower.clusters.member_credentials import LIMIT, MemberCredentials, check_access
from tower.errors import ConfigurationError, Invalid
from tower.kube.kubeconfig import KubeAccess
from tower.store import MemoryStore
from tower.store.kinds import MEMBER_ACCESS
from tower.store.records import StoreFailed
from tower.store.sqlite import SQLiteStore
from tower.trust.vault import Vault, new_key


class MemberAccessesTests(SynchronousTestCase):
    """A store in memory, and a vault on disk."""

    def setUp(self) -> None:
        """Make both."""
        self.store = MemoryStore()
        self.path = Path(self.mktemp())
        self.accesses = MemberCredentials(self.store, Vault(self.path))
        self.clusters = Clusters(self.store, None, Clock(), self.accesses)
        self.addCleanup(self.clusters.stop)

    def added(self, access: KubeAccess, name: str = "beta") -> Cluster:
        """Add a cluster."""
        return self.successResultOf(self.clusters.add(name, ssh=SPEC, access=access))

    def test_kept(self) -> None:
        """A stored credential is read back completely, also after a restart."""
        whole = evolve(by_certificate(), tls_server_name="kubernetes.default", insecure=True)
        for number, access in enumerate((by_token(), by_certificate(), whole, KubeAccess("http://h:8080"))):
            cluster = self.added(access, f"c{number}")
            self.assertEqual(self.accesses.get(cluster), access)
            again = MemberCredentials(self.store, Vault(self.path))
            self.assertEqual(again.get(cluster), access)

    def test_token_file(self) -> None:
        """The token file's content is stored, not its path."""
        path = Path(self.mktemp())
        path.write_text("from-the-file\n")
        cluster = self.added(evolve(by_token(), token_file=path))
        self.assertEqual(self.accesses.get(cluster), by_token("from-the-file"))

    def test_facts(self) -> None:
        """Public facts: server, kind and expiry."""
        for number, (access, facts) in enumerate(
            (
                (by_token(), MemberFacts(SERVER, "token")),
                (by_token(jwt(NOW)), MemberFacts(SERVER, "token", NOW)),
                (by_certificate(600), MemberFacts(SERVER, "certificate", NOW + 600)),
                (KubeAccess("https://h"), MemberFacts("https://h", "none")),
            )
        ):
            cluster = self.added(access, f"c{number}")
            self.assertEqual(self.accesses.facts(cluster), facts)

    def test_none(self) -> None:
        """A cluster that has none has no facts, and the error names the cure."""
        cluster = self.successResultOf(self.clusters.add("alpha"))
        self.assertIsNone(self.accesses.facts(cluster))
        error = self.assertRaises(ConfigurationError, self.accesses.get, cluster)
        self.assertIn("tower cluster set alpha --member-kubeconfig", str(error))

    def test_key_lost_or_foreign(self) -> None:
        """Without the right key nothing opens but the facts, the error has the cure, and the cure works."""
        cluster = self.added(by_token())
        for content in (None, new_key(), b"rubbish"):
            self.path.unlink()
            if content is not None:
                self.path.write_bytes(content)
                self.path.chmod(0o600)
            error = str(self.assertRaises(ConfigurationError, self.accesses.get, cluster))
            self.assertIn(str(self.path), error)
            # with rubbish in the file nothing can be sealed either
            self.assertEqual("tower cluster set beta --member-kubeconfig" in error, content != b"rubbish")
            self.assertNotIn("\n", error)
            facts = self.accesses.facts(cluster)
            assert facts is not None
            self.assertEqual(facts.server, SERVER)
            if content is None:
                self.path.touch()
        self.path.unlink()
        new = by_token("another-token")
        self.successResultOf(self.clusters.change("beta", lambda same: same, access=new))
        self.assertEqual(self.accesses.get(cluster), new)

    def test_watched(self) -> None:
        """Watches receive clusters whose credential was set or replaced, but not removed."""
        heard: list[str] = []
        watch = self.accesses.watch(heard.append)
        self.added(by_token())
        self.successResultOf(self.clusters.change("beta", lambda same: same, access=by_certificate()))
        self.successResultOf(self.clusters.remove("beta"))
        watch.stop()
        self.assertEqual(heard, ["beta", "beta"])
        self.assertEqual(dict(self.store.snapshot(MEMBER_ACCESS)), {})

    def test_too_large(self) -> None:
        """More than a kubeconfig ever holds is refused."""
        access = evolve(by_token(), ca_data=AUTHORITY * (LIMIT // 400))
        error = self.assertRaises(Invalid, self.accesses.write_operations, "u", "beta", access)
        self.assertIn("larger than", str(error))

    def test_resealed(self) -> None:
        """After a rotation all credentials are sealed with the new key; lost ones are unchanged."""
        first, second = self.added(by_token()), self.added(by_certificate(), "gamma")
        lost = self.added(by_token(), "lost")
        record = self.store.get(MEMBER_ACCESS, lost.uid)
        assert record is not None
        foreign = Vault(self.mktemp()).seal(b"x", lost.uid)
        self.successResultOf(self.store.update(MEMBER_ACCESS, lost.uid, {**record.value, "sealed": foreign}))
        key = self.path.read_bytes()
        self.path.write_bytes(new_key() + b"\n" + key)
        self.assertEqual(self.successResultOf(self.accesses.sealed.reseal()), 2)
        self.assertEqual(self.successResultOf(self.accesses.sealed.reseal()), 0)
        self.path.write_bytes(self.path.read_bytes().replace(key, b""))
        self.assertEqual(self.accesses.get(first), by_token())
        self.assertEqual(self.accesses.get(second).server, SERVER)
        self.assertRaises(ConfigurationError, self.accesses.get, lost)

    def test_resealing_on_a_full_disk(self) -> None:
        """A credential that cannot be written stays sealed with the old key, and opens."""
        cluster = self.added(by_token())
        self.path.write_bytes(new_key() + b"\n" + self.path.read_bytes())
        self.successResultOf(self.store.stop())
        self.assertEqual(self.successResultOf(self.accesses.sealed.reseal()), 0)
        self.assertEqual(self.accesses.get(cluster), by_token())

    def test_no_secret_in_memory_dumps(self) -> None:
        """Neither records nor operations nor errors show anything of it."""
        for access in (by_token(), by_certificate()):
            operations = self.accesses.write_operations("u", "beta", access)
            text = repr(operations) + repr(access) + json.dumps([dict(op.value) for op in operations])  # type: ignore[union-attr]
            for secret in secrets_of(access):
                self.assertNotIn(secret, text.encode())


class CheckTests(SynchronousTestCase):
    """Access that cannot be used for a cluster of type ssh."""

    def test_refused(self) -> None:
        """Each is refused by a text that names the cure and nothing secret."""
        token, certificate = by_token(), by_certificate()
        cases: Sequence[tuple[KubeAccess, str]] = (
            (evolve(token, proxy_url="http://p:3128"), "proxy-url"),
            (evolve(token, server="http://10.0.0.1:6443"), "use https"),
            (evolve(certificate, server="http://10.0.0.1:6443"), "use https"),
            (evolve(token, server="https://é:6443"), "is not a URL"),
            (evolve(token, token=f"{TOKEN} {TOKEN}"), "printable"),
            (evolve(token, token=TOKEN + "é"), "printable"),
            (evolve(token, token_file=Path("/nowhere/token")), "/nowhere/token"),
            (evolve(token, ca_data=b"hush"), "certificate authority"),
            (evolve(certificate, client_key=by_certificate().client_key), "matching pair"),
            (evolve(certificate, client_certificate=b"hush"), "matching pair"),
        )
        for access, text in cases:
            error = str(self.assertRaises(Invalid, check_access, access))
            self.assertIn(text, error)
            self.assertIn("spec.connection.kubeconfig", error)
            self.assertNotIn("hush", error)
            self.assertNotIn("\n", error)

    def test_without_credential(self) -> None:
        """Plain http is for those that need none."""
        self.assertEqual(check_access(KubeAccess("http://h:8080")).credential, "none")


class OnDiskTests(TestCase):
    """The database alone reveals no secret."""

    async def test_no_secret_in_the_database(self) -> None:
        """Neither token nor key is in the file, its log, or its copy, as they are or in base64."""
        folder = Path(self.mktemp())
        folder.mkdir()
        reactor = cast(IReactorFromThreads, global_reactor)
        store = SQLiteStore(reactor, folder / "tower.db")
        self.addCleanup(store.stop)
        accesses = MemberCredentials(store, Vault(folder / "secrets.key"))
        clusters = Clusters(store, None, Clock(), accesses)
        self.addCleanup(clusters.stop)
        kept = {"beta": by_token(), "gamma": by_certificate()}
        for name, access in kept.items():
            await clusters.add(name, ssh=SPEC, access=access)
        await clusters.change("beta", lambda same: same, access=by_token("hush-second"))
        files = [path for path in folder.iterdir() if path.name != "secrets.key"]
        self.assertIn("tower.db-wal", [path.name for path in files])
        found = b"".join(path.read_bytes() for path in files)
        self.assertIn(SERVER.encode(), found)  # so what is looked through is the right thing
        for access in (*kept.values(), by_token("hush-second")):
            for secret in secrets_of(access):
                self.assertNotIn(secret, found)
        self.assertEqual(accesses.get(clusters.require("gamma")), kept["gamma"])

    async def test_store_fails(self) -> None:
        """When nothing can be written, neither cluster nor credential is there."""
        store = MemoryStore()
        accesses = MemberCredentials(store, Vault(self.mktemp()))
        clusters = Clusters(store, None, Clock(), accesses)
        await store.stop()
        with self.assertRaises(StoreFailed):
            await clusters.add("beta", ssh=SPEC, access=by_token())
        self.assertEqual((clusters.list(), dict(store.snapshot(MEMBER_ACCESS))), ([], {}))

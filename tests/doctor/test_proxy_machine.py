"""Tests for `tower.doctor.proxy_machine`."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from tests.doctor.kit import SERVING, DoctorTestCase, chain_of
from tests.fakes.certificates import DAY, NOW, authority
from tower.conch.transport.keys import load_or_create
from tower.control.state_files import HOSTED
from tower.doctor.findings import Finding
from tower.doctor.proxy_machine import examine_proxy
from tower.kube.kubeconfig import kubeconfig
from tower.store.records import Create
from tower.store.sqlite_file import SQLiteFile
from tower.trust.authorities import own_authority
from tower.trust.serving_certificate import ServingCertificate
from tower.trust.statedir import StateDir
from tower.trust.vault import Vault
from tower.web.api.discovery import git_version

CLUSTERS = "/apis/cluster.kubesphere.io/v1alpha1/clusters"


class ProxyTestCase(DoctorTestCase):
    """Test case with the state directory of a proxy that ran."""

    def setUp(self) -> None:
        """Create the state directory."""
        super().setUp()
        self.path = Path(self.mktemp())
        self.state = StateDir(self.path)
        self.addCleanup(self.state.close)
        users, serving = (own_authority(self.state, name, NOW) for name in ("users-ca", "serving-ca"))
        ServingCertificate(self.state, serving, users, ["tower.example", "localhost"], lambda: NOW)
        load_or_create(self.state, "ssh_host_ed25519_key")
        self.file = SQLiteFile(str(self.path / "tower.db"), 1 << 30)
        self.file.load()
        self.record("agentkeys", "a", {"cluster": "alpha"})
        self.seal(expires=None)

    def record(self, kind: str, name: str, value: dict[str, object]) -> None:
        """Store a record."""
        outcome = self.file.write([Create(kind, name, value)])
        self.assertIsNone(outcome.error)
        self.file.close()

    def seal(self, expires: float | None, name: str = "alpha") -> None:
        """Store a credential of a cluster."""
        sealed = Vault(self.path / "secrets.key").seal(b"{}", name)
        value: dict[str, object] = {
            "cluster": name,
            "cluster_uid": name,
            "expires": expires,
            "sealed": sealed,
        }
        self.record("memberaccess", name, value)

    def look(self, now: float = NOW) -> dict[str, Finding]:
        """Return the findings."""
        return self.found(examine_proxy(self.network, self.path, {}, lambda: now))


class StoppedTests(ProxyTestCase):
    """The state directory of a proxy that does not run."""

    def test_sound(self) -> None:
        """Only the stopped proxy is a warning, and nothing is created."""
        before = sorted(self.path.iterdir())
        findings = self.look()
        warned = [name for name, each in findings.items() if each.verdict.grade != "ok"]
        self.assertEqual(warned, ["proxy"])
        self.assertIn("tower-proxy is not running -> start it", findings["proxy"].line)
        self.assertEqual(sorted(self.path.iterdir()), before)
        self.assertIn("tower.example", findings["published names"].line)

    def test_new(self) -> None:
        """A directory without files has no failure: the proxy creates them."""
        self.path = Path(self.mktemp())
        self.path.mkdir(mode=0o700)
        self.assertEqual(self.grades(self.look()), {"ok", "warn"})

    def test_host_cluster(self) -> None:
        """The state directory of a proxy whose records are in a host cluster has no database."""
        (self.path / "tower.db").unlink()
        (self.path / "host-cluster").write_text("Secret kubesphere-system/tower-state")
        findings = self.look()
        self.assertEqual(findings["database"].verdict.grade, "ok")
        self.assertIn("host cluster", findings["database"].line)

    def test_missing_directory(self) -> None:
        """A missing directory is the only failure, and everything in it is skipped."""
        self.path = self.path / "none"
        findings = self.look()
        self.assertIn("does not exist", self.failed(findings))
        self.assertEqual(findings["host key"].verdict.grade, "skip")

    def test_host_key(self) -> None:
        """A missing key is a failure if agents know it, and so is a damaged one."""
        key = self.path / "ssh_host_ed25519_key"
        key.unlink()
        line = self.failed(self.look())
        self.assertIn(f"SSH host key {key} is missing, and 1 enrolled agent", line)
        self.assertIn(" -> restore it from a backup; without a backup, set --new-host-key", line)
        self.assertIn("every agent has to join again", line)
        key.write_text("x")
        key.chmod(0o600)
        self.assertIn("not an unencrypted OpenSSH private key", self.failed(self.look()))

    def test_users_ca(self) -> None:
        """A missing CA of users is a failure once it has signed a certificate."""
        (self.path / "users-ca.pem").unlink()
        self.assertNotIn("users-ca.pem", self.look())
        valid: dict[str, object] = {
            "user": "jane",
            "kind": "cert",
            "revoked_at": None,
            "ended": False,
            "expires": NOW + 99,
        }
        self.record("credentials", "c-1", valid)
        line = self.failed(self.look())
        self.assertIn(f"users-ca.pem: CA {self.path / 'users-ca.pem'} is missing, and 1 client", line)
        self.assertIn(" -> restore it from a backup; without a backup, set --new-ca", line)

    def test_database(self) -> None:
        """A missing or damaged database, and that of a newer Tower, are failures."""
        database = self.path / "tower.db"
        good = database.read_bytes()
        database.unlink()
        self.assertIn("with all clusters and credentials is missing", self.failed(self.look()))
        database.write_bytes(good[:100] + b"x" * 4000 + good[4100:])
        self.assertIn("database: ", self.failed(self.look()))
        database.write_bytes(good)
        with sqlite3.connect(database) as connection:
            connection.execute("PRAGMA user_version = 99")
        connection.close()
        self.assertIn("schema 99", self.failed(self.look()))

    def test_secrets_key(self) -> None:
        """A missing key is a warning, since it may be elsewhere; a wrong one is a failure."""
        key = self.path / "secrets.key"
        good = key.read_bytes()
        key.unlink()
        verdict = self.look()["secrets key"].verdict
        self.assertEqual(verdict.grade, "warn")
        self.assertIn("--secrets-key-file", verdict.seen)
        Vault(key).seal(b"", "")
        self.assertIn("secrets key: ", self.failed(self.look()))
        key.write_bytes(good)
        key.chmod(0o644)
        self.assertIn("chmod 600", self.failed(self.look()))

    def test_expiry(self) -> None:
        """Each certificate that has ended is named by its file."""
        findings = self.look(NOW + 200 * DAY)
        self.assertIn("serving.pem: it expired on", self.failed(findings))
        self.assertEqual(self.look(NOW + 80 * DAY)["serving.pem"].verdict.grade, "warn")
        (self.path / "users-ca.pem").write_bytes(b"x")
        self.assertIn("users-ca.pem: ", self.failed(self.look()))

    def test_credentials(self) -> None:
        """The credential that ends first is named with its cluster."""
        self.seal(NOW + 200 * DAY, "beta")
        self.assertEqual(self.look()["credentials of clusters"].verdict.grade, "ok")
        self.seal(NOW - 1, "gamma")
        line = self.failed(self.look())
        self.assertIn("the credential of cluster gamma expired", line)
        self.assertIn("tower cluster set gamma --member-kubeconfig FILE", line)


class RunningTests(ProxyTestCase):
    """A proxy that runs."""

    def setUp(self) -> None:
        """Hold the lock, and answer as the front door."""
        super().setUp()
        self.state.lock()
        text = kubeconfig(
            server="https://tower.example:8443", ca_pem=SERVING.pem, cluster="", user="root", token="t0ken"
        )
        self.state.write("admin.kubeconfig", text.encode())
        self.network.answers["GET", "/version"] = (200, {"gitVersion": git_version()})
        self.network.answers["GET", CLUSTERS] = (200, {"items": []})
        self.network.answers["GET", "/metrics"] = (200, "tower_up 1.0\n")

    def test_sound(self) -> None:
        """Nothing is wrong."""
        findings = self.look()
        self.assertEqual([each.line for each in findings.values() if each.verdict.grade != "ok"], [])
        for name in ("proxy", "login", "version", "clusters", "published name"):
            self.assertIn(name, findings)

    def test_standby(self) -> None:
        """A standby needs no kubeconfig; its leader is named."""
        self.state.remove("admin.kubeconfig")
        (self.path / "tower.db").unlink()
        (self.path / "secrets.key").unlink()
        self.state.write(HOSTED, b"standby: tower-1 holds the Lease kubesphere-system/tower\n")
        findings = self.look()
        self.assertEqual([each.line for each in findings.values() if each.verdict.grade != "ok"], [])
        self.assertIn("standby: tower-1 holds the Lease kubesphere-system/tower", findings["proxy"].line)
        self.assertIn("host cluster", findings["secrets key"].line)
        self.assertNotIn("administrator's kubeconfig", findings)

    def test_starting_leader(self) -> None:
        """A leader that waits for its host cluster does not serve yet."""
        self.state.remove("admin.kubeconfig")
        self.state.write(HOSTED, b"leader: this proxy holds the Lease kubesphere-system/tower\n")
        finding = self.look()["front door"]
        self.assertEqual(finding.verdict.seen, "tower-proxy does not serve yet")
        self.assertIn("see the checks of the host cluster", finding.verdict.cure)

    def test_version(self) -> None:
        """Another version is a warning."""
        self.network.answers["GET", "/version"] = (200, {"gitVersion": "v0.1.0"})
        self.assertIn("the proxy is v0.1.0", self.look()["version"].verdict.seen)

    def test_clusters(self) -> None:
        """Clusters that are not available are named, except disabled ones."""
        items = [
            {
                "metadata": {"name": name},
                "spec": {"enable": name != "off"},
                "status": {"conditions": [{"type": "Available", "status": status}]},
            }
            for name, status in (("alpha", "True"), ("beta", "False"), ("off", "False"))
        ]
        self.network.answers["GET", CLUSTERS] = (200, {"items": items})
        line = self.look()["clusters"].line
        self.assertEqual(line, "warn  clusters: 1 of 2 are available; not beta -> tower doctor beta")

    def test_given_certificate(self) -> None:
        """The certificate of --tls-cert-file is one of the proxy's metrics."""
        self.assertIn("none: --tls-cert-file is not set", self.look()["given certificate"].line)
        for days, grade in ((60, "ok"), (10, "warn"), (-1, "FAIL")):
            line = f'tower_certificate_expiry_timestamp_seconds{{name="tls-cert-file"}} {NOW + days * 86400}'
            self.network.answers["GET", "/metrics"] = (200, f"# HELP x\n{line}\ntower_up 1.0\n")
            line = self.look()["given certificate"].line
            self.assertTrue(line.startswith(grade), line)
            self.assertEqual("renew the files of --tls-cert-file" in line, grade != "ok")

    def test_published_name(self) -> None:
        """A published name without an address is a failure, and the front door's name check too."""
        self.network.addresses.clear()
        self.network.addresses["localhost"] = ["127.0.0.1"]
        text = kubeconfig(
            server="https://localhost:8443", ca_pem=SERVING.pem, cluster="", user="root", token="t0ken"
        )
        self.state.write("admin.kubeconfig", text.encode())
        self.network.certificates = chain_of("localhost")
        line = self.failed(self.look())
        self.assertIn("published name: tower.example has no address -> add a DNS record", line)

    def test_no_kubeconfig(self) -> None:
        """Without the administrator's kubeconfig the front door is not checked."""
        self.state.remove("admin.kubeconfig")
        self.assertIn("administrator's kubeconfig: ", self.failed(self.look()))

    def test_rejected(self) -> None:
        """A rejected credential ends the course."""
        self.network.answers["GET", "/version"] = (401, {"message": "it expired"})
        findings = self.look()
        line = 'login: HTTP status 401: the server reports: "it expired" -> restart tower-proxy'
        self.assertIn(line, self.failed(findings))
        self.assertEqual(findings["clusters"].verdict.grade, "skip")

    def test_only_loopback(self) -> None:
        """A proxy that publishes nothing is a warning."""
        self.state.remove("serving.pem")
        ServingCertificate(self.state, authority("s"), authority("u"), ["localhost"], lambda: NOW)
        self.assertIn("--publish-service-address", self.look()["published names"].line)

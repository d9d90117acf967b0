"""Tests for `tower.web.api.issuer` and its resources."""

from __future__ import annotations

import base64
import hashlib
from typing import Any

import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from twisted.internet.defer import Deferred

from tests.fakes.api import BASE, HOST_KEY, ApiTestCase, decoded
from tests.fakes.certificates import NOW
from tower.errors import Conflict
from tower.kube.timestamps import timestamp
from tower.web.api.issuer import Published
from tower.web.outcome import Response

CLUSTERS = f"{BASE}/clusters"
TOKENS = f"{CLUSTERS}/alpha/jointokens"
KUBECONFIGS = f"{CLUSTERS}/alpha/kubeconfigs"
JANE = {"spec": {"user": "jane", "groups": ["dev", "qa"]}}


class JoinTokenTests(ApiTestCase):
    """Join tokens."""

    def test_mint(self) -> None:
        """The answer has all parameters for an agent, and the token is valid."""
        self.add("alpha")
        outcome = self.ask("POST", TOKENS, {"spec": {"ttl": "2h", "uses": 2}})
        assert isinstance(outcome, Response)
        self.assertEqual((outcome.code, dict(outcome.headers)[b"Cache-Control"]), (201, b"no-store"))
        status = decoded(outcome)["status"]
        self.assertEqual(status["proxyServer"], "wss://tower.example.org:8443")
        self.assertEqual(status["hostKeys"], [HOST_KEY])
        self.assertEqual(status["caHash"], self.serving.hash)
        self.assertEqual(status["expirationTimestamp"], timestamp(NOW + 7200))
        for key in ("one", "two"):
            self.successResultOf(self.tokens.enrol("alpha", status["token"], key, b"blob"))

    def test_secret_is_in_no_repr(self) -> None:
        """Neither the answer nor the invitation shows the token in a log."""
        self.add("alpha")
        outcome = self.ask("POST", TOKENS, {})
        self.assertNotIn(decoded(outcome)["status"]["token"], repr(outcome))

    def test_refused(self) -> None:
        """Each invalid value is rejected with the valid ones."""
        self.add("alpha")
        for spec, text in (
            ({"ttl": "soon"}, "'soon'"),
            ({"ttl": 5}, "5"),
            ({"ttl": "31d"}, "must be at most 30d (the limit for join tokens)"),
            ({"ttl": "0"}, "ttl 0s: must be more than 0"),
            ({"uses": 0}, "uses 0"),
            ({"uses": True}, "spec.uses"),
            ({"frob": 1}, "ttl, uses"),
            ({"protocol": "v3"}, "v2 or v1"),
            ({"token": "t" * 16}, "protocol v1"),
            ([1], "spec"),
        ):
            refusal = self.refused(422, "POST", TOKENS, {"spec": spec})
            self.assertIn(text, str(refusal))
        self.refused(400, "POST", TOKENS, {"kind": "Pod"})
        self.refused(400, "POST", TOKENS, {}, dryRun="All")
        self.refused(405, "GET", TOKENS)
        self.refused(404, "POST", f"{TOKENS}/x", {})
        self.assertEqual(dict(self.store.snapshot("jointokens")), {})

    def test_no_cluster(self) -> None:
        """Without the cluster there is no token."""
        self.assertEqual(self.refused(404, "POST", TOKENS, {}).details["kind"], "clusters")


class ImportURLTests(ApiTestCase):
    """Join tokens with ``spec.manifest``."""

    def setUp(self) -> None:
        """Add one cluster."""
        super().setUp()
        self.add("alpha")

    def test_url(self) -> None:
        """The answer has the URL and the CA, and no token; the URL leads to a manifest."""
        outcome = self.ask("POST", TOKENS, {"spec": {"manifest": {}, "ttl": "10m"}})
        assert isinstance(outcome, Response)
        self.assertEqual((outcome.code, dict(outcome.headers)[b"Cache-Control"]), (201, b"no-store"))
        status = decoded(outcome)["status"]
        self.assertEqual(set(status), {"importURL", "certificateAuthority", "expirationTimestamp"})
        self.assertEqual(status["certificateAuthority"].encode(), self.serving.pem)
        base, secret = status["importURL"].rsplit("/", 1)
        self.assertEqual(base, "https://tower.example.org:8443/import")
        self.assertNotIn(secret, repr(outcome))
        fetching = Deferred.fromCoroutine(self.issuer.import_manifest(secret))
        cluster, manifest = self.successResultOf(fetching)
        self.assertEqual(cluster, "alpha")
        self.assertIn("wss://tower.example.org:8443", manifest)

    def test_refused(self) -> None:
        """Invalid settings and values are rejected with their field, and nothing is stored."""
        for spec, text in (
            ({"manifest": []}, "spec.manifest: must be an object"),
            ({"manifest": {"replica": 1}}, "spec.manifest.replica: unknown"),
            ({"manifest": {"impersonateGroups": ["system:masters"]}}, "spec.manifest.impersonateGroups"),
            ({"manifest": {}, "ttl": "31d"}, "must be at most 30d"),
            ({"manifest": {}, "uses": 0}, "uses 0"),
            ({"manifest": {}, "protocol": "v1"}, "spec.manifest"),
        ):
            self.assertIn(text, str(self.refused(422, "POST", TOKENS, {"spec": spec})))
        self.assertEqual(dict(self.store.snapshot("jointokens")), {})


class V1JoinTokenTests(ApiTestCase):
    """Tokens for agents of kubesphere-v1."""

    def setUp(self) -> None:
        """Add one cluster."""
        super().setUp()
        self.add("alpha")

    def test_mint(self) -> None:
        """The answer has all parameters for a v1 agent, and the token is valid."""
        outcome = self.ask("POST", TOKENS, {"spec": {"protocol": "v1"}})
        assert isinstance(outcome, Response)
        self.assertEqual((outcome.code, dict(outcome.headers)[b"Cache-Control"]), (201, b"no-store"))
        status = decoded(outcome)["status"]
        self.assertEqual(self.v1_tokens.check("alpha", status["token"]), status["agent"])
        self.assertEqual(status["proxyServer"], "http://tower.example.org:8080")
        self.assertEqual(status["secureProxyServer"], "https://tower.example.org:8443")
        self.assertEqual(status["certificateAuthority"].encode(), self.serving.pem)
        self.assertNotIn(status["token"], repr(outcome))

    def test_import(self) -> None:
        """An existing token of agents is registered."""
        status = decoded(self.ask("POST", TOKENS, {"spec": {"protocol": "v1", "token": "0f" * 32}}))["status"]
        self.assertEqual(status["token"], "0f" * 32)
        self.assertEqual(self.v1_tokens.check("alpha", "0f" * 32), status["agent"])

    def test_disabled(self) -> None:
        """Tokens can be issued before the cluster is enabled."""
        self.successResultOf(self.clusters.set_enabled("alpha", False))
        status = decoded(self.ask("POST", TOKENS, {"spec": {"protocol": "v1"}}))["status"]
        self.successResultOf(self.clusters.set_enabled("alpha", True))
        self.v1_tokens.check("alpha", status["token"])

    def test_refused(self) -> None:
        """Invalid requests are rejected; no token is in the text, and none is created."""
        for spec, text in (
            ({"ttl": "1h"}, "spec.ttl"),
            ({"uses": 1}, "spec.uses"),
            ({"token": 5}, "spec.token"),
            ({"token": "s3cr3t"}, "16 to 1024"),
            ({"token": "s3cr3t s3cr3t s3cr3t"}, "one word"),
        ):
            refusal = self.refused(422, "POST", TOKENS, {"spec": {"protocol": "v1", **spec}})
            self.assertIn(text, str(refusal))
            self.assertNotIn("s3cr3t", str(refusal))
        self.assertEqual(dict(self.store.snapshot("v1tokens")), {})
        missing = f"{CLUSTERS}/beta/jointokens"
        self.refused(404, "POST", missing, {"spec": {"protocol": "v1"}})


class OwnAgentsOnlyTests(ApiTestCase):
    """A proxy that rejects v1 agents."""

    lets_old_agents_in = False

    def test_refused(self) -> None:
        """No token is created, and the text names the option."""
        self.add("alpha")
        refusal = self.refused(422, "POST", TOKENS, {"spec": {"protocol": "v1"}})
        self.assertIn("--require-v2", str(refusal))
        self.assertEqual(dict(self.store.snapshot("v1tokens")), {})


class UnpublishedTests(ApiTestCase):
    """A proxy on all addresses without a published one."""

    published = Published("0.0.0.0", None, 8443, 8080)

    def test_names_the_flag(self) -> None:
        """Neither join tokens nor kubeconfigs are issued, and the text names the option."""
        self.add("alpha")
        for path, body in ((TOKENS, {}), (TOKENS, {"spec": {"protocol": "v1"}}), (KUBECONFIGS, JANE)):
            refusal = self.refused(409, "POST", path, body)
            self.assertIn("--publish-service-address", str(refusal))
        for kind in ("jointokens", "v1tokens", "credentials"):
            self.assertEqual(dict(self.store.snapshot(kind)), {})


class AddressTests(ApiTestCase):
    """The address of the proxy."""

    def test_authority(self) -> None:
        """A published address takes precedence over the one listened on; IPv6 is in brackets."""
        self.assertEqual(Published("10.0.0.1", None, 8443, 8080).authority(), "10.0.0.1:8443")
        self.assertEqual(Published("10.0.0.1", "t.example", 8443, 8080).authority(6001), "t.example:6001")
        self.assertEqual(
            Published("fd00::1", None, 443, 80).cluster_url("a"), "https://[fd00::1]:443/clusters/a"
        )
        self.assertFalse(Published("::", None, 443, 80).is_known)

    def test_external(self) -> None:
        """Users get the external host name; agents do not."""
        published = Published("0.0.0.0", "agents.example", 8443, 8080, "www.example")
        self.assertEqual(published.authority(), "agents.example:8443")
        self.assertEqual(published.user_url(6001), "https://www.example:6001")
        self.assertEqual(published.cluster_url("a"), "https://www.example:8443/clusters/a")
        alone = Published("0.0.0.0", None, 8443, 8080, "www.example")
        self.assertTrue(alone.is_known)
        with self.assertRaises(Conflict):
            alone.authority()

    def test_v1_url(self) -> None:
        """The URL for v1 agents has the plain port, or the front door if there is no plain port."""
        self.assertEqual(Published("t.example", None, 8443, 8080).v1_url, "http://t.example:8080")
        self.assertEqual(Published("t.example", None, 8443, None).v1_url, "https://t.example:8443")


class KubeconfigTests(ApiTestCase):
    """Kubeconfigs."""

    def issue(self, **spec: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the status of an answer, and the kubeconfig in it."""
        answer = decoded(self.ask("POST", KUBECONFIGS, {"spec": {**JANE["spec"], **spec}}))
        return answer["status"], yaml.safe_load(answer["status"]["kubeconfig"])

    def test_certificate(self) -> None:
        """The default is a certificate of jane for alpha, valid for 8 h."""
        cluster = self.add("alpha")
        status, config = self.issue()
        pem = base64.b64decode(config["users"][0]["user"]["client-certificate-data"])
        digest = x509.load_pem_x509_certificate(pem).fingerprint(hashes.SHA256()).hex()
        credential = self.credentials.find(digest)
        assert credential is not None
        self.assertEqual((credential.id, credential.cluster_uid), (status["credential"], cluster.uid))
        self.assertEqual((credential.user, credential.groups), ("jane", ("dev", "qa")))
        self.assertEqual(status["expirationTimestamp"], timestamp(NOW + 8 * 3600))
        self.assertEqual(
            config["clusters"][0]["cluster"]["server"], "https://tower.example.org:8443/clusters/alpha"
        )

    def test_token_by_port(self) -> None:
        """A kubeconfig with a token, for the cluster's own port."""
        self.add("alpha")
        status, config = self.issue(via="port", auth="token", ttl="30m")
        token = config["users"][0]["user"]["token"]
        credential = self.credentials.find(hashlib.sha256(token.encode()).hexdigest())
        assert credential is not None
        self.assertEqual(credential.id, status["credential"])
        self.assertEqual(config["clusters"][0]["cluster"]["server"], "https://tower.example.org:6000")

    def test_refused(self) -> None:
        """Reserved names, invalid routes and long lifetimes are rejected, and nothing is issued."""
        self.add("alpha")
        for spec, text in (
            ({"user": "system:admin"}, "system:"),
            ({"groups": ["tower:admins"]}, "tower:"),
            ({"groups": ["dev", "kubeadm:cluster-admins"]}, "group 'kubeadm:cluster-admins'"),
            ({"groups": ["system:authenticated"]}, "omit it"),
            ({"groups": "dev"}, "spec.groups"),
            ({"user": ""}, "spec.user"),
            ({"via": "tunnel"}, "front-door or port"),
            ({"auth": "password"}, "cert or token"),
            ({"ttl": "2d"}, "ttl 2d: must be at most 1d (--max-credential-ttl of the proxy)"),
            ({"ttl": "0s"}, "ttl 0s: must be more than 0"),
            ({"ttl": "1"}, "'1'"),
        ):
            refusal = self.refused(422, "POST", KUBECONFIGS, {"spec": {**JANE["spec"], **spec}})
            self.assertIn(text, str(refusal))
        self.assertEqual(dict(self.store.snapshot("credentials")), {})


class AdminKubeconfigTests(ApiTestCase):
    """Kubeconfigs for Tower's own API."""

    path = f"{BASE}/kubeconfigs"

    def test_issue(self) -> None:
        """The user is an administrator, without a cluster, at the front door."""
        answer = decoded(self.ask("POST", self.path, {"spec": {"user": "ops", "auth": "token", "ttl": "1h"}}))
        config = yaml.safe_load(answer["status"]["kubeconfig"])
        self.assertEqual(config["clusters"][0]["cluster"]["server"], "https://tower.example.org:8443")
        self.assertEqual(config["current-context"], "ops@tower")
        token = config["users"][0]["user"]["token"]
        credential = self.credentials.find(hashlib.sha256(token.encode()).hexdigest())
        assert credential is not None
        self.assertEqual((credential.cluster, credential.groups), ("", ("tower:admins",)))
        self.assertEqual(credential.expires, NOW + 3600)

    def test_refused(self) -> None:
        """Reserved names and options for clusters are rejected."""
        for spec in (
            {"user": "tower:x"},
            {"user": "ops", "groups": ["dev"]},
            {"user": "ops", "via": "port"},
            {},
        ):
            self.refused(422, "POST", self.path, {"spec": spec})
        self.refused(405, "GET", self.path)


class WithoutPortsTests(ApiTestCase):
    """A proxy without ports of clusters."""

    ports = None

    def test_no_port(self) -> None:
        """The text names the alternative."""
        self.add("alpha")
        refusal = self.refused(422, "POST", KUBECONFIGS, {"spec": {**JANE["spec"], "via": "port"}})
        self.assertIn("--via front-door", str(refusal))

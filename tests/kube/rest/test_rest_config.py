"""Tests of `tower.kube.rest.rest_config`."""

from __future__ import annotations

from typing import Any, cast

from twisted.internet.defer import Deferred, succeed
from twisted.trial.unittest import SynchronousTestCase

from tests.fakes.chains import family, issue, pem
from tests.fakes.pipes import FakePipe
from tests.kube.rest.programs import SECRET, PluginClock, PluginFolder
from tower.errors import ConfigurationError
from tower.kube.apiserver import in_cluster_access
from tower.kube.kubeconfig import load_kubeconfig
from tower.kube.rest.exec_plugin import PAUSE
from tower.kube.rest.rest_config import CHECK_PERIOD, CONNECT_TIMEOUT, RestConfig
from tower.reactor.interfaces import IReactor
from tower.trust.pki import pem_of_key

PROXY = "http://jane:pw@squid.example:3128"


class RestConfigCase(SynchronousTestCase):
    """A test case with a folder for a kubeconfig."""

    def setUp(self) -> None:
        """Make it."""
        self.clock = PluginClock()
        self.folder = PluginFolder(self.mktemp())
        self.dialed: list[tuple[str, int, dict[str, Any]]] = []
        self.pipes: list[FakePipe] = []

    def connect(self, _: Any, host: str, port: int, **options: Any) -> Deferred[Any]:
        """Record a connection."""
        self.dialed.append((host, port, options))
        self.pipes.append(FakePipe())
        return succeed(self.pipes[-1])

    def make(self) -> RestConfig:
        """Return the configuration of the kubeconfig."""
        path = self.folder.kubeconfig()
        return RestConfig(
            lambda: load_kubeconfig(path, allow_plugin=True),
            cast(IReactor, self.clock),
            environ=self.folder.environ,
            connect=self.connect,
        )

    def prepare(self, config: RestConfig) -> bytes:
        """Prepare a request, and return its credential."""
        self.successResultOf(Deferred.fromCoroutine(config.prepare()))
        return config.upstream().credential_line.removeprefix(b"Authorization: Bearer ").strip()

    def renew(self, config: RestConfig) -> bool:
        """Renew the credential after a rejection."""
        found: bool = self.successResultOf(Deferred.fromCoroutine(config.renew(config.upstream())))
        return found


class FileTests(RestConfigCase):
    """Credentials in files."""

    def test_token_file(self) -> None:
        """A rotated token is read at the next request after a while, and at once after a rejection."""
        self.folder.user = {"tokenFile": "token"}
        self.folder.write("token", "one")
        config = self.make()
        self.assertEqual((config.address, config.namespace), ("10.0.0.1:6443", "ns"))
        self.assertEqual(self.prepare(config), b"one")
        self.folder.write("token", "two")
        self.assertEqual(self.prepare(config), b"one")
        self.clock.advance(CHECK_PERIOD)
        self.assertEqual(self.prepare(config), b"two")
        self.folder.write("token", "three")
        self.assertTrue(self.renew(config))
        self.assertEqual(self.prepare(config), b"three")
        self.assertFalse(self.renew(config))

    def test_renewed_meanwhile(self) -> None:
        """A request whose credential was replaced meanwhile is repeated."""
        self.folder.user = {"tokenFile": "token"}
        self.folder.write("token", "one")
        config = self.make()
        rejected = config.upstream()
        self.folder.write("token", "two")
        self.clock.advance(CHECK_PERIOD)
        self.prepare(config)
        self.assertTrue(self.successResultOf(Deferred.fromCoroutine(config.renew(rejected))))

    def test_bad_rotation(self) -> None:
        """While a changed file is invalid the last credential is used, and the problem is known."""
        self.folder.user = {"tokenFile": "token"}
        self.folder.write("token", "one")
        config = self.make()
        self.folder.write("token", "")
        self.clock.advance(CHECK_PERIOD)
        self.assertEqual(self.prepare(config), b"one")
        self.assertIn("is empty", config.problem)

    def test_certificate(self) -> None:
        """A rotated client certificate is used for new connections."""
        self.folder.user = {"client-certificate": "tls.crt", "client-key": "tls.key"}
        self.write_pair("one")
        config = self.make()
        self.open(config)
        self.write_pair("two")
        self.clock.advance(CHECK_PERIOD)
        self.prepare(config)
        self.open(config)
        first, second = (options["tls"] for _, _, options in self.dialed)
        self.assertIsNot(first, second)

    def write_pair(self, name: str) -> None:
        """Write a client certificate and its key."""
        certificate, key = issue(name)
        self.folder.write("tls.crt", pem(certificate))
        self.folder.write("tls.key", pem_of_key(key))

    def open(self, config: RestConfig) -> None:
        """Open a connection."""
        self.successResultOf(Deferred.fromCoroutine(config.open()))

    def test_in_cluster(self) -> None:
        """A pod's service account, whose token is rotated."""
        self.folder.write("ca.crt", pem(family()[0][0]))
        self.folder.write("token", "one")
        environ = {"KUBERNETES_SERVICE_HOST": "10.0.0.9", "KUBERNETES_SERVICE_PORT": "443"}
        config = RestConfig(
            lambda: in_cluster_access(environ, self.folder.path),
            cast(IReactor, self.clock),
            environ=environ,
            connect=self.connect,
        )
        self.assertEqual(self.prepare(config), b"one")
        self.open(config)
        self.assertEqual(self.dialed[0][:2], ("10.0.0.9", 443))
        self.assertEqual(self.dialed[0][2]["server_hostname"], "10.0.0.9")
        self.folder.write("token", "two")
        self.clock.advance(CHECK_PERIOD)
        self.assertEqual(self.prepare(config), b"two")


class PluginTests(RestConfigCase):
    """Credentials of plugins."""

    def test_token(self) -> None:
        """The plugin runs before the first request, and again after a rejection."""
        config = self.make()
        self.assertEqual((config.upstream().credential_line, self.clock.runs), (b"", []))
        self.assertEqual(self.prepare(config), SECRET.encode())
        self.prepare(config)
        self.assertEqual(len(self.clock.runs), 1)
        self.clock.advance(PAUSE)
        self.clock.write(token="other")
        self.assertTrue(self.renew(config))
        self.assertEqual(self.prepare(config), b"other")
        self.assertEqual(len(self.clock.runs), 2)

    def test_same_again(self) -> None:
        """A plugin that writes the rejected token again has no new credential."""
        config = self.make()
        self.prepare(config)
        self.clock.advance(PAUSE)
        self.assertFalse(self.renew(config))
        self.assertEqual(len(self.clock.runs), 2)

    def test_certificate(self) -> None:
        """A plugin's certificate is used for connections."""
        certificate, key = issue("plugin")
        self.clock.write(
            clientCertificateData=pem(certificate).decode(), clientKeyData=pem_of_key(key).decode()
        )
        config = self.make()
        before = config.upstream()
        self.assertEqual(self.prepare(config), b"")
        self.assertIsNot(config.upstream(), before)

    def test_bad_credential(self) -> None:
        """A credential that cannot be used is an error at each request, and a better one is used."""
        self.clock.write(token=f"a {SECRET}")
        config = self.make()
        for _ in range(2):
            failure = self.failureResultOf(Deferred.fromCoroutine(config.prepare()), ConfigurationError)
            self.assertIn("not one word of printable", str(failure.value))
            self.assertNotIn(SECRET, str(failure.value))
        self.clock.write(token="good", expirationTimestamp="2020-01-01T00:00:00Z")
        self.clock.advance(PAUSE)
        rejected = config.upstream()
        self.assertTrue(self.successResultOf(Deferred.fromCoroutine(config.renew(rejected))))
        self.assertEqual(self.prepare(config), b"good")

    def test_precedence(self) -> None:
        """A token in the kubeconfig takes precedence over that of the plugin."""
        self.folder.user["token"] = "static"
        self.assertEqual(self.prepare(self.make()), b"static")

    def test_edited(self) -> None:
        """A changed plugin runs again; a removed one is not used any more."""
        config = self.make()
        self.prepare(config)
        self.folder.entry["args"] = ["x"]
        self.folder.kubeconfig()
        self.clock.write(token="other")
        self.clock.advance(CHECK_PERIOD)
        self.assertEqual(self.prepare(config), b"other")
        self.folder.user = {"token": "static"}
        self.folder.kubeconfig()
        self.clock.advance(CHECK_PERIOD)
        self.assertEqual(self.prepare(config), b"static")
        self.assertEqual(len(self.clock.runs), 2)

    def test_wrong_entry(self) -> None:
        """An invalid plugin is an error at the start."""
        self.folder.entry["interactiveMode"] = "Always"
        self.assertIn("needs a terminal", str(self.assertRaises(ConfigurationError, self.make)))


class ProxyTests(RestConfigCase):
    """HTTP proxies."""

    def setUp(self) -> None:
        """Use a token."""
        super().setUp()
        self.folder.user = {"token": "x"}

    def asked(self) -> bytes:
        """Return the request to the HTTP proxy."""
        config = self.make()
        opening = Deferred.fromCoroutine(config.open())
        self.assertEqual(self.dialed[-1][:2], ("squid.example", 3128))
        self.assertEqual(self.dialed[-1][2], {"timeout": CONNECT_TIMEOUT})
        head = self.pipes[-1].taken()
        opening.cancel()
        self.failureResultOf(opening)
        return head

    def test_environment(self) -> None:
        """The HTTP proxy of the environment is used, except for hosts in NO_PROXY and the loopback."""
        self.folder.environ["HTTPS_PROXY"] = PROXY
        self.assertTrue(self.asked().startswith(b"CONNECT 10.0.0.1:6443 HTTP/1.1\r\n"))
        self.folder.environ["NO_PROXY"] = "10.0.0.0/8"
        self.successResultOf(Deferred.fromCoroutine(self.make().open()))
        self.assertEqual(self.dialed[-1][:2], ("10.0.0.1", 6443))

    def test_kubeconfig(self) -> None:
        """The HTTP proxy of the kubeconfig takes precedence."""
        self.folder.environ["HTTPS_PROXY"] = "http://other.example:3128"
        self.folder.cluster["proxy-url"] = PROXY
        self.assertIn(b"Proxy-Authorization: Basic ", self.asked())

    def test_wrong(self) -> None:
        """Another kind of proxy is an error at the start, without its password."""
        for proxy in ("socks5://jane:pw@squid.example", "https://jane:pw@squid.example"):
            self.folder.cluster["proxy-url"] = proxy
            error = str(self.assertRaises(ConfigurationError, self.make))
            self.assertIn("proxy-url", error)
            self.assertNotIn("pw", error)
        del self.folder.cluster["proxy-url"]
        self.folder.environ["HTTPS_PROXY"] = "socks5://jane:pw@squid.example"
        self.assertIn("HTTPS_PROXY", str(self.assertRaises(ConfigurationError, self.make)))

    def test_plain(self) -> None:
        """A server without TLS is not proxied."""
        self.folder.user = {}
        self.folder.cluster["server"] = "http://127.0.0.1:8001"
        self.folder.environ["HTTPS_PROXY"] = self.folder.environ["HTTP_PROXY"] = PROXY
        self.successResultOf(Deferred.fromCoroutine(self.make().open()))
        self.assertEqual(self.dialed[-1][:2], ("127.0.0.1", 8001))

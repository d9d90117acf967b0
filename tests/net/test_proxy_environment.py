"""Tests of `tower.net.proxy_environment`."""

from __future__ import annotations

from base64 import b64decode

from twisted.trial.unittest import SynchronousTestCase

from tower.errors import ConfigurationError
from tower.net.proxy_environment import HTTPProxy, ServerURL, find_proxy, parse_server_url


class ServerURLTests(SynchronousTestCase):
    def test_schemes(self) -> None:
        """The four schemes, with their default ports."""
        self.assertEqual(parse_server_url("ws://tower.example"), ServerURL(False, "tower.example", 80, "/"))
        self.assertEqual(parse_server_url("wss://tower.example"), ServerURL(True, "tower.example", 443, "/"))
        self.assertEqual(parse_server_url("http://h:8080"), ServerURL(False, "h", 8080, "/"))
        self.assertEqual(parse_server_url("https://h:8443/"), ServerURL(True, "h", 8443, "/"))

    def test_path(self) -> None:
        """Path and query are kept unchanged."""
        self.assertEqual(parse_server_url("wss://h/a/b?c=d").resource, "/a/b?c=d")
        self.assertEqual(str(parse_server_url("wss://h/agent?c=d")), "wss://h:443/agent")

    def test_ipv6(self) -> None:
        """An IPv6 address loses its brackets, and gets them back where a port follows."""
        url = parse_server_url("wss://[fd00::1]:8443/agent")
        self.assertEqual((url.host, url.port, url.authority), ("fd00::1", 8443, "[fd00::1]:8443"))

    def test_bad(self) -> None:
        """An invalid URL of a proxy is named."""
        for text in (
            "",
            "tower.example",
            "tower.example:8080",
            "ftp://h",
            "wss://",
            "wss://h:0x1",
            "ws://h:70000",
        ):
            error = self.assertRaises(ConfigurationError, parse_server_url, text)
            self.assertIn("--proxy-server", str(error))
            self.assertIn(repr(text), str(error))

    def test_line_breaks(self) -> None:
        """Nothing gets into the request that is not part of a URL."""
        for text in ("wss://h/a\r\nX: y", "wss://h/a b", "wss://h/\u00e4"):
            self.assertRaises(ConfigurationError, parse_server_url, text)

    def test_password(self) -> None:
        """A URL with a password is refused without repeating it."""
        error = self.assertRaises(ConfigurationError, parse_server_url, "wss://me:s3cret@h")
        self.assertNotIn("s3cret", str(error))


class FindProxyTests(SynchronousTestCase):
    url = parse_server_url("wss://tower.example.com:8443")

    def find(self, **environ: str) -> HTTPProxy | None:
        """Return the proxy for the test's URL in that environment."""
        return find_proxy(self.url, environ)

    def test_none(self) -> None:
        """Without variables there is no proxy, nor with the other scheme's."""
        self.assertIsNone(self.find())
        self.assertIsNone(self.find(HTTP_PROXY="http://squid:3128", HTTPS_PROXY=""))

    def test_found(self) -> None:
        """Either case of letters, with and without a scheme."""
        squid = HTTPProxy("squid", 3128)
        self.assertEqual(self.find(HTTPS_PROXY="http://squid:3128"), squid)
        self.assertEqual(self.find(https_proxy="squid:3128/"), squid)
        self.assertEqual(self.find(https_proxy="squid:3128", HTTPS_PROXY="http://other"), squid)
        self.assertEqual(self.find(HTTPS_PROXY="http://[fd00::2]:3128"), HTTPProxy("fd00::2", 3128))
        self.assertEqual(
            find_proxy(parse_server_url("ws://h"), {"http_proxy": "squid"}), HTTPProxy("squid", 80)
        )

    def test_login(self) -> None:
        """A credential is in the request, decoded, and never shown."""
        proxy = self.find(HTTPS_PROXY="http://me:p%40ss:w@squid:3128")
        assert proxy is not None
        request = proxy.request(self.url)
        self.assertTrue(
            request.startswith(b"CONNECT tower.example.com:8443 HTTP/1.1\r\nHost: tower"), request
        )
        login = request.split(b"Proxy-Authorization: Basic ")[1].split(b"\r\n")[0]
        self.assertEqual(b64decode(login), b"me:p@ss:w")
        self.assertNotIn(login.decode(), repr(proxy) + str(proxy))

    def test_request(self) -> None:
        """The request for an IPv6 address has brackets, and ends in an empty line."""
        request = HTTPProxy("squid", 3128).request(parse_server_url("ws://[fd00::1]:80"))
        self.assertEqual(request, b"CONNECT [fd00::1]:80 HTTP/1.1\r\nHost: [fd00::1]:80\r\n\r\n")

    def test_unsupported(self) -> None:
        """A proxy of another kind is refused; the text has no password in it."""
        for text in ("socks5://me:s3cret@squid:1080", "https://me:s3cret@squid", "http://me:s3cret@:80"):
            error = self.assertRaises(ConfigurationError, self.find, HTTPS_PROXY=text)
            self.assertIn("HTTPS_PROXY", str(error))
            self.assertNotIn("s3cret", str(error))

    def exempt(self, no_proxy: str, url: str = "wss://tower.example.com:8443") -> bool:
        """Return whether *no_proxy* exempts *url*."""
        environ = {"HTTPS_PROXY": "squid", "NO_PROXY": no_proxy}
        return find_proxy(parse_server_url(url), environ) is None

    def test_exempt_names(self) -> None:
        """A name exempts itself and what is below it."""
        for text in (
            "*",
            "tower.example.com",
            "example.com",
            ".example.com",
            "*.example.com",
            "EXAMPLE.COM",
            "tower.example.com:8443",
            "a, b, example.com",
        ):
            self.assertTrue(self.exempt(text), text)
        for text in (
            "",
            "other.com",
            "ample.com",
            "com.",
            "tower.example.com:443",
            "sub.tower.example.com",
            "10.0.0.0/8",
        ):
            self.assertFalse(self.exempt(text), text)

    def test_exempt_addresses(self) -> None:
        """Addresses and networks exempt addresses."""
        for text in ("10.1.2.3", "10.0.0.0/8", "10.1.2.3:443", "10.1.2.3/8"):
            self.assertTrue(self.exempt(text, "wss://10.1.2.3"), text)
        for text in ("10.1.2.4", "11.0.0.0/8", "10.1.2.3:80", ".3", "fd00::/8"):
            self.assertFalse(self.exempt(text, "wss://10.1.2.3"), text)
        self.assertTrue(self.exempt("fd00::/8", "wss://[fd00::1]"))
        self.assertTrue(self.exempt("[fd00::1]:443", "wss://[fd00::1]"))

    def test_loopback(self) -> None:
        """The machine itself is never reached by a proxy."""
        for host in ("localhost", "127.0.0.1", "[::1]"):
            self.assertTrue(self.exempt("", f"wss://{host}"), host)

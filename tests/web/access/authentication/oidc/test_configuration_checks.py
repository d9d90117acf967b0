"""Tests of `tower.web.access.authentication.oidc.configuration_checks`."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from tests.fakes.certificates import authority
from tower.web.access.authentication.oidc.configuration_checks import (
    authorities_problem,
    key_problems,
    url_problems,
)

PATH = 'must be a domain-prefixed path (such as "acme.io/foo")'
LOWER = "must be lowercase"
RESERVED = "k8s.io, kubernetes.io and their subdomains are reserved for Kubernetes use"


class ConfigurationChecksTests(SynchronousTestCase):
    """Single values."""

    def test_urls(self) -> None:
        """A URL has the scheme https, a host, and nothing else than a path."""
        for url in ("https://a", "https://a:8443/b/", "https://[::1]:1/a"):
            self.assertEqual(url_problems(url), [])
        for url, count in (
            ("http://a", 1),
            ("https://", 1),
            ("a", 1),
            ("https://u:p@a?b#c", 3),
            ("https://[", 1),
        ):
            self.assertEqual(len(url_problems(url)), count, url)

    def test_keys(self) -> None:
        """A key is lower-case with a domain that is not Kubernetes'."""
        for key in ("", "a/b", "example.org/a-b/c", "k8s.io.example.org/a", "notk8s.io/a"):
            self.assertEqual(key_problems(key), [])
        for key, problems in (
            ("a", [PATH]),
            ("a/", [PATH]),
            ("/a", [PATH]),
            ("-a/b", [PATH]),
            ("a/b c", [PATH]),
            ("a/b\n", [PATH]),
            ("A.org/b", [LOWER]),
            ("k8s.io/a", [RESERVED]),
            ("x.kubernetes.io/a", [RESERVED]),
        ):
            self.assertEqual(key_problems(key), problems, key)

    def test_authorities(self) -> None:
        """CAs are certificates in PEM."""
        self.assertEqual(authorities_problem(authority().pem), "")
        self.assertIn("data does not contain any valid RSA or ECDSA certificates", authorities_problem(b"x"))

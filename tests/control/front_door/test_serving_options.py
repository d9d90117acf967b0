"""Tests of the options in `tower.control.front_door`."""

from __future__ import annotations

import ssl
from pathlib import Path

from twisted.python import usage
from twisted.trial.unittest import SynchronousTestCase

from tower.control.proxy_options import Options
from tower.trust.named_certificates import PairFiles


def parsed(*arguments: str, **environ: str) -> Options:
    """Return parsed options."""
    options = Options(environ)
    options.find_address = {"::": "2001:db8::9"}.get
    options.parse(arguments)
    return options


class ServingOptionsTests(SynchronousTestCase):
    def problem(self, *arguments: str) -> str:
        """Return the error for *arguments*."""
        with self.assertRaises(usage.UsageError) as caught:
            parsed(*arguments)
        return str(caught.exception)

    def test_tls(self) -> None:
        """Version, cipher suites and certificates for names."""
        self.assertEqual(parsed().tls_settings.minimum, ssl.TLSVersion.TLSv1_2)
        options = parsed(
            "--tls-min-version=VersionTLS13",
            "--tls-cipher-suites=TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
            "--tls-sni-cert-key=a.crt,a.key:a.example,b.example",
            "--tls-sni-cert-key=b.crt,b.key",
        )
        self.assertEqual(options.tls_settings.minimum, ssl.TLSVersion.TLSv1_3)
        self.assertEqual(options.tls_settings.suites, ("ECDHE-RSA-AES128-GCM-SHA256",))
        first = PairFiles(Path("a.crt"), Path("a.key"), ("a.example", "b.example"))
        self.assertEqual(options.named_pairs, [first, PairFiles(Path("b.crt"), Path("b.key"))])
        options = parsed(TOWER_TLS_SNI_CERT_KEY="a.crt,a.key:a.example,b.example")
        self.assertEqual(options.named_pairs, [first])

    def test_empty(self) -> None:
        """An empty value is the default, as templates of deployments expect."""
        names = ("advertise-address", "external-hostname", "tls-cipher-suites", "tls-min-version")
        options, default = parsed(*(f"--{name}=" for name in names)), parsed()
        for name in names:
            self.assertEqual(options[name], default[name], name)
        self.assertEqual(options.tls_settings, default.tls_settings)

    def test_invalid(self) -> None:
        """Errors name the option and have kube-apiserver's text."""
        for argument, text in (
            ("--tls-min-version=VersionTLS14", 'unknown tls version "VersionTLS14"'),
            ("--tls-cipher-suites=TLS_RSA_WITH_AES_128_GCM_SHA256", "GCM_SHA256 is insecure: remove it"),
            ("--tls-cipher-suites=FOO", "Cipher suite FOO not supported or doesn't exist"),
            ("--tls-sni-cert-key=a.crt", "expected comma separated certificate and key file paths"),
        ):
            self.assertIn(argument.partition("=")[0], self.problem(argument))
            self.assertIn(text, self.problem(argument))

    def test_certificate(self) -> None:
        """--tls-cert-file has a key, and a name for users that agents do not use."""
        file, key = (Path(self.mktemp()) for _ in range(2))
        file.touch()
        key.touch()
        given = (f"--tls-cert-file={file}", f"--tls-private-key-file={key}")
        self.assertIsNone(parsed("--external-hostname=www.example").public_pair)
        pair = parsed(*given, "--external-hostname=WWW.example").public_pair
        self.assertEqual(pair, PairFiles(file, key, ("www.example",)))
        for one in given:
            self.assertIn(
                "missing filename for serving cert", self.problem(one, "--external-hostname=www.example")
            )
        self.assertIn("requires the host name that it is for", self.problem(*given))
        published = parsed(*given, "--publish-service-address=Tower.example")
        self.assertEqual(published.public_pair, PairFiles(file, key, ("tower.example",)))
        self.assertTrue(published.is_public_pair_for_agents)
        external = parsed(*given, "--publish-service-address=a.example", "--external-hostname=www.example")
        self.assertFalse(external.is_public_pair_for_agents)
        for same in ("--publish-service-address=www.example", "--host=www.example"):
            both = parsed(*given, "--external-hostname=www.Example", same)
            self.assertTrue(both.is_public_pair_for_agents)

    def test_directory(self) -> None:
        """--cert-dir has the files, unless others are set; it requires a host name, too."""
        directory = "--cert-dir=/serving"
        options = parsed(directory, "--publish-service-address=Tower.example")
        files = (Path("/serving/tower-proxy.crt"), Path("/serving/tower-proxy.key"))
        self.assertEqual(options.public_pair, PairFiles(*files, ("tower.example",)))
        self.assertTrue(options.makes_pair)
        given = ("--tls-cert-file=a.crt", "--tls-private-key-file=a.key", "--external-hostname=www.example")
        options = parsed(directory, *given)
        self.assertEqual(options.public_pair, PairFiles(Path("a.crt"), Path("a.key"), ("www.example",)))
        self.assertFalse(options.makes_pair)
        self.assertIn("--cert-dir '/serving' requires the host name", self.problem(directory))
        self.assertIn("missing filename for serving cert", self.problem(directory, given[0], given[2]))

    def test_addresses(self) -> None:
        """An address is used if no name is published; it must be one machine's."""
        self.assertIsNone(parsed("--host=0.0.0.0").public_address)
        self.assertIsNone(parsed("--host=192.0.2.1").public_address)
        self.assertEqual(parsed("--host=::").public_address, "2001:db8::9")
        self.assertIn("users and agents connect to 2001:db8::9", parsed("--host=::").warnings[0])
        self.assertIsNone(parsed("--host=::", "--store=kubernetes").public_address)
        advertised = "--advertise-address=192.0.2.9"
        self.assertEqual(parsed(advertised).public_address, "192.0.2.9")
        both = parsed(advertised, "--publish-service-address=tower.example")
        self.assertEqual(both.public_address, "tower.example")
        self.assertIn('failed to parse IP: "x"', self.problem("--advertise-address=x"))
        for unspecified in ("0.0.0.0", "::"):
            self.assertIn(
                "is not the address of a machine", self.problem(f"--advertise-address={unspecified}")
            )

    def test_front_proxies(self) -> None:
        """The options of front proxies go together; names are those of plain fields."""
        file = "--requestheader-client-ca-file=ca.crt"
        user = "--requestheader-username-headers=X-Remote-User,X-User"
        self.assertIsNone(parsed().front_proxy_fields)
        found = parsed(file, user, "--requestheader-extra-headers-prefix=X-Extra-").front_proxy_fields
        assert found is not None
        self.assertEqual(found.users, (b"x-remote-user", b"x-user"))
        self.assertTrue(found.includes(b"x-extra-a"))
        self.assertFalse(found.includes(b"x-remote-group"))
        self.assertIn("requires --requestheader-username-headers: set it", self.problem(file))
        for argument in (user, "--requestheader-allowed-names=a", "--requestheader-group-headers=G"):
            self.assertIn("requires --requestheader-client-ca-file", self.problem(argument))
        for names, text in (
            ("X-User,", 'empty value in "requestheader-username-headers"'),
            ("X User", "is not the name of a header field"),
            ("Authorization", "a header field with another meaning"),
            ("impersonate-user", "a header field with another meaning"),
        ):
            self.assertIn(text, self.problem(file, f"--requestheader-username-headers={names}"))

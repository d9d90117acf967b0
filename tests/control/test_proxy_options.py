"""Tests of `tower.control.proxy_options`."""

from __future__ import annotations

import errno
import socket

from twisted.trial.unittest import SynchronousTestCase

from tower.control.proxy_options import Options
from tower.options.errors import OptionError, OptionErrors, one_line_errors

FRONT_PROXIES = ("--requestheader-client-ca-file=ca.crt", "--requestheader-username-headers=X-User")
ISSUER = ("--oidc-issuer-url=https://issuer.example", "--oidc-client-id=tower")


class OptionsTests(SynchronousTestCase):
    """Options of tower-proxy."""

    def parse(self, *words: str) -> Options:
        """Return the parsed options."""
        options = Options({})
        with one_line_errors("tower-proxy"):
            options.parse(words)
        return options

    def refusal(self, *words: str) -> str:
        """Return the error about them."""
        with self.assertRaises(SystemExit) as caught:
            self.parse(*words)
        return str(caught.exception)

    def test_secure_by_default(self) -> None:
        """Insecure options are off by default."""
        options = self.parse()
        self.assertIs(options["kubesphere-ports"], None)
        self.assertEqual(options["kubesphere-host"], "127.0.0.1")
        for name in ("v1-open-ports", "v1-no-impersonation"):
            self.assertFalse(options[name])

    def test_repeated_lists(self) -> None:
        """Values of repeated lists add up, as in kube-apiserver; a default is replaced."""
        for name, values, expected in (
            ("api-audiences", ("a", "b,c"), ("a", "b", "c")),
            ("authorization-mode", ("RBAC", "AlwaysDeny"), ("RBAC", "AlwaysDeny")),
            ("requestheader-allowed-names", ("front", "other"), ("front", "other")),
            ("requestheader-username-headers", ("X-A", "X-B"), (b"x-user", b"x-a", b"x-b")),
            ("requestheader-group-headers", ("X-A", "X-B"), (b"x-a", b"x-b")),
            ("requestheader-uid-headers", ("X-A", "X-B"), (b"x-a", b"x-b")),
            ("requestheader-extra-headers-prefix", ("X-A-", "X-B-"), (b"x-a-", b"x-b-")),
            ("oidc-signing-algs", ("ES256", "ES384"), ("ES256", "ES384")),
        ):
            options = Options({})
            options.read([*FRONT_PROXIES, *ISSUER, *(f"--{name}={value}" for value in values)])
            self.assertEqual(options[name], expected)
        suites = ("TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384")
        both = self.parse(*(f"--tls-cipher-suites={each}" for each in suites))
        one = self.parse(f"--tls-cipher-suites={','.join(suites)}")
        self.assertEqual(both["tls-cipher-suites"], one["tls-cipher-suites"])
        found = self.parse("--cors-allowed-origins=^https://a$", "--cors-allowed-origins=^https://b$")
        self.assertEqual(len(found["cors-allowed-origins"].patterns), 2)
        self.assertIn(
            "unsupported signing alg", self.refusal("--oidc-signing-algs=x", "--oidc-signing-algs=RS256")
        )

    def test_empty_values(self) -> None:
        """Empty values of kube-apiserver's lists and files are as unset."""
        unset = self.parse()
        for name in (
            "api-audiences",
            "audit-policy-file",
            "audit-webhook-config-file",
            "authentication-config",
            "authentication-kubeconfig",
            "authentication-token-webhook-config-file",
            "authorization-kubeconfig",
            "authorization-policy-file",
            "authorization-webhook-config-file",
            "bind-address",
            "cert-dir",
            "client-ca-file",
            "kubelet-certificate-authority",
            "requestheader-allowed-names",
            "requestheader-client-ca-file",
            "requestheader-extra-headers-prefix",
            "requestheader-group-headers",
            "requestheader-uid-headers",
            "requestheader-username-headers",
            "service-account-jwks-uri",
            "tls-cert-file",
            "tls-private-key-file",
            "token-auth-file",
        ):
            found = self.parse(f"--{name}=")
            self.assertEqual({**found, "bind-address": None}, dict(unset), name)
        for name in ("oidc-ca-file", "oidc-signing-algs"):
            options = self.parse(*ISSUER, f"--{name}=")
            self.assertEqual(options[name], unset[name])
        options = self.parse(*FRONT_PROXIES, "--requestheader-allowed-names=")
        self.assertIsNone(options["requestheader-allowed-names"])

    def test_all_errors(self) -> None:
        """An unknown option and a wrong value do not hide errors of files and of other options."""
        lines = self.refusal(
            "--nothing",
            "--request-timeout=-1s",
            "--client-ca-file=/none/ca",
            "--token-auth-file=/none/tokens",
            "--audit-webhook-config-file=/none/hook",
            "--oidc-issuer-url=http://x",
        ).splitlines()
        expected = (
            "--nothing is not an option",
            "--request-timeout '-1s' can not be negative",
            "oidc-issuer-url and oidc-client-id must be specified together",
            "--client-ca-file: open /none/ca: no such file",
            "--token-auth-file: open /none/tokens: no such file",
            "--audit-webhook-config-file: ",
        )
        self.assertEqual(len(lines), len(expected), lines)
        for line, text in zip(lines, expected, strict=True):
            self.assertIn(text, line)

    def test_aliases(self) -> None:
        """The names of kube-apiserver for the address and the format of logs are accepted."""
        options = self.parse("--bind-address=192.0.2.1", "--logging-format=json")
        self.assertEqual((options["host"], options["log-format"]), ("192.0.2.1", "json"))
        text = "--bind-address and --host are the same option: omit one of them"
        self.assertIn(text, self.refusal("--bind-address=192.0.2.1", "--host=192.0.2.1"))

    def test_absolute_names(self) -> None:
        """The final dot of a name for users and agents is removed."""
        names = "--external-hostname=tower.example.", "--publish-service-address=agents.example."
        options = self.parse(*names)
        self.assertEqual(options.certificate_host, "tower.example")
        self.assertEqual(options.public_address, "agents.example")

    def test_kubesphere_ports(self) -> None:
        """They are 10000 above the cluster ports; an impossible range is named with the cure."""
        self.assertEqual(
            self.parse("--kubesphere-ports=16000-17000")["kubesphere-ports"], range(16000, 17001)
        )
        for words, wanted in (
            (("--kubesphere-ports=20000-20010",), ("20000-20010", "16000-17000")),
            (("--kubesphere-ports=16000-17000", "--cluster-ports=none"), ("--cluster-ports",)),
            (
                (
                    "--kubesphere-ports=16000-17000",
                    "--cluster-ports=6000-17000",
                    "--port=5000",
                    "--secure-port=5001",
                ),
                ("--cluster-ports", "16000-17000"),
            ),
            (("--kubesphere-ports=16000-17000", "--port=16080"), ("16080", "--kubesphere-ports")),
            (("--kubesphere-ports=many",), ("many",)),
        ):
            refusal = self.refusal(*words)
            for word in wanted:
                self.assertIn(word, refusal)

    def test_old_agents(self) -> None:
        """--require-v2 conflicts with options for old agents."""
        for name in ("v1-open-ports", "v1-no-impersonation"):
            refusal = self.refusal("--require-v2", f"--{name}")
            self.assertIn(name, refusal)
            self.assertIn("--require-v2", refusal)

    def test_ports(self) -> None:
        """Ports differ from each other and from the cluster ports."""
        self.assertIn("6443", self.refusal("--port=6443"))
        self.assertIn("8080", self.refusal("--secure-port=8080"))

    def test_no_plain_port(self) -> None:
        """Several optional ports can be disabled with ``none``."""
        options = self.parse("--port=none", "--metrics-port=none", "--kubesphere-ports=none")
        for name in ("port", "metrics-port", "kubesphere-ports"):
            self.assertIs(options[name], None)
        self.assertEqual(self.parse()["port"], 8080)
        self.assertIn("1 to 65535, or none", self.refusal("--port=never"))
        self.assertIn("--secure-port 'none'", self.refusal("--secure-port=none"))

    def test_address_of_another_machine(self) -> None:
        """An address of another machine is named by its own option, not the port's."""
        for name, value, wanted in (
            ("host", "203.0.113.7", "Cannot assign requested address"),
            ("host", "tower.invalid", "tower.invalid"),
            ("metrics-host", "2001:db8::7", "2001:db8::7"),
        ):
            options = self.parse(f"--{name}={value}", "--port=none", "--secure-port=1", "--metrics-port=2")
            refusal = str(self.assertRaises(OptionError, options.check_listening))
            for word in (f"--{name} '{value}'", "is not an address of this machine", wanted):
                self.assertIn(word, refusal)

    def test_taken_port(self) -> None:
        """A port that is in use is named by its option."""

        def bind(_: socket.socket, address: tuple[str, int]) -> None:
            if address[1] == 8080:
                raise OSError(errno.EADDRINUSE, "Address already in use")

        self.patch(socket.socket, "bind", bind)
        options = self.parse("--host=127.0.0.1", "--port=8080", "--secure-port=8443", "--cluster-ports=none")
        refusal = str(self.assertRaises(OptionError, options.check_listening))
        self.assertIn("--port '8080' is not available at 127.0.0.1 (address already in use", refusal)

    def test_taken_ports(self) -> None:
        """All ports that are in use are named together; a wrong address of several ports is named once."""
        with socket.create_server(("127.0.0.1", 0)) as one, socket.create_server(("127.0.0.1", 0)) as other:
            ports = [each.getsockname()[1] for each in (one, other)]
            options = self.parse(
                "--host=127.0.0.1", f"--port={ports[0]}", f"--secure-port={ports[1]}", "--cluster-ports=none"
            )
            errors = self.assertRaises(OptionErrors, options.check_listening).errors
        self.assertEqual([each.flag for each in errors], ["port", "secure-port"])
        options = self.parse("--host=203.0.113.7", "--cluster-ports=none")
        self.assertEqual(self.assertRaises(OptionError, options.check_listening).flag, "host")

    def test_low_port(self) -> None:
        """A port that this user cannot open has its own cure."""

        def bind(*_: object) -> None:
            raise PermissionError(errno.EACCES, "Permission denied")

        options = self.parse("--host=127.0.0.1", "--port=none", "--secure-port=443", "--cluster-ports=none")
        self.patch(socket.socket, "bind", bind)
        refusal = str(self.assertRaises(OptionError, options.check_listening))
        self.assertIn("--secure-port '443' is not permitted to this user: choose a port above 1023", refusal)

    def test_defaults(self) -> None:
        """Help shows defaults as a user types them."""
        text = str(Options({}))
        for default in ("6000-7000", "32MiB", "10s", "24h", "10000"):
            self.assertIn(f"[default: {default}]", " ".join(text.split()))

    def test_connections(self) -> None:
        """One address gets a tenth of the connections by default; a limit must be below the total."""
        for words, share in (
            ((), 1000),
            (("--max-connections=200",), 20),
            (("--max-connections=5",), 1),
            (("--max-connections=0",), 1000),
            (("--max-connections-per-address=0",), 0),
            (("--max-connections=0", "--max-connections-per-address=70000"), 70000),
        ):
            self.assertEqual(self.parse(*words)["max-connections-per-address"], share, words)
        refusal = self.refusal("--max-connections=50", "--max-connections-per-address=50")
        self.assertIn("--max-connections-per-address '50' must be less than --max-connections 50", refusal)
        self.assertIn("many", self.refusal("--max-connections=many"))

    def test_proxy_protocol(self) -> None:
        """No load balancer is trusted by default; an invalid network is named with the cure."""
        self.assertIs(self.parse()["proxy-protocol-from"], None)
        networks = self.parse("--proxy-protocol-from=10.0.0.0/8,fd00::/8")["proxy-protocol-from"]
        self.assertEqual([str(each) for each in networks], ["10.0.0.0/8", "fd00::/8"])
        refusal = self.refusal("--proxy-protocol-from=10.0.0.0/8,10.0.0.0/33")
        for word in ("--proxy-protocol-from", "10.0.0.0/33", "such as 10.0.0.0/8"):
            self.assertIn(word, refusal)

    def test_authority(self) -> None:
        """A CA whose file does not exist is rejected by name."""
        self.assertIn("/nowhere/ca.crt", self.refusal("--ca-cert=/nowhere/ca.crt"))

    def test_host_cluster(self) -> None:
        """The options of the host cluster belong to the proxy; the health port is like any other port."""
        self.assertTrue(self.parse("--store=kubernetes").is_hosted)
        refusal = self.refusal("--store=kubernetes", "--health-port=8443")
        self.assertIn("--secure-port '8443' is the same as --health-port", refusal)

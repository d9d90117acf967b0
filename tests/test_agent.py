"""Tests of `tower.agent`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml
from twisted.internet.error import CannotListenError
from twisted.internet.testing import MemoryReactorClock
from twisted.logger import LogLevel, capturedLogs, eventAsText
from twisted.python.usage import UsageError
from twisted.trial.unittest import SynchronousTestCase

from tests.fakes.agent_options import FINGERPRINT, JOIN, Unresolving, line
from tests.fakes.certificates import PUBLISHED
from tests.fakes.chains import family, pem
from tower import VERSION
from tower import agent as agent_module
from tower.agent import REFRESH, Agent, Options, makeService
from tower.kube.member_check import TIMEOUT
from tower.member import object_name
from tower.tunnels.targets import Target


def parsed(*arguments: str, environ: dict[str, str] | None = None, **changes: str | None) -> Options:
    """Return the options that the join line and *arguments* make."""
    options = Options(environ or {})
    options.parse([*line(**changes), *arguments])
    return options


class OptionsTests(SynchronousTestCase):
    def test_join_line(self) -> None:
        """The join line is enough; the rest has defaults."""
        options = parsed()
        self.assertEqual((options["name"], options["host-keys"]), ("alpha", [FINGERPRINT]))
        self.assertEqual((options.server.host, options.server.port), ("tower.example", 8443))
        self.assertEqual((options["keepalive"], options["max-retry"]), (10.0, 0))
        self.assertEqual(options["max-retry-interval"], 120.0)
        self.assertTrue(str(options.state_dir).endswith("/tower-agent/alpha"))

    def test_flags(self) -> None:
        """Options are parsed, including repeatable ones."""
        options = parsed(
            f"--host-key=SHA256:{'B' * 43}",
            "--target=db=10.0.0.5:5432",
            "--target=web=[fd00::1]:80",
            "--health-address=127.0.0.1:8081",
            "--max-retry=3",
            "--keepalive=1m30s",
            "--state-dir=/somewhere",
            "--v=5",
        )
        self.assertEqual(len(options["host-keys"]), 2)
        self.assertEqual(options["targets"], [Target("db", "10.0.0.5", 5432), Target("web", "fd00::1", 80)])
        self.assertEqual(options["health-address"], ("127.0.0.1", 8081))
        self.assertEqual((options["max-retry"], options["keepalive"]), (3, 90.0))
        self.assertEqual(options.state_dir, Path("/somewhere"))

    def test_environment(self) -> None:
        """All options can come from the environment, as in a container."""
        environ = {f"TOWER_{name.replace('-', '_').upper()}": value for name, value in JOIN.items()}
        environ |= {
            "TOWER_TARGET": "db=h:1,web=h:2",
            "TOWER_TOKEN": "t0ken",
            "TOWER_NO_IMPERSONATION": "true",
        }
        options = Options(environ)
        options.parse([])
        self.assertEqual((options["name"], options["host-keys"]), ("alpha", [FINGERPRINT]))
        self.assertEqual([target.name for target in options["targets"]], ["db", "web"])
        self.assertEqual(options.secret("token"), "t0ken")
        self.assertTrue(options["no-impersonation"])

    def wrong(self, *arguments: str, **changes: str | None) -> str:
        """Return the error about invalid arguments."""
        error = self.assertRaises(UsageError, parsed, *arguments, **changes)
        self.assertNotIn("\n", str(error))
        return str(error)

    def test_missing(self) -> None:
        """A missing option is named."""
        for name in ("name", "proxy-server", "host-key"):
            self.assertIn(f"--{name} is missing", self.wrong(**{name: None}))

    def test_bad_values(self) -> None:
        """An invalid value is named with its flag."""
        for name, value in (
            ("name", "Alpha_1"),
            ("proxy-server", "gopher://x"),
            ("host-key", "SHA256:short"),
            ("ca-hash", "md5:00"),
            ("target", "db"),
            ("target", "kubernetes=h:1"),
            ("keepalive", "ten"),
            ("max-retry", "-1"),
            ("max-retry-interval", "0s"),
            ("health-address", "8081"),
            ("kubernetes-service", "a b"),
            ("kubesphere-service", ":80"),
            ("kubeconfig", "/nonexistent"),
            ("ca-cert", "/nonexistent"),
            ("token-file", "/nonexistent"),
            ("buffer-budget", "much"),
        ):
            text = self.wrong(**{name: value})
            self.assertIn(f"--{name}", text)
            self.assertIn(value, text)

    def test_pins(self) -> None:
        """Only one option pins the proxy's TLS, and only with TLS."""
        self.assertIn("one of them", self.wrong(ca_cert=__file__))
        self.assertIn("wss://", self.wrong(proxy_server="ws://tower.example"))
        parsed(proxy_server="ws://tower.example", ca_hash=None)
        parsed(ca_cert=__file__, ca_hash=None)


class AgentTests(SynchronousTestCase):
    def setUp(self) -> None:
        """Make a directory with a kubeconfig."""
        self.folder = Path(self.mktemp()).absolute()
        self.folder.mkdir()
        self.kubeconfig = self.folder / "kubeconfig"
        self.write_kubeconfig()
        self.reactor: Any = MemoryReactorClock()

    def write_kubeconfig(self, server: str = "https://member.example:6443") -> None:
        """Write the kubeconfig."""
        content = {
            "current-context": "c",
            "clusters": [{"name": "c", "cluster": {"server": server}}],
            "users": [{"name": "u", "user": {"token": "s3cret"}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        }
        self.kubeconfig.write_text(yaml.safe_dump(content))

    def make(self, *arguments: str, environ: dict[str, str] | None = None) -> Agent:
        """Make an agent from the join line."""
        places = (f"--state-dir={self.folder / 'state'}", f"--kubeconfig={self.kubeconfig}")
        service = makeService(parsed(*places, *arguments, environ=environ), self.reactor)
        assert isinstance(service, Agent)
        return service

    def start(self, service: Agent) -> list[Any]:
        """Start it; return its log events.  The proxy's name never resolves."""
        self.patch(self.reactor, "nameResolver", Unresolving())
        with capturedLogs() as events:
            service.startService()
        self.addCleanup(lambda: service.running and service.stopService())
        return list(events)

    def ends(self, *arguments: str) -> str:
        """Return the error line of the program."""
        ended = self.assertRaises(SystemExit, self.make, *arguments)
        text = str(ended)
        self.assertTrue(text.startswith("tower-agent: "), text)
        self.assertNotIn("\n", text)
        return text

    def test_starts(self) -> None:
        """It starts to connect, and logs no secret."""
        agent = self.make(environ={"TOWER_TOKEN": "t0ken"})
        events = self.start(agent)
        self.assertFalse(agent.uplink.ready)
        self.assertEqual(agent.uplink.state, "connecting")
        self.assertNotIn("t0ken", repr(events))
        self.assertNotIn("s3cret", repr(events))
        self.assertEqual([e for e in events if e["log_level"] is not LogLevel.info], [])

    def test_stops(self) -> None:
        """After a stop no timer is left, and another agent can use the state directory."""
        agent = self.make("--health-address=127.0.0.1:8081", "--metrics-port=9101")
        self.start(agent)
        self.assertEqual(len(self.reactor.tcpServers), 2)
        self.assertIn("in use by another Tower process", self.ends())
        self.successResultOf(agent.stopService())
        self.assertEqual(self.reactor.getDelayedCalls(), [])
        self.make()

    def test_key(self) -> None:
        """The agent's key is created once, and is private."""
        first = self.make()
        (path,) = (self.folder / "state").glob("agent-key*")
        self.assertEqual(path.stat().st_mode & 0o777, 0o600)
        key = path.read_bytes()
        self.start(first)
        self.successResultOf(first.stopService())
        self.make()
        self.assertEqual(path.read_bytes(), key)

    def with_secret(self, name: str) -> Agent:
        """Make an agent with its key in a Secret."""
        options = parsed(f"--key-secret={name}", f"--kubeconfig={self.kubeconfig}")
        service = makeService(options, self.reactor)
        assert isinstance(service, Agent)
        return service

    def test_key_secret(self) -> None:
        """With a Secret for the key there is no state directory; its problem is the tunnel's state."""
        agent = self.with_secret("tower-system/key")
        self.start(agent)
        self.reactor.pump([TIMEOUT, 0.0])
        self.assertIn("cannot get Secret tower-system/key", agent.uplink.state)
        self.successResultOf(agent.stopService())
        self.assertEqual(self.reactor.getDelayedCalls(), [])
        self.assertEqual([path.name for path in self.folder.iterdir()], ["kubeconfig"])

    def test_key_secret_without_namespace(self) -> None:
        """Outside of a pod the Secret needs a namespace."""
        self.patch(object_name, "SERVICE_ACCOUNT", self.folder)
        ended = self.assertRaises(SystemExit, self.with_secret, "key")
        self.assertIn("--key-secret NAMESPACE/key", str(ended))

    def test_follows_files(self) -> None:
        """A changed kubeconfig is followed."""
        agent = self.make()
        self.start(agent)
        self.write_kubeconfig("https://other.example:6443")
        self.reactor.advance(REFRESH)
        self.assertEqual(agent.member.host, "other.example")

    def test_follows_the_member(self) -> None:
        """A changed or damaged kubeconfig is checked at once; the state is that of the API server."""
        checked: list[bool] = []
        agent = self.make()
        self.start(agent)
        agent.member_health.check_now = lambda: checked.append(True)  # type: ignore[method-assign]
        for text in ("nothing", "nothing", None, "still nothing"):
            if text is None:
                self.write_kubeconfig("https://other.example:6443")
            else:
                self.kubeconfig.write_text(text)
            self.reactor.advance(REFRESH)
        self.assertEqual(len(checked), 3)
        self.assertIsNotNone(agent.member_health.status)
        self.assertIn("did not answer", agent.member_health.problem)

    def test_warnings(self) -> None:
        """Risks are logged; insecure options repeatedly, as critical."""
        names = ("system:monitoring", "kubeadm:cluster-admins")
        allowed = (f"--allow-system-identity={name}" for name in names)
        agent = self.make("--no-impersonation", "--allow-system-identities", *allowed, "--token=t0ken")
        events = self.start(agent)
        warnings = [str(eventAsText(e)) for e in events if e["log_level"] is LogLevel.warn]
        self.assertEqual(len(warnings), 3)
        self.assertIn("TOWER_TOKEN", "".join(warnings))
        for name in names:
            self.assertIn(f"--allow-system-identity {name}: ", "".join(warnings))
        loud = "".join(e["log_format"] for e in events if e["log_level"] is LogLevel.critical)
        self.assertIn("ALL users", loud)
        self.assertIn("--allow-system-identities is insecure", loud)
        with capturedLogs() as later:
            self.reactor.advance(600)
        self.assertEqual(len([e for e in later if e["log_level"] is LogLevel.critical]), 2)

    def test_build(self) -> None:
        """The first log line has the version and the build of the data path."""
        events = self.start(self.make())
        self.assertIn(f"tower-agent {VERSION} of cluster alpha: ", eventAsText(events[0]))

    def test_unusable_extensions(self) -> None:
        """The reason why compiled modules are not used is logged."""
        self.patch(agent_module, "WARNINGS", ["running without compiled modules: x"])
        events = self.start(self.make())
        self.assertIn("running without compiled modules: x", [e.get("text") for e in events])

    def test_kubernetes_service(self) -> None:
        """--kubernetes-service replaces the kubeconfig's server."""
        agent = self.make("--kubernetes-service=kubernetes.default.svc")
        self.assertEqual((agent.member.host, agent.member.port), ("kubernetes.default.svc", 443))

    def test_kubesphere_service(self) -> None:
        """--kubesphere-service adds a target; another target of that name is an error."""
        agent = self.make("--kubesphere-service=ks-apiserver.kubesphere-system.svc")
        self.start(agent)
        self.successResultOf(agent.stopService())
        self.assertIn("kubesphere", self.ends("--kubesphere-service=h", "--target=kubesphere=h:1"))

    def old(self, *arguments: str, **changes: str | None) -> Agent:
        """Make an agent for an old proxy."""
        places = (f"--state-dir={self.folder / 'state'}", f"--kubeconfig={self.kubeconfig}")
        options = Options({"TOWER_TOKEN": "t0ken"})
        without = {"host_key": None, "ca_hash": None, "proxy_server": "ws://tower.example:8080", **changes}
        options.parse([*line(**without), *places, *arguments])
        service = makeService(options, self.reactor)
        assert isinstance(service, Agent)
        return service

    def test_v1_warnings(self) -> None:
        """The log warns about the credential that an old proxy gets, without its value."""
        for flags, loud in (
            (["--insecure-v1-any-host-key"], 1),
            (["--insecure-v1-any-host-key", "--protocol=v1"], 1),
            (["--protocol=v1", f"--host-key={FINGERPRINT}"], 0),
        ):
            agent = self.old(*flags)
            events = self.start(agent)
            warnings = "".join(str(e) for e in events if e["log_level"] is LogLevel.warn)
            self.assertIn("sends its credential", warnings)
            critical = [e for e in events if e["log_level"] is LogLevel.critical]
            self.assertEqual(len(critical), loud)
            self.assertNotIn("s3cret", repr(events))
            self.assertNotIn("t0ken", repr(events))
            self.successResultOf(agent.stopService())
        self.assertNotIn("agent-key", [path.name for path in (self.folder / "state").iterdir()])

    def test_v1_health(self) -> None:
        """With an old proxy the API server is checked, too."""
        agent = self.old("--protocol=v1", "--insecure-v1-any-host-key")
        self.start(agent)
        self.reactor.pump([TIMEOUT, 0.0])
        self.assertIn("member.example:6443 did not answer", agent.member_health.problem)
        self.successResultOf(agent.stopService())
        self.assertEqual(self.reactor.getDelayedCalls(), [])

    def test_v1_impossible(self) -> None:
        """An API server that old proxies cannot use ends the program."""
        self.write_kubeconfig("https://member.example:6443/prefix")
        ended = self.assertRaises(SystemExit, self.old, "--insecure-v1-any-host-key")
        self.assertIn("kubesphere-v1", str(ended))
        self.write_kubeconfig()
        self.old("--insecure-v1-any-host-key")

    def test_v1_rotation(self) -> None:
        """When credentials change, the agent reconnects to an old proxy, but not to a new one."""
        for make, renewals in (
            (self.make, 0),
            (lambda: self.old("--protocol=v1", "--insecure-v1-any-host-key"), 1),
        ):
            renewed: list[bool] = []
            self.write_kubeconfig()
            agent = make()
            self.start(agent)
            self.patch(agent.uplink, "renew", lambda _limit, calls=renewed: calls.append(True))
            self.kubeconfig.write_text(self.kubeconfig.read_text() + "\n")
            self.reactor.advance(REFRESH)
            self.assertEqual(renewed, [])
            self.write_kubeconfig("https://other.example:6443")
            self.reactor.advance(REFRESH)
            self.assertEqual(len(renewed), renewals)
            self.successResultOf(agent.stopService())

    def test_published_authority(self) -> None:
        """Hole 2: a CA with a published key is rejected, at any position in the file."""
        file = self.folder / "ca.crt"
        for content in (PUBLISHED, pem(family()[0][0]).decode() + PUBLISHED):
            file.write_text(content)
            ended = self.assertRaises(
                SystemExit,
                self.old,
                "--insecure-v1-any-host-key",
                proxy_server="wss://tower.example",
                ca_cert=str(file),
            )
            self.assertIn("is public", str(ended))
            self.assertIn(str(file), str(ended))
        file.write_bytes(pem(family()[0][0]))
        self.old("--insecure-v1-any-host-key", proxy_server="wss://tower.example", ca_cert=str(file))

    def test_bad_kubeconfig(self) -> None:
        """An invalid kubeconfig ends the program with its name."""
        self.kubeconfig.write_text("nothing")
        self.assertIn(str(self.kubeconfig), self.ends())

    def test_open_state(self) -> None:
        """A state directory that other users can read is rejected."""
        state = self.folder / "state"
        state.mkdir()
        state.chmod(0o755)
        self.assertIn(str(state), self.ends())

    def test_taken_port(self) -> None:
        """A port in use ends the program with its number."""

        def taken(port: int, factory: object, backlog: int = 50, interface: str = "") -> None:
            raise CannotListenError(interface, port, OSError(98, "Address already in use"))

        self.patch(self.reactor, "listenTCP", taken)
        for option in ("--health-address=127.0.0.1:8081", "--metrics-port=8081"):
            text = self.ends(option)
            self.assertIn("8081", text)
            self.assertIn("in use", text)

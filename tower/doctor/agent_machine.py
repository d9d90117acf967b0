"""``tower doctor --agent``: an agent's machine or pod, with the agent's own options."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from twisted.python import usage

from tower.conch.transport.keys import KeyPair
from tower.doctor.findings import Course, Finding, Step, examine, fail, judged, ok
from tower.doctor.machine import Directory, ReadOnly, open_files
from tower.doctor.member import AgentMemberSteps
from tower.doctor.network import Network
from tower.doctor.route import CLOCK, ServerRoute, Trust
from tower.doctor.tunnel import TunnelChecks
from tower.errors import ConfigurationError
from tower.kube.apiserver import APIServer
from tower.kube.member_cures import agent_texts
from tower.member.key_secret import KeySecret, KeySecretFailed
from tower.member.member_access import create_checker, create_client
from tower.member.options import AGENT_KEY, Options
from tower.net.tls.ca_pinning import strict_context
from tower.options.errors import OptionErrors, one_line
from tower.v2.known_proxies import KnownProxies


async def examine_agent(
    network: Network, arguments: Sequence[str], environ: Mapping[str, str], now: Callable[[], float]
) -> list[Finding]:
    """Return the findings about the agent with these arguments and variables."""
    options = Options(environ)
    try:
        options.parse(arguments)
    except usage.UsageError as e:
        errors = e.errors if isinstance(e, OptionErrors) else (e,)
        return [
            Finding("options", judged(one_line(each), "correct this option or variable")) for each in errors
        ]
    agent = _AgentMachine(network, options, environ, now)
    await agent.read_secret()
    found = [Finding("options", ok("valid")), *await examine(agent.courses())]
    is_misset = any(each.check == CLOCK and each.verdict.grade == "FAIL" for each in found)
    # tokens and certificates of the API server would only fail for the same reason
    return [*found, *await Course(agent.member_steps()).run(CLOCK if is_misset else "")]


class _AgentMachine:
    """The agent of valid *options*."""

    def __init__(
        self, network: Network, options: Options, environ: Mapping[str, str], now: Callable[[], float]
    ) -> None:
        self._network = network
        self._options = options
        self._environ = environ
        self._now = now
        self._secret: KeySecret | None = None
        self._problem = ""

    async def read_secret(self) -> None:
        """Read the Secret with the agent's key, if an option names it; nothing is written."""
        options, reactor = self._options, self._network.reactor
        if options["key-secret"]:
            try:
                client = create_client(reactor, reactor, self._server())
                secret = KeySecret(reactor, client, options["key-secret"].in_pod(), options["name"])
                await secret.refresh()
            except (ConfigurationError, KeySecretFailed) as e:
                self._problem = str(e)
            else:
                self._secret = secret

    def courses(self) -> list[Course]:
        """Return the checks of the machine and of the tunnel."""
        options = self._options
        steps: list[Step] = []
        if not options["key-secret"]:
            steps = Directory(options.state_dir, "tower-agent", is_required=False).steps()
        return [
            Course([Step("open files", open_files)]),
            Course([*steps, *self._tunnel_steps()]),
        ]

    def _tunnel_steps(self) -> list[Step]:
        options = self._options
        hashes, ca_file = options["ca-hashes"], options["ca-cert"]
        if hashes:
            cure = f"if it was changed on purpose, take --ca-hash from a new 'tower join {options['name']}'"
        else:
            cure = f"set --ca-hash as in the line that 'tower join {options['name']}' prints"
        if self._problem:
            cure = "check --key-secret, and the access to the cluster"
            return [Step("agent key", lambda: judged(self._problem, cure))]
        place = self._secret or options.state_dir
        try:
            state = self._secret or ReadOnly(options.state_dir)
            text = state.read(AGENT_KEY)
            key = None if text is None else KeyPair.from_openssh(text)
        except (ConfigurationError, ValueError) as e:
            problem = f"{place}/{AGENT_KEY}: {e}"
            return [Step("agent key", lambda: fail(problem, "restore it, or delete it and join again"))]
        known = KnownProxies(state, options["host-keys"], hashes)
        trust = Trust(
            [*hashes, *known.ca_hashes()] if hashes else (),
            lambda: strict_context(None if ca_file is None else str(ca_file)),
            cure=cure,
        )
        route = ServerRoute(self._network, options.server, self._environ, trust, self._now)
        token = bool(options.secret("token"))
        return [
            *route.steps(),
            *TunnelChecks(route, options["name"], known.pinned, key, token, options.may_speak_v1).steps(),
        ]

    def member_steps(self) -> list[Step]:
        """Return the checks of the API server."""
        options = self._options
        kubeconfig = options["kubeconfig"]
        try:
            server = self._server()
        except ConfigurationError as e:
            problem = str(e)
            return [
                Step("access to the cluster", lambda: judged(problem, "correct --kubeconfig, or that file"))
            ]
        checker = create_checker(
            self._network.reactor,
            self._network.reactor,
            server,
            agent_texts(str(kubeconfig or ""), server.access),
            epoch=self._now,
            impersonate=not options["no-impersonation"],
        )
        renewal = f"write a new one to {kubeconfig}" if kubeconfig else "restart the pod"
        return AgentMemberSteps(checker.check, self._now, renewal).steps()

    def _server(self) -> APIServer:
        kubeconfig, service = self._options["kubeconfig"], self._options["kubernetes-service"]
        if kubeconfig:
            return APIServer.from_kubeconfig(str(kubeconfig), service)
        return APIServer.in_cluster(self._environ, service)

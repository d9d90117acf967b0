"""`tower doctor`: run the checks, print the findings, and write the bundle."""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any, cast

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from tower.cli.client import UsageFailed
from tower.cli.login.chosen_context import ChosenContext, choose_context
from tower.cli.output import note
from tower.cli.values import ROLE
from tower.doctor.bundle import write_bundle
from tower.doctor.findings import Finding, as_json, as_text, exit_code, judged, warn
from tower.doctor.network import Network
from tower.errors import ConfigurationError, one_line
from tower.kube.kubeconfig import KubeAccess
from tower.kube.rest.kubeconfig_files import KubeconfigFiles
from tower.kube.rest.rest_client import RestClient
from tower.kube.rest.rest_config import RestConfig
from tower.reactor.interfaces import IReactor

#: State directory of a proxy without ``--state-dir``.
DEFAULT_STATE_DIR = "/var/lib/tower"

FindAccess = Callable[[argparse.Namespace, Mapping[str, str]], KubeAccess]
Findings = Coroutine[Any, Any, list[Finding]]


def doctor(options: argparse.Namespace, environ: Mapping[str, str], find_access: FindAccess) -> int:
    """Run the checks that *options* choose; return the exit code.

    :param find_access: returns the administrator's access to Tower's API.
    :raise UsageFailed: the options choose nothing.
    """
    from twisted.internet import reactor

    network = Network(reactor)  # type: ignore[arg-type]  # the module is typed as a package
    findings = _run(reactor, _examination(network, options, environ, find_access))
    print(as_json(findings) if options.output == "json" else as_text(findings), flush=True)
    if options.bundle:
        directory = Path(options.state_dir) if options.state_dir else None
        write_bundle(Path(options.bundle), findings, environ, directory, options.log)
        note(f"bundle written to {options.bundle}")
    return exit_code(findings)


def _examination(
    network: Network,
    options: argparse.Namespace,
    environ: Mapping[str, str],
    find_access: FindAccess,
) -> Findings:
    """Return the checks, not yet started."""
    if options.log and not options.bundle:
        raise UsageFailed("--log is for --bundle: add --bundle FILE, or omit --log")
    if options.agent is not None:
        if options.cluster:
            raise UsageFailed("--agent has the cluster in its own options: omit CLUSTER")
        from tower.doctor.agent_machine import examine_agent

        return examine_agent(network, options.agent, environ, time.time)
    person = _person(options, environ)
    if person is not None:
        from tower.doctor.person import examine_kubeconfig

        return examine_kubeconfig(network, person.files, person.context, environ, time.time)
    if options.cluster:
        from tower.doctor.cluster import examine_cluster

        return examine_cluster(network, find_access(options, environ), options.cluster, environ, time.time)
    if options.host_kubeconfig and not options.state_dir:
        return _host(options, environ)
    directory = Path(options.state_dir or DEFAULT_STATE_DIR)
    if not options.state_dir and not os.path.exists(directory):
        raise UsageFailed(
            f"{directory} does not exist: give --state-dir DIR on the proxy's machine, --agent with the "
            "options of an agent, --kubeconfig FILE, --context NAME of your own kubeconfig, or "
            "--host-kubeconfig FILE"
        )
    from tower.doctor.proxy_machine import examine_proxy

    machine = examine_proxy(network, directory, environ, time.time)
    if options.host_kubeconfig or (directory / ROLE).exists():
        return _both(machine, _host(options, environ))
    return machine


def _person(options: argparse.Namespace, environ: Mapping[str, str]) -> ChosenContext | None:
    """Return the context to check: from --kubeconfig or, if no proxy is given, the user's own; None: none.

    :raise UsageFailed: the context cannot be chosen.
    """
    if options.kubeconfig and not options.cluster:
        path = Path(options.kubeconfig)
        return ChosenContext(KubeconfigFiles((path,)), options.context, None)  # reading it is a check, too
    if not options.kubeconfig and (options.state_dir or options.host_kubeconfig):
        return None
    if not (options.cluster or options.context) and os.path.exists(DEFAULT_STATE_DIR):
        return None
    chosen = choose_context(options, environ)
    if chosen is None or (options.cluster and chosen.cluster != options.cluster):
        return None
    return chosen if chosen.cluster or options.context else None


async def _both(first: Findings, second: Findings) -> list[Finding]:
    return [*await first, *await second]


async def _host(options: argparse.Namespace, environ: Mapping[str, str]) -> list[Finding]:
    """Return the findings about the host cluster of the proxy."""
    from twisted.internet import reactor as installed

    from tower.doctor.host import examine_host

    reactor = cast(IReactor, installed)
    try:
        if options.host_kubeconfig:
            config = RestConfig.from_kubeconfig(options.host_kubeconfig, reactor, environ)
        elif "KUBERNETES_SERVICE_HOST" in environ:
            config = RestConfig.in_cluster(reactor, environ)
        else:
            cure = "add --host-kubeconfig FILE, the file of tower-proxy --kubeconfig"
            return [Finding("host cluster", warn("not checked: its kubeconfig is not known", cure))]
    except ConfigurationError as e:
        return [Finding("host cluster", judged(one_line(e), "correct the kubeconfig"))]
    client = RestClient(reactor, config)
    try:
        return await examine_host(client, config.address, options.namespace, environ, time.time)
    finally:
        client.close()


def _run(reactor: Any, examination: Findings) -> list[Finding]:
    """Run *reactor* until the findings are complete; raise `KeyboardInterrupt` after Ctrl-C."""
    results: list[Any] = []

    def begin() -> None:
        Deferred.fromCoroutine(examination).addBoth(results.append).addBoth(lambda _: reactor.stop())

    reactor.callWhenRunning(begin)
    reactor.run()
    if not results:
        raise KeyboardInterrupt
    (result,) = results
    if isinstance(result, Failure):
        result.raiseException()
    found: list[Finding] = result
    return found

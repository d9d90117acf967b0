"""Entry point: parse the command line, call the API, print the result or one error line."""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import tower
from tower.cli.arguments import parser
from tower.cli.client import GROUP_PATH, CallFailed, CommandFailed, TowerClient, UsageFailed
from tower.cli.completion import complete
from tower.cli.login.chosen_context import ChosenContext, choose_context, no_proxy
from tower.cli.output import note
from tower.cli.parser import USAGE
from tower.cli.values import ROLE
from tower.errors import ConfigurationError, TowerError
from tower.escaping import escaped
from tower.kube.kubeconfig import KubeAccess, load_kubeconfig
from tower.kube.rest.kubeconfig_files import cluster_of
from tower.kube.rest.well_known import OWN_RESOURCE

#: Denial of Tower's API by a cluster's own API server.
_OF_MEMBER = re.compile(r'cannot \w+ resource ".*" in API group "cluster\.kubesphere\.io"')

#: A proxy's build at the end of ``compiler`` in its answer to ``/version``.
_BUILD = re.compile(r"\((?:native|pure)\)$")

#: HTTP status of requests with an invalid value.
_WRONG = (400, 422)

#: The administrator's kubeconfig in the state directory of a running proxy.
ADMIN_KUBECONFIG = "admin.kubeconfig"


def main(
    argv: Sequence[str] | None = None,
    client: Callable[[KubeAccess], TowerClient] = TowerClient,
    environ: Mapping[str, str] = os.environ,
) -> int:
    """Run the command; return its exit code.

    :param argv: arguments; default: of this process.
    :param client: makes the client of the API.
    """
    known = parser(environ)
    if "_ARGCOMPLETE" in environ:
        complete(known, lambda options: client(_given_access(options, environ)))
    options = known.parse_args(argv)
    try:
        if "agent" in options:
            from tower.cli.doctor import doctor  # installs Twisted's reactor

            return doctor(options, environ, find_access)
        text = _run(options, client, environ)
        if text:
            print(text, flush=True)
    except TowerError as e:
        print(f"tower: {_described(e, options)}", file=sys.stderr)
        return USAGE if _is_usage(e) else 1
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # keeps the interpreter from flushing again when it exits
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


def _run(
    options: argparse.Namespace, client: Callable[[KubeAccess], TowerClient], environ: Mapping[str, str]
) -> str:
    if "text" in options:
        return str(options.text(options))
    if "own" in options and not (options.kubeconfig or options.state_dir or options.context):
        return str(options.own(options))
    if "version" in options:
        return _version(options, client, environ)
    access = find_access(options, environ)
    caller = client(access)
    is_own = not _by_kubeconfig(options)
    try:
        if not is_own and cluster_of(access.server) is None:
            is_own = _check_server(caller)
        if "forward" in options:
            from tower.cli.forward import forward  # installs Twisted's reactor

            forward(caller, options)
            return ""
        run: Callable[[TowerClient, argparse.Namespace], str] = options.run
        return run(caller, options)
    except CallFailed as e:
        if not is_own and e.code == 403 and _OF_MEMBER.search(str(e)):
            raise CommandFailed(
                f"this kubeconfig is for one cluster only ({e}): use --state-dir or an administrator's "
                "kubeconfig"
            ) from e
        raise


def find_access(options: argparse.Namespace, environ: Mapping[str, str]) -> KubeAccess:
    """Return the address of the API and the credential for it.

    :raise CommandFailed: no option or kubeconfig names a proxy, or the state directory has no kubeconfig.
    """
    if _by_kubeconfig(options):
        chosen = choose_context(options, environ)
        if chosen is None:
            raise no_proxy(environ)
        _check_scope(chosen, options)
        access = chosen.files.load(chosen.context)
        if access.plugin is None:
            return access
        from tower.kube.rest.plugin_once import with_credential

        return with_credential(access, environ)[0]
    path = Path(options.state_dir) / ADMIN_KUBECONFIG
    try:
        return load_kubeconfig(path, options.context)
    except ConfigurationError as e:
        if isinstance(e.__cause__, FileNotFoundError):
            _check_role(options.state_dir)
            raise CommandFailed(
                f"{path} not found: start tower-proxy with --state-dir {options.state_dir}; a running "
                "tower-proxy recreates the file within 10 s"
            ) from e
        raise


def _by_kubeconfig(options: argparse.Namespace) -> bool:
    """Return whether access is by a kubeconfig: --kubeconfig or, without --state-dir, the user's own."""
    return bool(options.kubeconfig or not options.state_dir)


def _given_access(options: argparse.Namespace, environ: Mapping[str, str]) -> KubeAccess:
    """Return the access for shell completion, which never uses the user's own kubeconfig.

    :raise CommandFailed: there is none.
    """
    if not (options.kubeconfig or options.state_dir):
        raise no_proxy(environ)
    return find_access(options, environ)


def _check_role(directory: str) -> None:
    """Reject the state directory of a proxy in a host cluster that does not serve.

    :raise CommandFailed: with the leader, if it is another one.
    """
    try:
        role = Path(directory, ROLE).read_text(errors="replace").strip()
    except OSError:
        return
    if role.startswith("standby: "):
        raise CommandFailed(
            f"the proxy with --state-dir {directory} is a {role}: run the command on that proxy's "
            "machine or in its pod, or with --kubeconfig and a file from 'tower admin-kubeconfig'"
        )
    raise CommandFailed(
        f"the proxy with --state-dir {directory} does not serve: start tower-proxy; if it runs, 'tower "
        f"--state-dir {directory} doctor' shows the reason"
    )


def _check_scope(chosen: ChosenContext, options: argparse.Namespace) -> None:
    """Reject a user's kubeconfig, which has no access to Tower's API.

    :raise UsageFailed: *chosen* is for one cluster only, and the command does not forward to it.
    """
    if chosen.cluster is None or ("forward" in options and options.name == chosen.cluster):
        return
    which = f" --context {chosen.context}" if chosen.context else ""
    raise UsageFailed(
        f"this kubeconfig is for cluster {chosen.cluster} only: {chosen.files}{which}: use --state-dir or an "
        "administrator's kubeconfig"
    )


def _check_server(client: TowerClient) -> bool:
    """Return whether the server is a proxy; False: it has no API for clusters, or rejects the credential.

    The API server of a cluster with Tower's CRDs, which would accept requests for clusters, is an error.

    :raise UsageFailed: the server is not a proxy; the text has the cure.
    """
    try:
        found = client.call("GET", GROUP_PATH).get("resources")
    except CallFailed as e:
        if e.code in (401, 404):
            return False  # the command's own request fails with the reason
        raise
    if not isinstance(found, list):
        return False
    if OWN_RESOURCE in [each.get("name") for each in found if isinstance(each, dict)]:
        return True
    raise UsageFailed(
        f"{client.access.server} is a cluster's API server, not a Tower proxy: use "
        "--state-dir on the proxy's machine or in its pod, or a kubeconfig from 'tower admin-kubeconfig'"
    )


def _version(
    options: argparse.Namespace, client: Callable[[KubeAccess], TowerClient], environ: Mapping[str, str]
) -> str:
    text = f"tower {tower.VERSION}"
    if options.client:
        return text
    if not (options.kubeconfig or options.state_dir or options.context):
        note("to show the proxy's version, add --state-dir, --kubeconfig or --context")
        return text
    caller = client(find_access(options, environ))
    if _by_kubeconfig(options):
        _check_server(caller)
    answer = caller.call("GET", "/version")
    build = _BUILD.search(str(answer.get("compiler")))
    shown = f"{text}\nproxy {escaped(str(answer.get('gitVersion', 'unknown')))}"
    return f"{shown} {build[0]}" if build else shown


def _is_usage(error: TowerError) -> bool:
    """Return whether the command line is wrong, also if only the proxy can find that."""
    return isinstance(error, UsageFailed) or (isinstance(error, CallFailed) and error.code in _WRONG)


def _described(error: TowerError, options: argparse.Namespace) -> str:
    if isinstance(error, CallFailed) and error.code == 401 and "text" not in options:
        return f"{escaped(str(error))} (the proxy renews the file in its state directory while it runs)"
    return escaped(str(error).replace("\n", " "))

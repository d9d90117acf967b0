"""Commands and options of `tower`."""

from __future__ import annotations

import argparse
import ipaddress
import re
from collections.abc import Mapping
from typing import NoReturn

import tower
from tower.cli import access, clusters, join, rotate, ssh_flags
from tower.cli.manifest import IMAGE

_EPILOG = """
Commands call Tower's API.  Give --state-dir on the machine of the proxy, or
--kubeconfig with an administrator's kubeconfig.  The environment variables
TOWER_STATE_DIR and TOWER_KUBECONFIG are equivalent to these options.
'tower COMMAND --help' describes each command.
"""


class Parser(argparse.ArgumentParser):
    """Parser whose errors are one line and exit code 1, as all errors of this command."""

    def error(self, message: str) -> NoReturn:
        """Print the error and exit."""
        self.exit(1, f"{self.prog}: {message}; see '{self.prog} --help'\n")


def parser(environ: Mapping[str, str]) -> argparse.ArgumentParser:
    """Return the parser.

    Its result has `run`, except for two commands: ``forward`` sets `forward`, and ``version`` sets `version`.
    """
    top = Parser(
        prog="tower",
        description="Manage the clusters behind Tower, their agents, and kubeconfigs of users.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    top.add_argument("--version", action="version", version=f"tower {tower.__version__}")
    top.add_argument(
        "--state-dir",
        metavar="DIR",
        default=environ.get("TOWER_STATE_DIR"),
        help="state directory of the proxy on this machine",
    )
    top.add_argument(
        "--kubeconfig",
        metavar="FILE",
        default=environ.get("TOWER_KUBECONFIG"),
        help="an administrator's kubeconfig for Tower's API; takes precedence over --state-dir",
    )
    top.add_argument(
        "--context", metavar="NAME", help="context of --kubeconfig (default: its current context)"
    )
    commands = top.add_subparsers(title="commands", metavar="COMMAND", required=True, parser_class=Parser)
    _clusters(commands)
    _join(commands)
    _kubeconfig(commands)
    _credentials(commands)
    _forward(commands)
    _rotate(commands)
    version = _command(commands, "version", "show the versions of this command and of the proxy")
    version.add_argument("--client", action="store_true", help="show only the version of this command")
    version.set_defaults(version=True)
    return top


Commands = argparse._SubParsersAction  # noqa: SLF001 - argparse has no public name for it


def _command(commands: Commands[Parser], name: str, summary: str, more: str = "") -> Parser:
    text = summary[0].upper() + summary[1:] + "."
    return commands.add_parser(name, help=summary, description=f"{text}  {more}".strip(), allow_abbrev=False)


def _clusters(commands: Commands[Parser]) -> None:
    cluster = _command(commands, "cluster", "add, change, show, enable, disable and remove clusters")
    inner = cluster.add_subparsers(title="commands", metavar="COMMAND", required=True, parser_class=Parser)
    for name, run, summary, more in (
        (
            "add",
            clusters.add,
            "add a cluster to the proxy",
            "Its agent joins with 'tower join'; with --type ssh, the proxy connects to its nodes.",
        ),
        (
            "set",
            clusters.change,
            "change the node settings of a cluster of type ssh",
            "An empty value removes a setting; NAME= removes a target.",
        ),
        ("show", clusters.show, "show a cluster, its conditions, and its agents or nodes", ""),
        ("enable", clusters.enable, "enable a disabled cluster", ""),
        (
            "disable",
            clusters.disable,
            "disable a cluster and keep its record",
            "Closes its tunnels, its port and its users' connections at once.  Credentials are kept.",
        ),
        (
            "remove",
            clusters.remove,
            "remove a cluster, its agents' keys and its users' credentials",
            "Closes all connections to it at once.",
        ),
        (
            "agents",
            clusters.agents,
            "list a cluster's agent keys, tokens of KubeSphere Tower agents, and live tunnels",
            "One line for each tunnel, and one for each key or token without a tunnel.",
        ),
        (
            "revoke",
            clusters.revoke,
            "revoke an agent's key, or a token of KubeSphere Tower agents",
            "Closes its tunnels at once.  To join again, the agent needs a new join token.",
        ),
        (
            "forget-host-key",
            clusters.forget_host_key,
            "forget the learned host key of a node",
            "The node's next key is learned.  First compare it with 'ssh-keygen -lf' on the node.",
        ),
    ):
        command = _command(inner, name, summary, more)
        command.add_argument("name", metavar="NAME", help="name of the cluster")
        command.set_defaults(run=run)
        if name in ("show", "agents"):
            _output(command, "table", "json", "yaml")
        if name == "add":
            text = "proxy: its agent connects to the proxy; ssh: the proxy connects to its nodes"
            _choice(command, "--type", text, "proxy", "ssh")
            command.add_argument(
                "--port",
                metavar="N",
                type=_count,
                help="the cluster's own port at the proxy (default: a free port of --cluster-ports)",
            )
        if name in ("add", "set"):
            ssh_flags.add_arguments(command)
        if name == "forget-host-key":
            command.add_argument("node", metavar="NODE", help="name, host or host:port of the node")
        if name == "revoke":
            command.add_argument(
                "fingerprint",
                metavar="AGENT",
                help="key (SHA256:...) or token (v1:...), from 'tower cluster agents'",
            )
    listing = _command(inner, "list", "list all clusters")
    _output(listing, "table", "wide", "json", "yaml", "name")
    listing.set_defaults(run=clusters.list_all)


def _join(commands: Commands[Parser]) -> None:
    command = _command(
        commands,
        "join",
        "print the command line that starts a cluster's agent",
        "The line pipes a new join token to the agent.  Run it on a machine that reaches the cluster's API "
        "server and add --kubeconfig FILE; in a pod of the cluster, run it unchanged.  With --protocol v1, "
        "the line starts an unmodified KubeSphere Tower agent.  That agent has no key: its token does not "
        "expire, and appears in its command line and log.",
    )
    command.add_argument("name", metavar="NAME", help="name of the cluster")
    _choice(command, "--protocol", "v2: Tower's agent; v1: KubeSphere Tower's agent", "v2", "v1")
    command.add_argument("--ttl", metavar="DURATION", help="v2: lifetime of the token (default: 1h)")
    command.add_argument(
        "--uses",
        metavar="N",
        type=_count,
        help="v2: number of agents that may join with the token (default: 1)",
    )
    command.add_argument(
        "--token-file",
        metavar="FILE",
        help="v1: existing token of the agents, to import instead of a new one; -: standard input",
    )
    command.add_argument(
        "--ca-file",
        metavar="FILE",
        help="v1: file to write the proxy's CA to; the agent then uses https and verifies the proxy with it",
    )
    text = (
        "command: a shell line; env (v2 only): a line without shell syntax, with the token in the "
        "environment; manifest (v1 only): objects for kubectl apply, with https and the CA"
    )
    _choice(command, "--format", text, "command", "env", "manifest")
    command.add_argument("--image", metavar="IMAGE", help=f"v1: image in the manifest (default: {IMAGE})")
    command.set_defaults(run=join.join)


def _kubeconfig(commands: Commands[Parser]) -> None:
    config = _command(
        commands,
        "kubeconfig",
        "issue a kubeconfig for one user of one cluster",
        "It is valid for that cluster only.  The cluster's RBAC authorizes the user's requests.",
    )
    config.add_argument("name", metavar="NAME", help="name of the cluster")
    _grantee(config)
    config.add_argument(
        "--group", metavar="GROUP", action="append", default=[], help="group of the user; repeatable"
    )
    text = "front-door: the proxy's --secure-port, with a path; port: the cluster's own port"
    _choice(config, "--via", text, "front-door", "port")
    config.set_defaults(run=access.kubeconfig)
    admin = _command(
        commands,
        "admin-kubeconfig",
        "issue a kubeconfig for an administrator of Tower",
        "Use it with 'tower --kubeconfig FILE' or kubectl, on any machine.  It is not valid for clusters.",
    )
    _grantee(admin)
    admin.set_defaults(run=access.admin_kubeconfig)


def _grantee(command: Parser) -> None:
    command.add_argument("--user", metavar="USER", required=True, help="user name")
    command.add_argument(
        "--ttl", metavar="DURATION", help="lifetime (default: 8h, at most the proxy's --max-credential-ttl)"
    )
    _choice(command, "--auth", "credential type: client certificate or bearer token", "cert", "token")
    command.add_argument(
        "-o", "--output", metavar="FILE", help="file to write, with mode 0600 (default: standard output)"
    )


def _credentials(commands: Commands[Parser]) -> None:
    credential = _command(commands, "credential", "list and revoke credentials of users")
    inner = credential.add_subparsers(title="commands", metavar="COMMAND", required=True, parser_class=Parser)
    listing = _command(inner, "list", "list the credentials that have not expired")
    listing.add_argument("--cluster", metavar="NAME", help="credentials for this cluster only")
    _output(listing, "table", "json", "yaml")
    listing.set_defaults(run=access.list_credentials)
    revoke = _command(inner, "revoke", "revoke a credential", "Closes its connections at once.")
    revoke.add_argument("id", metavar="ID", help="id, from 'tower credential list'")
    revoke.set_defaults(run=access.revoke_credential)


def _forward(commands: Commands[Parser]) -> None:
    forward = _command(
        commands,
        "forward",
        "forward TCP connections from this machine to a target of a cluster",
        "Targets are set with --target of the agent, or of a cluster of type ssh.  Runs until Ctrl-C.",
    )
    forward.add_argument("name", metavar="NAME", help="name of the cluster")
    forward.add_argument("target", metavar="TARGET", help="name of the target")
    forward.add_argument(
        "--listen",
        metavar="HOST:PORT",
        type=listen_address,
        required=True,
        help="listening address; PORT alone: on 127.0.0.1",
    )
    forward.add_argument("--user", metavar="USER", help="user name in the cluster (default: your login name)")
    forward.set_defaults(forward=True)


def _rotate(commands: Commands[Parser]) -> None:
    command = _command(commands, "rotate", "replace keys and CAs of the proxy while old and new ones work")
    inner = command.add_subparsers(title="commands", metavar="COMMAND", required=True, parser_class=Parser)
    for target, (summary, more) in rotate.TARGETS.items():
        one = _command(inner, target, summary, more)
        end = one.add_mutually_exclusive_group()
        end.add_argument(
            "--after",
            metavar="DURATION",
            help="latest end, such as 30d (default: none)",
        )
        end.add_argument("--now", action="store_true", help="finish now, even if something lacks the new key")
        end.add_argument(
            "--cancel", action="store_true", help="return to the old key (not once it is replaced)"
        )
        one.set_defaults(run=rotate.rotate, target=target)
    status = _command(inner, "status", "show rotations and what they wait for")
    _output(status, "table", "wide", "json", "yaml")
    status.set_defaults(run=rotate.status)


def _output(command: Parser, *forms: str) -> None:
    _choice(command, "-o --output", "output format", *forms)


def _choice(command: Parser, flags: str, text: str, *choices: str) -> None:
    """Add an option whose default is the first of *choices*."""
    text += " (default: %(default)s)"
    command.add_argument(*flags.split(), choices=choices, default=choices[0], help=text)


def _count(text: str) -> int:
    if re.fullmatch(r"[0-9]{1,6}", text) is None or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of 1 or more")
    return int(text)


def listen_address(text: str) -> tuple[str, int]:
    """Return host and port of `HOST:PORT`, `[IPv6]:PORT` or `PORT` (on 127.0.0.1)."""
    host, _, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]") if host.startswith("[") else host
    if host == "localhost" or not host:
        host = "127.0.0.1"
    try:
        ipaddress.ip_address(host)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r}: {host!r} is not an IP address: give HOST:PORT, such as 127.0.0.1:5432"
        ) from None
    if re.fullmatch(r"[0-9]{1,5}", port) is None or int(port) > 65535:
        raise argparse.ArgumentTypeError(
            f"{text!r} has no port from 0 to 65535: give one, as in 127.0.0.1:5432"
        )
    return host, int(port)

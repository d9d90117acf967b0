"""The grammar of the `tower` command."""

from __future__ import annotations

import argparse
import ipaddress
import re
from collections.abc import Mapping
from typing import NoReturn

import tower
from tower.cli import access, clusters, join, ssh_flags
from tower.cli.manifest import IMAGE

_EPILOG = """
Tower's API is found in the state directory of a proxy that runs on this machine (--state-dir), or by an
administrator's kubeconfig (--kubeconfig).  TOWER_STATE_DIR and TOWER_KUBECONFIG say the same.
'tower COMMAND --help' says more about each command.
"""


class Parser(argparse.ArgumentParser):
    """Ends with one line and exit code 1, like everything else that goes wrong here."""

    def error(self, message: str) -> NoReturn:
        """Say what is wrong, and where the help is."""
        self.exit(1, f"{self.prog}: {message}; '{self.prog} --help' shows how\n")


def parser(environ: Mapping[str, str]) -> argparse.ArgumentParser:
    """Return the parser; what it makes has `run`, or `forward` or `version` for the commands of their own."""
    top = Parser(
        prog="tower",
        description="Clusters behind Tower, their agents, and ways in for people.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    top.add_argument("--version", action="version", version=f"tower {tower.__version__}")
    top.add_argument(
        "--state-dir",
        metavar="S",
        default=environ.get("TOWER_STATE_DIR"),
        help="state directory of the proxy on this machine",
    )
    top.add_argument(
        "--kubeconfig",
        metavar="F",
        default=environ.get("TOWER_KUBECONFIG"),
        help="an administrator's kubeconfig for Tower's API; goes before --state-dir",
    )
    top.add_argument("--context", metavar="C", help="context of that kubeconfig (default: its current one)")
    commands = top.add_subparsers(title="commands", metavar="COMMAND", required=True, parser_class=Parser)
    _clusters(commands)
    _join(commands)
    _kubeconfig(commands)
    _credentials(commands)
    _forward(commands)
    version = _command(commands, "version", "show the version of this command and of the proxy")
    version.add_argument("--client", action="store_true", help="this command's alone")
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
            "make a cluster known to the proxy",
            "Its agent joins with the line of 'tower join'; with --type ssh its nodes are reached instead.",
        ),
        (
            "set",
            clusters.change,
            "change how the nodes of a cluster of type ssh are reached",
            "An empty value takes one away, as does NAME= for a target.",
        ),
        ("show", clusters.show, "show one cluster, its conditions, and its agents or nodes", ""),
        ("enable", clusters.enable, "let a cluster be used again", ""),
        (
            "disable",
            clusters.disable,
            "cut a cluster off and keep its record",
            "Its tunnels, its own port and its users' connections end at once; credentials stay for later.",
        ),
        (
            "remove",
            clusters.remove,
            "forget a cluster, its agents' keys and its users' credentials",
            "Everything that runs to it ends at once.",
        ),
        (
            "agents",
            clusters.agents,
            "show a cluster's enrolled keys, its tokens for old agents, and live tunnels",
            "One line for each tunnel, and one for each key or token that has none.",
        ),
        (
            "revoke",
            clusters.revoke,
            "take one agent's key back, or a token of old agents",
            "Its tunnels end at once; it needs a new join token to come back.",
        ),
        (
            "forget-host-key",
            clusters.forget_host_key,
            "forget the host key that was learned of a node",
            "The key that it shows next is learned: compare it with 'ssh-keygen -lf' on the node first.",
        ),
    ):
        command = _command(inner, name, summary, more)
        command.add_argument("name", metavar="NAME", help="name of the cluster")
        command.set_defaults(run=run)
        if name in ("show", "agents"):
            _output(command, "table", "json", "yaml")
        if name == "add":
            command.add_argument(
                "--type",
                choices=("proxy", "ssh"),
                default="proxy",
                help="its agent dials out, or its nodes are reached by SSH (default: %(default)s)",
            )
            command.add_argument(
                "--port",
                metavar="N",
                type=_count,
                help="the cluster's own port, such as the one it had at another proxy (default: a free one)",
            )
        if name in ("add", "set"):
            ssh_flags.add_arguments(command)
        if name == "forget-host-key":
            command.add_argument("node", metavar="NODE", help="its name, its host, or host:port")
        if name == "revoke":
            command.add_argument(
                "fingerprint",
                metavar="AGENT",
                help="the key (SHA256:...) or token (v1:...), as 'cluster agents' shows it",
            )
    listing = _command(inner, "list", "show all clusters")
    _output(listing, "table", "wide", "json", "yaml", "name")
    listing.set_defaults(run=clusters.list_all)


def _join(commands: Commands[Parser]) -> None:
    command = _command(
        commands,
        "join",
        "print the line that starts a cluster's agent",
        "The line pipes a new join token to the agent.  Run it where the agent is to run and add "
        "--kubeconfig K; inside the cluster, run it unchanged.  With --protocol v1 the line is for an "
        "unmodified KubeSphere Tower agent.  That agent has no key: its token does not expire, is visible "
        "to anyone who can see its command line, and is in its log.",
    )
    command.add_argument("name", metavar="NAME", help="name of the cluster")
    command.add_argument(
        "--protocol",
        choices=("v2", "v1"),
        default="v2",
        help="Tower's own agent, or the one of KubeSphere Tower (default: %(default)s)",
    )
    command.add_argument("--ttl", metavar="T", help="v2: how long the token works (default: 1h)")
    command.add_argument(
        "--uses", metavar="N", type=_count, help="v2: how many agents may join with it (default: 1)"
    )
    command.add_argument(
        "--token-file",
        metavar="F",
        help="v1: import the token in F (- is standard input), so that agents that have it need no change",
    )
    command.add_argument(
        "--ca-file",
        metavar="F",
        help="v1: write this proxy's CA to F, and have the agent use https and verify the proxy by F",
    )
    command.add_argument(
        "--format",
        choices=("command", "env", "manifest"),
        default="command",
        help="command: a shell line; env (v2 only): a line that needs no shell, with the token in the "
        "environment; manifest (v1 only): objects for kubectl apply, with https and the CA "
        "(default: %(default)s)",
    )
    command.add_argument("--image", metavar="I", help=f"v1: image in the manifest (default: {IMAGE})")
    command.set_defaults(run=join.join)


def _kubeconfig(commands: Commands[Parser]) -> None:
    config = _command(
        commands,
        "kubeconfig",
        "print a kubeconfig for one user of one cluster",
        "It opens that cluster and nothing else; the cluster's own RBAC says what the user may do there.",
    )
    config.add_argument("name", metavar="NAME", help="name of the cluster")
    _grantee(config)
    config.add_argument(
        "--group", metavar="G", action="append", default=[], help="a group the user is in; may be given again"
    )
    config.add_argument(
        "--via",
        choices=("front-door", "port"),
        default="front-door",
        help="the proxy's one port with a path, or the cluster's own port (default: %(default)s)",
    )
    config.set_defaults(run=access.kubeconfig)
    admin = _command(
        commands,
        "admin-kubeconfig",
        "print a kubeconfig for an administrator of Tower",
        "'tower --kubeconfig F' and kubectl work with it from another machine.  It opens no cluster.",
    )
    _grantee(admin)
    admin.set_defaults(run=access.admin_kubeconfig)


def _grantee(command: Parser) -> None:
    command.add_argument("--user", metavar="U", required=True, help="who it is for")
    command.add_argument(
        "--ttl", metavar="T", help="how long it works (default: 8h, or the most that the proxy gives)"
    )
    command.add_argument(
        "--auth", choices=("cert", "token"), default="cert", help="what it shows (default: %(default)s)"
    )


def _credentials(commands: Commands[Parser]) -> None:
    credential = _command(commands, "credential", "show and revoke what was issued to users")
    inner = credential.add_subparsers(title="commands", metavar="COMMAND", required=True, parser_class=Parser)
    listing = _command(inner, "list", "show the credentials that have not expired")
    listing.add_argument("--cluster", metavar="NAME", help="those for this cluster alone")
    _output(listing, "table", "json", "yaml")
    listing.set_defaults(run=access.list_credentials)
    revoke = _command(inner, "revoke", "take a credential back", "What runs with it ends at once.")
    revoke.add_argument("id", metavar="ID", help="as 'credential list' shows it")
    revoke.set_defaults(run=access.revoke_credential)


def _forward(commands: Commands[Parser]) -> None:
    forward = _command(
        commands,
        "forward",
        "carry TCP connections from this machine to a target of a cluster",
        "Targets are those that the agent, or a cluster of type ssh, was given with --target.  Runs until "
        "Ctrl-C.",
    )
    forward.add_argument("name", metavar="NAME", help="name of the cluster")
    forward.add_argument("target", metavar="TARGET", help="name of the target")
    forward.add_argument(
        "--listen",
        metavar="HOST:PORT",
        type=listen_address,
        required=True,
        help="where connections are taken",
    )
    forward.add_argument(
        "--user", metavar="U", help="in whose name (default: the one you are logged in with)"
    )
    forward.set_defaults(forward=True)


def _output(command: Parser, *forms: str) -> None:
    command.add_argument(
        "-o", "--output", choices=forms, default=forms[0], help="how to show it (default: %(default)s)"
    )


def _count(text: str) -> int:
    if re.fullmatch(r"[0-9]{1,6}", text) is None or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1 on")
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
            f"{text!r}: {host!r} is not an address of this machine; it looks like 127.0.0.1:5432"
        ) from None
    if re.fullmatch(r"[0-9]{1,5}", port) is None or int(port) > 65535:
        raise argparse.ArgumentTypeError(
            f"{text!r} has no port from 0 to 65535; it looks like 127.0.0.1:5432"
        )
    return host, int(port)

"""Arguments of ``tower login``, ``tower logout`` and ``tower session``."""

from __future__ import annotations

import argparse

from tower.cli.login.plugin import EXEC_VERSIONS
from tower.cli.parser import Commands, Parser, add_command
from tower.cli.values import list_options
from tower.deferred import DeferredModule

run = DeferredModule("tower.cli.login.commands")


def add_login_commands(commands: Commands[Parser]) -> None:
    """Add the commands."""
    login = add_command(
        commands,
        "login",
        "log in with your account, and get contexts for your clusters",
        "Opens a browser, or shows a code for a browser on another machine, and writes a context for each "
        "cluster that access policies admit you to: tower/CLUSTER, or HOST/CLUSTER for a second Tower.  "
        "kubectl gets its credentials from 'tower credential get'.  No administrator's kubeconfig is needed.",
    )
    login.add_argument(
        "server", metavar="URL", help="the proxy's front door, such as https://tower.example.org:8443"
    )
    way = login.add_mutually_exclusive_group()
    way.add_argument("--browser", action="store_true", help="use a browser on this machine")
    way.add_argument("--device", action="store_true", help="show a code for a browser on another machine")
    way.add_argument(
        "--token-file",
        metavar="FILE",
        help="for pipelines: file with the ID token of the job or pod, read again for each new session",
    )
    login.add_argument("--issuer", metavar="URL", help="identity provider, if the proxy has several")
    authority = login.add_mutually_exclusive_group()
    authority.add_argument(
        "--certificate-authority",
        metavar="FILE",
        help="CAs of the proxy (PEM), for the first login (default: the system's)",
    )
    authority.add_argument(
        "--ca-hash",
        metavar="HASH",
        help="hash of the proxy's CA, sha256:..., in place of --certificate-authority",
    )
    login.add_argument(
        "--callback-port",
        metavar="PORT",
        type=_port,
        default=0,
        help="port of http://localhost:PORT/callback, if the provider requires one (default: any)",
    )
    login.add_argument(
        "--kubeconfig-file",
        metavar="FILE",
        help="kubeconfig to write (default: the first file of $KUBECONFIG, or ~/.kube/config)",
    )
    login.add_argument(
        "--exec-api-version",
        metavar="VERSION",
        choices=tuple(EXEC_VERSIONS),
        default="v1",
        help="version of the plugin's protocol: v1 (default), or v1beta1 for kubectl before 1.22",
    )
    login.set_defaults(text=run.login)
    logout = add_command(
        commands,
        "logout",
        "end your session, and remove its contexts",
        "Connections of the session end at once.",
    )
    logout.add_argument("server", metavar="URL", nargs="?", help="the proxy's front door, if you use several")
    logout.add_argument("--all", action="store_true", help="log out of all Towers")
    logout.set_defaults(text=run.logout)
    session = add_command(commands, "session", "list and end login sessions of users")
    inner = session.add_subparsers(title="commands", metavar="COMMAND", required=True, parser_class=Parser)
    listing = add_command(inner, "list", "list the login sessions of all users")
    listing.add_argument("--user", metavar="USER", help="sessions of this user only")
    list_options(listing)
    listing.set_defaults(run=run.list_sessions)
    end = add_command(
        inner,
        "end",
        "end login sessions",
        "Their connections end at once.  A user who still has an account can log in again.",
    )
    end.add_argument("id", metavar="SESSION-ID", nargs="?", help="ID, from 'tower session list'")
    end.add_argument("--user", metavar="USER", help="end all sessions of this user")
    end.set_defaults(run=run.end_sessions)


def add_plugin_command(inner: Commands[Parser]) -> None:
    """Add ``tower credential get``."""
    plugin = add_command(
        inner,
        "get",
        "print a credential for kubectl",
        "Contexts of 'tower login' use it as credential plugin (client.authentication.k8s.io).",
    )
    plugin.add_argument("--server", metavar="URL", help="the proxy's front door")
    plugin.add_argument("--token-file", metavar="FILE", help="file with the ID token of a job or pod")
    plugin.add_argument("--cluster", metavar="NAME", help="the only cluster that the token is for")
    plugin.set_defaults(text=run.plugin_usage)


def _port(text: str) -> int:
    if not text.isdecimal() or not 0 < int(text) < 65536:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port: give 1 to 65535")
    return int(text)

"""Commands and options of `tower`."""

from __future__ import annotations

import argparse
from collections.abc import Mapping

import tower
from tower.cli.cluster_arguments import add_cluster_commands
from tower.cli.login.arguments import add_login_commands, add_plugin_command
from tower.cli.manifest import IMAGE
from tower.cli.merging import default_file
from tower.cli.operation_arguments import add_operation_commands
from tower.cli.parser import Commands, Parser, add_command
from tower.cli.policies.arguments import add_access_commands
from tower.cli.records.arguments import add_host_arguments, add_store_commands
from tower.cli.values import choice, count, duration, list_options, listen_address, output_option
from tower.deferred import DeferredModule
from tower.member.manifest.settings import NAMESPACE, REPLICAS, REPOSITORY

access, completion, join = map(DeferredModule, ("tower.cli.access", "tower.cli.completion", "tower.cli.join"))

#: Shells that `tower.cli.completion` supports.
SHELLS = ("bash", "zsh", "fish")

_EPILOG = """
Commands call Tower's API.  Give --state-dir on the machine of the proxy, or
--kubeconfig with an administrator's kubeconfig.  The environment variables
TOWER_STATE_DIR and TOWER_KUBECONFIG are equivalent to these options.  Without
them, commands use kubectl's kubeconfig ($KUBECONFIG, or ~/.kube/config);
users need no option after 'tower login'.
'tower COMMAND --help' describes each command.
"""


def parser(environ: Mapping[str, str]) -> argparse.ArgumentParser:
    """Return the parser.

    Its result has `run`; or `text`, which needs no proxy; or `forward`, `agent` (of doctor) or `version`.
    """
    top = Parser(
        prog="tower",
        description="Manage the clusters behind Tower, their agents, and kubeconfigs of users.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    top.add_argument("--version", action="version", version=f"tower {tower.VERSION}")
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
        "--context",
        metavar="NAME",
        help="context of --kubeconfig or kubectl's kubeconfig (default: the current context)",
    )
    commands = top.add_subparsers(title="commands", metavar="COMMAND", required=True, parser_class=Parser)
    add_cluster_commands(commands)
    _join(commands)
    _join_tokens(commands)
    _kubeconfig(commands, environ)
    _credentials(commands)
    add_access_commands(commands)
    add_login_commands(commands)
    _forward(commands)
    _doctor(commands)
    add_operation_commands(commands)
    add_store_commands(commands)
    completing = add_command(
        commands,
        "completion",
        "print the completion script of a shell",
        "bash: source <(tower completion bash), in ~/.bashrc; zsh: the same with zsh, in ~/.zshrc; "
        "fish: tower completion fish > ~/.config/fish/completions/tower.fish.",
    )
    completing.add_argument("shell", metavar="SHELL", choices=SHELLS, help=", ".join(SHELLS))
    completing.set_defaults(text=lambda options: completion.script(options.shell))
    version = add_command(commands, "version", "show the versions of this command and of the proxy")
    version.add_argument("--client", action="store_true", help="show only the version of this command")
    version.set_defaults(version=True)
    return top


def _join(commands: Commands[Parser]) -> None:
    command = add_command(
        commands,
        "join",
        "print the command line or the manifest that starts a cluster's agent",
        "The line pipes a new join token to the agent.  Run it on a machine that reaches the cluster's API "
        "server and add --kubeconfig FILE.  With --format manifest, it prints the objects that run the agent "
        "in the cluster: tower join NAME --format manifest | kubectl apply -f -.  With --protocol v1, "
        "the line starts an unmodified KubeSphere Tower agent.  That agent has no key: its token does not "
        "expire, and appears in its command line and log.",
    )
    command.add_argument("name", metavar="NAME", help="name of the cluster")
    choice(command, "--protocol", "v2: Tower's agent; v1: KubeSphere Tower's agent", "v2", "v1")
    command.add_argument(
        "--ttl", metavar="DURATION", type=duration, help="v2: lifetime of the token (default: 1h)"
    )
    command.add_argument(
        "--uses",
        metavar="N",
        type=count,
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
        help="file to write the proxy's CA to; v1: the agent then uses https and verifies the proxy with it",
    )
    text = (
        "command: a shell line; env (v2 only): a line without shell syntax, with the token in the "
        "environment; manifest: objects for kubectl apply, with the agent's Deployment"
    )
    choice(command, "--format", text, "command", "env", "manifest")
    command.add_argument(
        "--image",
        metavar="IMAGE",
        help=f"image in the manifest (default: {REPOSITORY}, of this version; v1: {IMAGE})",
    )
    command.add_argument(
        "--output-url",
        action="store_const",
        const=True,
        help="v2: print a URL for kubectl apply -f instead of the manifest; it can be fetched once "
        "within --ttl",
    )
    for kind in ("users", "groups"):
        command.add_argument(
            f"--impersonate-{kind}",
            metavar="NAME,...",
            action="append",
            help=f"v2: {kind} that the agent of the manifest can impersonate; repeatable (default: all)",
        )
    command.add_argument(
        "--impersonate-uid",
        action="store_const",
        const=True,
        help="v2: allow the agent of the manifest to impersonate UIDs, for access policies with as.uid",
    )
    command.add_argument(
        "--impersonate-extra",
        metavar="KEY,...",
        action="append",
        help="v2: extra keys that the agent of the manifest may impersonate, for access policies with "
        "as.extra; *: all keys, and UIDs; repeatable (default: none)",
    )
    command.add_argument(
        "--target",
        metavar="NAME=HOST:PORT",
        action="append",
        help="v2: additional target of streams of the agent of the manifest; repeatable",
    )
    command.add_argument(
        "--kubesphere-service",
        metavar="HOST:PORT",
        help="v2: KubeSphere API server for the agent of the manifest, such as "
        "ks-apiserver.kubesphere-system.svc:80",
    )
    command.add_argument(
        "--namespace",
        metavar="NAME",
        help=f"v2: existing namespace for the agent of the manifest (default: {NAMESPACE}, which is created)",
    )
    command.add_argument(
        "--replicas", metavar="N", type=count, help=f"v2: replicas in the manifest (default: {REPLICAS})"
    )
    command.add_argument(
        "--image-pull-secret",
        metavar="NAME",
        action="append",
        help="v2: existing Secret with credentials of the image's registry, in that namespace; repeatable",
    )
    command.set_defaults(run=join.join)


def _join_tokens(commands: Commands[Parser]) -> None:
    tokens = add_command(
        commands, "join-token", "list and revoke join tokens and import URLs that can still be used"
    )
    inner = tokens.add_subparsers(title="commands", metavar="COMMAND", required=True, parser_class=Parser)
    listing = add_command(inner, "list", "list the join tokens and import URLs that can still be used")
    listing.add_argument("--cluster", metavar="NAME", help="tokens for this cluster only")
    list_options(listing)
    listing.set_defaults(run=join.list_tokens)
    revoke = add_command(
        inner,
        "revoke",
        "revoke a join token or an import URL",
        "The line, manifest or URL becomes worthless.  Agents that have joined with it stay: 'tower cluster "
        "revoke' revokes their keys.",
    )
    revoke.add_argument("id", metavar="TOKEN-ID", help="id, from 'tower join-token list'")
    revoke.set_defaults(run=join.revoke_token)


def _kubeconfig(commands: Commands[Parser], environ: Mapping[str, str]) -> None:
    config = add_command(
        commands,
        "kubeconfig",
        "issue a kubeconfig for one user of one cluster",
        "It is valid for that cluster only.  The cluster's RBAC authorizes the user's requests.",
    )
    config.set_defaults(run=access.kubeconfig)
    trusted = add_command(
        commands,
        "trusted-caller",
        "issue a kubeconfig for a program that authenticates users itself",
        "It may act as ANY user and group of that cluster (Impersonate-*) except system identities.  If the "
        "agent has --allow-member-tokens, it may also use tokens of the cluster's own accounts.  For "
        "KubeSphere and similar programs, not for users.",
    )
    trusted.set_defaults(run=access.trusted_caller)
    for command in (config, trusted):
        command.add_argument("name", metavar="NAME", help="name of the cluster")
        _grantee(command, environ)
        command.add_argument(
            "--group", metavar="GROUP", action="append", default=[], help="group of the user; repeatable"
        )
        text = "front-door: the proxy's --secure-port, with a path; port: the cluster's own port"
        choice(command, "--via", text, "front-door", "port")
    admin = add_command(
        commands,
        "admin-kubeconfig",
        "issue a kubeconfig for an administrator of Tower",
        "Use it with 'tower --kubeconfig FILE' or kubectl, on any machine.  It is not valid for clusters.",
    )
    _grantee(admin, environ)
    admin.set_defaults(run=access.admin_kubeconfig)


def _grantee(command: Parser, environ: Mapping[str, str]) -> None:
    command.add_argument("--user", metavar="USER", required=True, help="user name")
    command.add_argument(
        "--ttl",
        metavar="DURATION",
        type=duration,
        help="lifetime (default: 8h, at most the proxy's --max-credential-ttl)",
    )
    choice(command, "--auth", "credential type: client certificate or bearer token", "cert", "token")
    place = command.add_mutually_exclusive_group()
    place.add_argument(
        "-o", "--output", metavar="FILE", help="file to write, with mode 0600; -: standard output (default)"
    )
    place.add_argument(
        "--merge",
        metavar="FILE",
        nargs="?",
        const=default_file(environ),
        help="existing kubeconfig to add a context to, named tower/CLUSTER, or tower for an administrator; "
        "other entries stay (default: the first file of $KUBECONFIG, or ~/.kube/config)",
    )


def _credentials(commands: Commands[Parser]) -> None:
    credential = add_command(
        commands, "credential", "list and revoke credentials of users, and print one for kubectl"
    )
    inner = credential.add_subparsers(title="commands", metavar="COMMAND", required=True, parser_class=Parser)
    listing = add_command(inner, "list", "list the credentials that have not expired")
    listing.add_argument("--cluster", metavar="NAME", help="credentials for this cluster only")
    list_options(listing)
    listing.set_defaults(run=access.list_credentials)
    revoke = add_command(inner, "revoke", "revoke a credential", "Closes its connections at once.")
    revoke.add_argument("id", metavar="ID", help="id, from 'tower credential list'")
    revoke.set_defaults(run=access.revoke_credential)
    add_plugin_command(inner)


def _forward(commands: Commands[Parser]) -> None:
    forward = add_command(
        commands,
        "forward",
        "forward TCP connections from this machine to a target of a cluster",
        "Targets are set with --target of the agent, or of a cluster of type ssh.  Runs until Ctrl-C.  After "
        "'tower login', it uses the current context if that is for the cluster, otherwise the only context "
        "for the cluster.",
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


def _doctor(commands: Commands[Parser]) -> None:
    command = add_command(
        commands,
        "doctor",
        "check a proxy, an agent, a cluster or a kubeconfig, and name the cures",
        "By default: the proxy's machine, even if the proxy is stopped; on other machines, your own access "
        "to the cluster of the current context.  With CLUSTER: for administrators, that cluster end to end; "
        "for users, their own access to it.  With --agent: the machine or pod of an agent.  With "
        "--kubeconfig: a user's access.  With "
        "--host-kubeconfig: a proxy's host cluster.  Each line is 'ok | warn | FAIL | skip  check: "
        "observation -> command that cures it'; 'skip' marks a check that depends on a failed one.  Exit "
        "code 1: a check failed.",
    )
    command.add_argument(
        "cluster", metavar="CLUSTER", nargs="?", help="name of a cluster to check end to end"
    )
    command.add_argument(
        "--state-dir", metavar="DIR", default=argparse.SUPPRESS, help="state directory of the proxy"
    )
    command.add_argument(
        "--kubeconfig",
        metavar="FILE",
        default=argparse.SUPPRESS,
        help="kubeconfig of a user or administrator",
    )
    command.add_argument(
        "--context",
        metavar="NAME",
        default=argparse.SUPPRESS,
        help="context of --kubeconfig or kubectl's kubeconfig",
    )
    add_host_arguments(command)
    output_option(command, "text", "json")
    command.add_argument(
        "--bundle",
        metavar="FILE",
        help="archive to write (.tar.gz) for a report: findings, versions, settings",
    )
    command.add_argument(
        "--log", metavar="FILE", action="append", default=[], help="log to include in --bundle; repeatable"
    )
    command.add_argument(
        "--agent",
        metavar="OPTION",
        nargs=argparse.REMAINDER,
        help="the agent's options, as the last arguments; its environment variables are read too",
    )

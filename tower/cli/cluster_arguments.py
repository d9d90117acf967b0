"""Arguments of ``tower cluster``."""

from __future__ import annotations

from tower.cli.parser import Commands, Parser, add_command
from tower.cli.ssh import flags as ssh_flags
from tower.cli.values import (
    FORMS,
    choice,
    count,
    drain,
    list_options,
    output_option,
    watch_option,
    yes_option,
)
from tower.deferred import DeferredModule

clusters, login = map(DeferredModule, ("tower.cli.clusters", "tower.cli.login.own_clusters"))


def add_cluster_commands(commands: Commands[Parser]) -> None:
    """Add ``cluster`` and its commands."""
    cluster = add_command(commands, "cluster", "add, change, show, enable, disable and remove clusters")
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
            "change the settings of a cluster",
            "An empty value removes a setting; NAME= removes a target.",
        ),
        ("show", clusters.show, "show a cluster, its conditions, and its agents or nodes", ""),
        ("enable", clusters.enable, "enable a disabled cluster", ""),
        (
            "disable",
            clusters.disable,
            "disable a cluster and keep its record",
            "Closes its tunnels, port and users' connections, at once or after --drain.  Keeps credentials.",
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
            "list the agent keys, tokens of KubeSphere Tower agents, and live tunnels of clusters",
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
        command = add_command(inner, name, summary, more)
        if name == "agents":
            command.add_argument("name", metavar="NAME", nargs="?", help="name of a cluster (default: all)")
            list_options(command)
        else:
            command.add_argument("name", metavar="NAME", help="name of the cluster")
        command.set_defaults(run=run)
        if name == "show":
            output_option(command, *FORMS)
            watch_option(command)
        if name == "remove":
            yes_option(command)
        if name == "add":
            text = "proxy: its agent connects to the proxy; ssh: the proxy connects to its nodes"
            choice(command, "--type", text, "proxy", "ssh")
            command.add_argument(
                "--port",
                metavar="N",
                type=count,
                help="the cluster's own port at the proxy (default: a free port of --cluster-ports)",
            )
        _add_switches(command, name)
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
    listing = add_command(
        inner,
        "list",
        "list all clusters, or your own after 'tower login'",
        "Without --state-dir and --kubeconfig, it lists the clusters that you may enter.",
    )
    list_options(listing)
    listing.set_defaults(run=clusters.list_all, own=login.own_clusters)


def _add_switches(command: Parser, name: str) -> None:
    """Add the options of ``disable`` and ``set``."""
    if name == "disable":
        command.add_argument(
            "--drain",
            metavar="DURATION",
            type=drain,
            help="time for requests in progress to finish, at most 10m (default: 0s); no new "
            "request and no agent is accepted meanwhile",
        )
    if name == "set":
        command.add_argument(
            "--member-tokens",
            choices=("allow", "allow-alone", "reject"),
            help="tokens of the cluster's own service accounts.  reject (default): never; allow: from "
            "trusted callers, through KubeSphere Tower agents; allow-alone: also from any client of the "
            "cluster's own port, without another credential (KubeFed).  Tower's agents also need "
            "--allow-member-tokens, which is sufficient for trusted callers",
        )

"""Arguments of ``tower rotate``, ``backup``, ``restore``, ``rbac``, ``crds`` and ``install-systemd``."""

from __future__ import annotations

from tower.cli.parser import Commands, Parser, add_command
from tower.cli.records.arguments import add_host_arguments
from tower.cli.values import duration, list_options, yes_option
from tower.deferred import DeferredModule

backup, rotate, manifest, crds, systemd = map(
    DeferredModule,
    (
        "tower.cli.backup",
        "tower.cli.rotate",
        "tower.cli.manifest",
        "tower.kube.crds.manifests",
        "tower.cli.systemd.install",
    ),
)

#: Targets of rotations: summary and description of their commands.
_TARGETS = {
    "host-key": (
        "rotate the SSH host key that agents verify",
        "The next key is announced to all agents, and used when all of them have it.",
    ),
    "serving-ca": (
        "rotate the CA of the front door's certificate",
        "Agents and new kubeconfigs get the next CA.  It is used when older kubeconfigs have expired.",
    ),
    "tls-cert-file": (
        "end or postpone the rotation to another CA of --tls-cert-file",
        "Agents and new kubeconfigs get the file's CA.  It is used when older kubeconfigs have expired.",
    ),
    "users-ca": (
        "rotate the CA of users' client certificates",
        "The new CA signs at once.  Older certificates are valid until they expire; --now revokes them.",
    ),
    "secrets-key": (
        "rotate the key that seals stored credentials",
        "All stored credentials are sealed again, then the old key is removed.",
    ),
}

#: Help of --cancel of each target.
_CANCELS = {
    "host-key": "keep the old key; possible until the next one is used",
    "serving-ca": "keep the old CA; possible until the next one is used",
    "tls-cert-file": "not possible: put the old files of --tls-cert-file and its key back",
    "users-ca": "not possible: the new CA signs from the beginning",
    "secrets-key": "not possible: the new key seals from the beginning",
}

_PROGRAMS = ("proxy", "agent")
_RIGHTS = (*_PROGRAMS, "host", "crds")


def add_operation_commands(commands: Commands[Parser]) -> None:
    """Add the commands."""
    _rotate(commands)
    saving = add_command(
        commands,
        "backup",
        "write the proxy's records and keys to a file",
        "Runs on the proxy's machine with --state-dir; the proxy may run.  The file has mode 0600.  For a "
        "proxy with --store kubernetes, runs anywhere with --host-kubeconfig, and in the leader's pod.",
    )
    saving.add_argument("file", metavar="FILE", help="file to write; -: standard output")
    saving.add_argument(
        "--without-secrets", action="store_true", help="omit all keys; stored credentials stay encrypted"
    )
    saving.add_argument("--force", action="store_true", help="replace FILE if it exists")
    add_host_arguments(saving)
    saving.set_defaults(text=backup.backup)
    restoring = add_command(
        commands,
        "restore",
        "write a backup to an empty state directory, or to an empty host cluster",
        "Runs on the proxy's machine with --state-dir, before the proxy is started there.  The backup of a "
        "proxy with --store kubernetes is restored with --host-kubeconfig, while no proxy runs.",
    )
    restoring.add_argument("file", metavar="FILE", help="file that 'tower backup' wrote")
    add_host_arguments(restoring)
    restoring.set_defaults(text=backup.restore)
    _install_systemd(commands)
    rights = add_command(
        commands,
        "rbac",
        "print the manifest of the service account and RBAC rights of the agent or the proxy in a cluster",
        "Apply it as an administrator of that cluster: tower rbac agent | kubectl apply -f -.  'proxy' is "
        "needed only for clusters of type ssh; 'host' is for a proxy with --store kubernetes, in its host "
        "cluster; 'crds' is for tower-proxy --install-crds there.",
    )
    rights.add_argument("program", metavar="PROGRAM", choices=_RIGHTS, help="proxy, agent, host or crds")
    rights.set_defaults(text=lambda options: manifest.rbac_manifest(options.program))
    kinds = add_command(
        commands,
        "crds",
        "print Tower's CRDs for a host cluster",
        "Apply them as an administrator of that cluster before you start the first proxy with --store "
        "kubernetes, and before you start each new version: tower crds | kubectl apply -f -.  In "
        "KubeSphere's host cluster, add --without-clusters.",
    )
    kinds.add_argument(
        "--without-clusters",
        action="store_true",
        help="omit the CRD clusters.cluster.kubesphere.io, which KubeSphere's host cluster already has",
    )
    kinds.set_defaults(text=lambda options: crds.crd_text(with_clusters=not options.without_clusters))


def _install_systemd(commands: Commands[Parser]) -> None:
    command = add_command(
        commands,
        "install-systemd",
        "install the proxy or the agent of this machine as a systemd service",
        "Writes a sandboxed unit, its user and /etc/tower/PROGRAM.env for the options, and reloads systemd.  "
        "Run it again after an update of Tower: it replaces the unit, and keeps the options.",
    )
    command.add_argument("program", metavar="PROGRAM", choices=_PROGRAMS, help=" or ".join(_PROGRAMS))
    command.add_argument(
        "--enable",
        action="store_true",
        help="start the service at boot, and now unless a new agent still lacks its options",
    )
    command.add_argument(
        "--low-ports", action="store_true", help="proxy: allow ports below 1024, such as 443"
    )
    command.add_argument(
        "--root", metavar="DIR", help="install into the root directory DIR of an image; start nothing"
    )
    command.add_argument("--dry-run", action="store_true", help="print the files and commands only")
    command.add_argument(
        "--uninstall", action="store_true", help="stop and remove the service; options and state are kept"
    )
    command.set_defaults(text=systemd.install_systemd)


def _rotate(commands: Commands[Parser]) -> None:
    command = add_command(commands, "rotate", "replace keys and CAs of the proxy; old and new ones overlap")
    inner = command.add_subparsers(title="commands", metavar="COMMAND", required=True, parser_class=Parser)
    for target, (summary, more) in _TARGETS.items():
        one = add_command(inner, target, summary, more)
        end = one.add_mutually_exclusive_group()
        end.add_argument(
            "--after", metavar="DURATION", type=duration, help="latest end, such as 30d (default: none)"
        )
        end.add_argument(
            "--now", action="store_true", help="finish now, even if the old key is still needed; asks first"
        )
        end.add_argument("--cancel", action="store_true", help=_CANCELS[target])
        yes_option(one)
        one.set_defaults(run=rotate.rotate, target=target)
    status = add_command(inner, "status", "show rotations and what they wait for")
    list_options(status)
    status.set_defaults(run=rotate.status)

"""Choice of a command's context: from --kubeconfig, or from the user's own kubeconfigs, as in kubectl."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path

from attrs import frozen

from tower.cli.client import UsageFailed
from tower.kube.rest.kubeconfig_files import KubeconfigFiles

_LOGIN = "log in with 'tower login https://HOST'"


@frozen
class ChosenContext:
    """A context for a command.

    :ivar files: kubeconfigs with the context.
    :ivar context: its name; None: the current one.
    :ivar cluster: the cluster that it is for; None: it is for Tower's own API, or for another server.
    """

    files: KubeconfigFiles
    context: str | None
    cluster: str | None


def choose_context(options: argparse.Namespace, environ: Mapping[str, str]) -> ChosenContext | None:
    """Return the context of --kubeconfig or of the user's kubeconfigs; None: there is none to use.

    The only context for the command's cluster is used if the current one is for another.

    :raise UsageFailed: the context cannot be chosen.
    :raise ConfigurationError: a file cannot be read.
    """
    files = (
        KubeconfigFiles((Path(options.kubeconfig),)) if options.kubeconfig else KubeconfigFiles.of(environ)
    )
    if not files.paths:
        return None
    clusters = files.clusters()
    current = options.context or files.current()
    wanted = wanted_cluster(options)
    if not (current or wanted or options.kubeconfig):
        return None
    if options.context or options.kubeconfig or wanted is None or clusters.get(current) == wanted:
        return ChosenContext(files, options.context, clusters.get(current))
    names = [name for name, cluster in clusters.items() if cluster == wanted]
    if len(names) > 1:
        raise UsageFailed(f"several contexts are for cluster {wanted}: give --context with {_any_of(names)}")
    if names:
        return ChosenContext(files, names[0], wanted)
    if current in clusters:
        raise UsageFailed(f"{files} has no context for cluster {wanted}: {_LOGIN}, or give --context NAME")
    return ChosenContext(files, None, None) if current else None


def wanted_cluster(options: argparse.Namespace) -> str | None:
    """Return the cluster of a command that a user of one cluster may run: forward, doctor; None: others."""
    name: str | None = options.name if "forward" in options else getattr(options, "cluster", None)
    return name if "forward" in options or "agent" in options else None


def no_proxy(environ: Mapping[str, str]) -> UsageFailed:
    """Return the error for a command line that names no proxy."""
    found = list(KubeconfigFiles.of(environ).clusters())
    cure = f"give --context with {_any_of(found)}" if found else _LOGIN
    return UsageFailed(
        "no proxy is given: give --state-dir DIR on the proxy's machine, or --kubeconfig FILE with an "
        f"administrator's kubeconfig; as a user, {cure}"
    )


def _any_of(names: list[str]) -> str:
    shown = names[:5]
    return f"one of {', '.join(shown)}{', …' if len(names) > len(shown) else ''}"

"""Credentials from a plugin for commands, which wait until it ends."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping

from attrs import evolve

from tower.errors import ConfigurationError
from tower.kube.kubeconfig import KubeAccess
from tower.kube.rest.exec_plugin import TIMEOUT, read_credential
from tower.kube.rest.plugin_command import PluginCommand


def with_credential(access: KubeAccess, environ: Mapping[str, str]) -> tuple[KubeAccess, float | None]:
    """Return *access* with a credential of its plugin, if it has one, and the credential's expiry.

    The expiry is in s since the epoch, or None.  The plugin stays in the result, for the next credential.

    :raise ConfigurationError: the plugin fails, takes too long, or writes no valid credential; one line with
        the cure.
    """
    command = PluginCommand.of(access)
    if command is None:
        return access, None
    program = command.program(environ)
    where = f"{command.where}: {command.shown}"
    try:
        done = subprocess.run(
            [program, *command.words[1:]],
            env=command.environment(environ),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,  # the user sees its errors, as with kubectl; they may be secret for us
            timeout=TIMEOUT,
            check=False,
        )
    except OSError as e:
        raise ConfigurationError(f"{where}: cannot run it: {e.strerror}; run it manually to see why") from e
    except subprocess.TimeoutExpired:
        raise ConfigurationError(f"{where}: it did not end within {TIMEOUT:g} s") from None
    if done.returncode:
        raise ConfigurationError(
            f"{where}: exit code {done.returncode}; it wrote the reason to standard error"
        )
    try:
        found = read_credential(done.stdout, command.version)
    except ValueError as e:
        raise ConfigurationError(f"{where} wrote {e}; run it manually to see why") from None
    changed = evolve(
        access,
        token=found.token or None,
        client_certificate=found.certificate,
        client_key=found.key,
    )
    return changed, found.expiry

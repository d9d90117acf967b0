"""`tower join`: what lets an agent in, as a line to run or as objects for its cluster."""

from __future__ import annotations

import argparse
import shlex
import sys
from pathlib import Path
from typing import Any

from tower.cli.client import TowerClient
from tower.cli.clusters import call_cluster
from tower.cli.errors import CommandFailed
from tower.cli.manifest import IMAGE, v1_manifest
from tower.escaping import escaped

#: What is for the agents of one protocol alone: the option's name, and that protocol.
_ONLY_FOR = {"ttl": "v2", "uses": "v2", "token_file": "v1", "ca_file": "v1", "image": "v1"}

_DEFAULT_TTL = "1h"

#: Longest file that is read as a token, characters.
_TOKEN_LIMIT = 4096


def join(client: TowerClient, options: argparse.Namespace) -> str:
    """Print what starts an agent; it holds a new token, or the one to import."""
    for name, protocol in _ONLY_FOR.items():
        if getattr(options, name) is not None and options.protocol != protocol:
            flag = name.replace("_", "-")
            raise CommandFailed(f"--{flag} is for --protocol {protocol}: leave one of them out")
    return _join_v1(client, options) if options.protocol == "v1" else _join_v2(client, options)


def _join_v2(client: TowerClient, options: argparse.Namespace) -> str:
    if options.format == "manifest":
        raise CommandFailed(
            "--format manifest is for --protocol v1: an agent of v2 keeps a key of its own in a directory "
            "that outlives it, so it is started with the line; see docs/install.md"
        )
    spec = {"ttl": options.ttl or _DEFAULT_TTL, "uses": options.uses or 1}
    line = join_line if options.format == "command" else environment_line
    return line(options.name, _ask(client, options.name, spec))


def join_line(name: str, status: dict[str, Any]) -> str:
    """Return the line to run where the cluster *name* is reachable; scripts rely on its form.

    ``printf`` is a part of every shell, so the token is in no program's arguments or environment.
    """
    words = ["printf", "%s", status["token"], "|", *_agent_words(name, status), "--token-file", "-"]
    return " ".join(word if word == "|" else shlex.quote(word) for word in words)


def environment_line(name: str, status: dict[str, Any]) -> str:
    """Return that line as it was before, for what starts programs without a shell; as widely relied on."""
    return shlex.join(["env", f"TOWER_TOKEN={status['token']}", *_agent_words(name, status)])


def _agent_words(name: str, status: dict[str, Any]) -> list[str]:
    words = ["twistd", "--pidfile=", "-n", "tower-agent"]
    words += ["--name", name, "--proxy-server", status["proxyServer"]]
    for fingerprint in status["hostKeys"]:
        words += ["--host-key", fingerprint]
    return [*words, "--ca-hash", status["caHash"]]


def _join_v1(client: TowerClient, options: argparse.Namespace) -> str:
    name, ca_file = options.name, options.ca_file
    if options.format == "env":
        raise CommandFailed(
            "--format env is for --protocol v2: the agent of v1 takes its token as an argument"
        )
    manifest = options.format == "manifest"
    if manifest and ca_file is not None:
        raise CommandFailed("--ca-file is for --format command: a manifest holds the CA itself")
    if not manifest and options.image is not None:
        raise CommandFailed("--image is for --format manifest: leave one of them out")
    spec = {"protocol": "v1"}
    if options.token_file is not None:
        spec["token"] = _read_token(options.token_file)
    status = _ask(client, name, spec)
    if manifest:
        return v1_manifest(name, status, options.image or IMAGE)
    if ca_file is not None:
        _write_ca(Path(ca_file), status["certificateAuthority"])
    _note(f"the token has no end; 'tower cluster revoke {name} {status['agent']}' ends it")
    _note(
        "inside the cluster the line is complete; elsewhere add --kubeconfig K, with a client certificate in "
        "that very file: this agent takes neither tokens nor other files from it"
    )
    if ca_file is None:
        _note(
            "this agent verifies nobody's SSH key: by http it sends its cluster's credential to whoever "
            f"answers at {status['proxyServer']}; --ca-file F has it use https and verify this proxy"
        )
    return v1_join_line(name, status, ca_file)


def v1_join_line(name: str, status: dict[str, Any], ca_file: str | None = None) -> str:
    """Return the line that starts KubeSphere Tower's agent; scripts rely on its form.

    :param ca_file: where the agent finds the CA of the front door; None leads it to the plain port.
    """
    words = ["agent", "--name", name, "--token", status["token"]]
    if ca_file is None:
        return shlex.join([*words, "--proxy-server", status["proxyServer"]])
    # Go's own: the file with the CAs of the system.
    return shlex.join(
        ["env", f"SSL_CERT_FILE={ca_file}", *words, "--proxy-server", status["secureProxyServer"]]
    )


def _ask(client: TowerClient, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    body = {"apiVersion": "cluster.kubesphere.io/v1alpha1", "kind": "JoinToken", "spec": spec}
    status: dict[str, Any] = call_cluster(client, "POST", name, "/jointokens", body=body)["status"]
    return status


def _read_token(path: str) -> str:
    """Return the token in a file, without the newline that editors leave at its end."""
    try:
        if path == "-":
            return sys.stdin.read(_TOKEN_LIMIT).strip()
        with open(path, encoding="utf-8") as file:
            return file.read(_TOKEN_LIMIT).strip()
    except OSError as e:
        raise CommandFailed(f"--token-file {path}: {(e.strerror or str(e)).lower()}") from e
    except UnicodeDecodeError as e:
        raise CommandFailed(f"--token-file {path}: is no text") from e


def _write_ca(path: Path, pem: str) -> None:
    """Write the CA, but over nothing else."""
    try:
        if path.exists() and path.read_bytes() != pem.encode():
            raise CommandFailed(f"--ca-file {path}: is there and is not this proxy's CA: name another file")
        path.write_text(pem, encoding="ascii")
    except OSError as e:
        raise CommandFailed(f"--ca-file {path}: {(e.strerror or str(e)).lower()}") from e


def _note(text: str) -> None:
    print(f"tower: note: {escaped(text)}", file=sys.stderr)

"""`tower join`: the command line, the manifest or the URL of it that starts a cluster's agent."""

from __future__ import annotations

import argparse
import shlex
import sys
from functools import partial
from pathlib import Path
from typing import Any

from tower.cli.client import GROUP_PATH, CallFailed, CommandFailed, TowerClient, UsageFailed, quoted
from tower.cli.clusters import call_cluster, cluster_path
from tower.cli.listing import listed_or_watched, selection
from tower.cli.manifest import IMAGE, v1_manifest
from tower.cli.output import note
from tower.errors import Invalid
from tower.member.manifest.manifest import agent_manifest
from tower.member.manifest.settings import IMAGE as AGENT_IMAGE
from tower.member.manifest.settings import NAMESPACE, REPLICAS, AgentSettings, Joining

#: Options for the agents of one protocol only, and that protocol.
_ONLY_FOR = {
    "ttl": "v2",
    "uses": "v2",
    "impersonate_users": "v2",
    "impersonate_groups": "v2",
    "impersonate_uid": "v2",
    "impersonate_extra": "v2",
    "target": "v2",
    "kubesphere_service": "v2",
    "namespace": "v2",
    "replicas": "v2",
    "image_pull_secret": "v2",
    "output_url": "v2",
    "token_file": "v1",
}

#: Options of manifests.
_OF_MANIFESTS = (
    *("image", "impersonate_users", "impersonate_groups", "target", "kubesphere_service"),
    *("impersonate_uid", "impersonate_extra"),
    *("namespace", "replicas", "image_pull_secret"),
)

_DEFAULT_TTL = "1h"

#: Maximum length of a token file, characters.
_TOKEN_LIMIT = 4096


def join(client: TowerClient, options: argparse.Namespace) -> str:
    """Return the line, manifest or URL that starts an agent, with a new token or the imported one."""
    for name, protocol in _ONLY_FOR.items():
        if getattr(options, name) is not None and options.protocol != protocol:
            flag = name.replace("_", "-")
            raise UsageFailed(f"--{flag} requires --protocol {protocol}: set that, or omit --{flag}")
    for name in _OF_MANIFESTS:
        if getattr(options, name) is not None and options.format != "manifest" and not options.output_url:
            flag = name.replace("_", "-")
            raise UsageFailed(f"--{flag} requires --format manifest: set that, or omit --{flag}")
    if options.ca_file is not None and options.protocol != "v1" and not options.output_url:
        raise UsageFailed("--ca-file requires --protocol v1 or --output-url: set one of them, or omit it")
    if options.output_url and options.format == "env":
        raise UsageFailed("--output-url and --format env are mutually exclusive: omit one")
    return _join_v1(client, options) if options.protocol == "v1" else _join_v2(client, options)


def _join_v2(client: TowerClient, options: argparse.Namespace) -> str:
    settings = _settings(options)
    spec: dict[str, Any] = {"ttl": options.ttl or _DEFAULT_TTL, "uses": options.uses or 1}
    if not call_cluster(client, "GET", options.name)["spec"].get("enable", True):
        note(
            f"cluster {options.name} is disabled, so its agents are rejected: "
            f"'tower cluster enable {options.name}' enables it"
        )
    if options.output_url:
        given = settings.to_object()
        if options.image is None:
            del given["image"]  # the proxy's default is that of its own version
        return _import_url(_join_token(client, options.name, {**spec, "manifest": given}), options.ca_file)
    status = _join_token(client, options.name, spec)
    if options.format == "manifest":
        return agent_manifest(_joining(options.name, status), settings)
    line = join_line if options.format == "command" else environment_line
    return line(options.name, status)


def list_tokens(client: TowerClient, options: argparse.Namespace) -> str:
    """List the join tokens and import URLs that can still be used."""
    query = selection(options)
    if options.cluster is not None:
        cluster_path(options.cluster)
        query["fieldSelector"] = f"spec.cluster={options.cluster}"
    fetch = partial(client.call, "GET", f"{GROUP_PATH}/jointokens")
    return listed_or_watched(fetch, query, options, "no join tokens")


def revoke_token(client: TowerClient, options: argparse.Namespace) -> str:
    """Revoke a join token or an import URL."""
    try:
        client.call("DELETE", f"{GROUP_PATH}/jointokens/{quoted(options.id)}")
    except CallFailed as e:
        if e.reason != "NotFound":
            raise
        raise CommandFailed(
            f"there is no join token {options.id} that can still be used: 'tower join-token list' shows all"
        ) from e
    return f"join token {options.id} revoked"


def _import_url(status: dict[str, Any], ca_file: str | None) -> str:
    """Return the URL; scripts rely on it alone being on standard output."""
    url: str = status["importURL"]
    if ca_file is not None:
        _write_ca(Path(ca_file), status["certificateAuthority"])
    note(
        f"the URL contains a secret, can be fetched once, and expires at {status['expirationTimestamp']}: "
        "in the member cluster, run 'kubectl apply -f URL'"
    )
    note(
        "kubectl verifies the proxy with this machine's CAs only; if the proxy's CA is not one of them, run "
        f"'curl -fsS --cacert {shlex.quote(ca_file or 'FILE')} URL | kubectl apply -f -'"
        + ("" if ca_file else "; --ca-file FILE writes that CA")
    )
    return url


def _settings(options: argparse.Namespace) -> AgentSettings:
    """Return the settings of the agent's manifest.

    :raise UsageFailed: a value cannot be used.
    """
    users, groups = _names(options.impersonate_users), _names(options.impersonate_groups)
    try:
        return AgentSettings(
            options.image or AGENT_IMAGE,
            users,
            groups,
            tuple(options.target or ()),
            options.kubesphere_service or "",
            NAMESPACE if options.namespace is None else options.namespace,
            REPLICAS if options.replicas is None else options.replicas,
            tuple(options.image_pull_secret or ()),
            bool(options.impersonate_uid),
            _names(options.impersonate_extra),
        )
    except Invalid as e:
        text = str(e)
        for name, flag in _FLAGS.items():
            text = text.replace(name, flag)
        raise UsageFailed(text) from e


def _names(lists: list[str] | None) -> tuple[str, ...]:
    """Return the names in comma-separated lists; an empty one is kept, and is an error."""
    return tuple(name.strip() for text in lists or () for name in text.split(","))


#: Flags of the fields that errors of `AgentSettings` name.
_FLAGS = {
    "impersonateUsers": "--impersonate-users",
    "impersonateGroups": "--impersonate-groups",
    "impersonateExtra": "--impersonate-extra",
    "image: ": "--image: ",
    "targets: ": "--target: ",
    "kubesphereService: ": "--kubesphere-service: ",
    "namespace: ": "--namespace: ",
    "replicas: ": "--replicas: ",
    "imagePullSecrets: ": "--image-pull-secret: ",
}


def _joining(name: str, status: dict[str, Any]) -> Joining:
    return Joining(name, status["token"], status["proxyServer"], status["hostKeys"], _ca_hashes(status))


def join_line(name: str, status: dict[str, Any]) -> str:
    """Return the shell line that starts an agent; scripts rely on its form.

    ``printf`` is a shell builtin, so the token is not in the arguments or the environment of any program.
    """
    words = ["printf", "%s", status["token"], "|", *_agent_words(name, status), "--token-file", "-"]
    return " ".join(word if word == "|" else shlex.quote(word) for word in words)


def environment_line(name: str, status: dict[str, Any]) -> str:
    """Return the line for programs that start the agent without a shell; scripts rely on its form."""
    return shlex.join(["env", f"TOWER_TOKEN={status['token']}", *_agent_words(name, status)])


def _agent_words(name: str, status: dict[str, Any]) -> list[str]:
    words = ["tower-agent", "--name", name, "--proxy-server", status["proxyServer"]]
    for fingerprint in status["hostKeys"]:
        words += ["--host-key", fingerprint]
    for digest in _ca_hashes(status):
        words += ["--ca-hash", digest]
    return words


def _ca_hashes(status: dict[str, Any]) -> list[str]:
    hashes: list[str] = status.get("caHashes", [status["caHash"]])
    return hashes


def _join_v1(client: TowerClient, options: argparse.Namespace) -> str:
    name, ca_file = options.name, options.ca_file
    if options.format == "env":
        raise UsageFailed("--format env requires --protocol v2: a v1 agent takes its token as an argument")
    manifest = options.format == "manifest"
    if manifest and ca_file is not None:
        raise UsageFailed("--ca-file requires --format command: a manifest contains the CA")
    spec = {"protocol": "v1"}
    if options.token_file is not None:
        spec["token"] = _read_token(options.token_file)
    status = _join_token(client, name, spec)
    if manifest:
        return v1_manifest(name, status, options.image or IMAGE)
    if ca_file is not None:
        _write_ca(Path(ca_file), status["certificateAuthority"])
    note(f"the token does not expire; to revoke it, run 'tower cluster revoke {name} {status['agent']}'")
    note(
        "in a pod of the cluster, run the line unchanged; on another machine add --kubeconfig FILE, which "
        "must contain a client certificate: this agent supports neither tokens nor other files in it"
    )
    if ca_file is None and status["proxyServer"].startswith("https:"):
        note(
            f"the proxy has no plain port, so this agent uses {status['proxyServer']} and verifies it with "
            "the system's CAs; with --ca-file FILE, it verifies it with the proxy's CA"
        )
    elif ca_file is None:
        note(
            "this agent does not verify SSH host keys: over http it sends its cluster's credential to any "
            f"server at {status['proxyServer']}; with --ca-file FILE, it uses https and verifies this proxy"
        )
    return v1_join_line(name, status, ca_file)


def v1_join_line(name: str, status: dict[str, Any], ca_file: str | None = None) -> str:
    """Return the line that starts a KubeSphere Tower agent; scripts rely on its form.

    :param ca_file: file with the CA of the front door; None: use the plain port.
    """
    words = ["agent", "--name", name, "--token", status["token"]]
    if ca_file is None:
        return shlex.join([*words, "--proxy-server", status["proxyServer"]])
    # Go reads the system's CAs from this file
    return shlex.join(
        ["env", f"SSL_CERT_FILE={ca_file}", *words, "--proxy-server", status["secureProxyServer"]]
    )


def _join_token(client: TowerClient, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    body = {"apiVersion": "cluster.kubesphere.io/v1alpha1", "kind": "JoinToken", "spec": spec}
    status: dict[str, Any] = call_cluster(client, "POST", name, "/jointokens", body=body)["status"]
    return status


def _read_token(path: str) -> str:
    """Return the token in a file, without a final newline."""
    try:
        if path == "-":
            return sys.stdin.read(_TOKEN_LIMIT).strip()
        with open(path, encoding="utf-8") as file:
            return file.read(_TOKEN_LIMIT).strip()
    except OSError as e:
        raise CommandFailed(f"--token-file {path}: {(e.strerror or str(e)).lower()}") from e
    except UnicodeDecodeError as e:
        raise CommandFailed(f"--token-file {path}: is not text") from e


def _write_ca(path: Path, pem: str) -> None:
    """Write the CA; do not overwrite a file with other contents."""
    try:
        if path.exists() and path.read_bytes() != pem.encode():
            raise CommandFailed(f"--ca-file {path}: exists and is not this proxy's CA: choose another name")
        path.write_text(pem, encoding="ascii")
    except OSError as e:
        raise CommandFailed(f"--ca-file {path}: {(e.strerror or str(e)).lower()}") from e

"""Targets in the output of the host's API server and of its credential plugins."""

from __future__ import annotations

import json
import random

from tests.fuzz.engine import Broken, Target
from tests.fuzz.mutation import cuts
from tower.errors import ConfigurationError
from tower.kube.client import APIError
from tower.kube.kubeconfig import KubeAccess
from tower.kube.rest.exec_plugin import read_credential
from tower.kube.rest.host_api import WatchEvent
from tower.kube.rest.plugin_command import VERSIONS, PluginCommand
from tower.kube.rest.watch_body import WatchParser


def _events(pieces: list[bytes]) -> tuple[list[WatchEvent], str]:
    """Return the events in *pieces*, and the error at their end."""
    parser, events = WatchParser("/api/v1/secrets"), []
    for piece in pieces:
        try:
            events += parser.feed(piece)
        except APIError as e:
            return events, str(e)
    return events, ""


def check_watch(data: bytes, chance: random.Random) -> None:
    """Events do not depend on the pieces; an error has one line."""
    lines = [line + b"\n" for line in data.split(b"\n")]
    events, error = _events(lines)
    if "\n" in error:
        raise Broken(f"more than a line: {error}")
    whole = b"".join(lines)
    pieces = cuts(chance, whole)
    if _events(pieces)[1] != error:
        raise Broken(f"{_events(pieces)[1]!r} instead of {error!r} for {pieces}")
    if not error and _events(pieces)[0] != events:
        raise Broken(f"other events for {pieces}")
    for event in events:
        if not isinstance(event.resource_version, str):
            raise Broken(f"a version that is not a string: {event}")


def check_plugin(data: bytes, chance: random.Random) -> None:
    """A plugin's entry or output is taken, or an error of one line; that of output has no secrets."""
    try:
        credential = read_credential(data, VERSIONS[0])
    except ValueError as e:
        if "s3cret" in str(e) or "\n" in str(e):
            raise Broken(str(e)) from e
    else:
        if not credential.token and credential.certificate is None:
            raise Broken("no credential")
    try:
        entry = json.loads(data)
    except (ValueError, RecursionError):
        return
    if not isinstance(entry, dict):
        return
    try:
        command = PluginCommand.of(KubeAccess("https://a:1", plugin=entry, user="u"))
    except ConfigurationError as e:
        if "\n" in str(e):
            raise Broken(str(e)) from e
        return
    if command is not None and any("\0" in word for word in command.words):
        raise Broken("a zero byte in an argument")


_ITEM = {"kind": "Secret", "metadata": {"name": "a", "resourceVersion": "7"}, "data": {"x": "ü"}}
_WATCHES = (
    b"".join(
        json.dumps({"type": kind, "object": _ITEM}).encode() + b"\n"
        for kind in ("ADDED", "DELETED", "BOOKMARK")
    ),
    b'{"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired","message":"too old"}}\n',
)
_WORDS = (
    b"\n",
    b"\r\n",
    b"null",
    b"[]",
    b"{}",
    b'"ERROR"',
    b'"type"',
    b"[" * 2000,
    b"1e999",
    b"9" * 5000,
    b"\\u0000",
    b"\\ud800",
    b"\xff\xfe",
    b"NaN",
    b"s3cret",
    b'"expirationTimestamp":"9999-12-31T23:59:59-23:59"',
)
_PLUGINS = (
    json.dumps(
        {
            "kind": "ExecCredential",
            "apiVersion": VERSIONS[0],
            "status": {"token": "s3cret", "expirationTimestamp": "2026-11-23T10:00:00Z"},
        }
    ).encode(),
    json.dumps(
        {
            "apiVersion": VERSIONS[0],
            "command": "./get",
            "args": ["s3cret"],
            "env": [{"name": "A", "value": "s3cret"}],
            "interactiveMode": "Never",
            "provideClusterInfo": True,
            "installHint": "apt\ninstall",
        }
    ).encode(),
)

TARGETS = (
    Target("host-watch", _WATCHES, _WORDS, check_watch),
    Target("plugin", _PLUGINS, _WORDS, check_plugin),
)

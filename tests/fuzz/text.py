"""Targets in what owners and clients write: options, durations, URLs, kubeconfigs, objects."""

from __future__ import annotations

import atexit
import base64
import contextlib
import io
import json
import random
import shutil
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from twisted.python import usage

from tests.fuzz.engine import Broken, Target
from tower import agent, proxy
from tower.clusters.cluster import Cluster, to_object
from tower.errors import ConfigurationError, TowerError
from tower.kube.accept import choose
from tower.kube.kubeconfig import kubeconfig, load_kubeconfig
from tower.kube.request_info import parse_request_info
from tower.member.targets import Targets
from tower.net.addresses import parse_address
from tower.net.proxy_environment import find_proxy, parse_server_url
from tower.options.values import (
    LONGEST,
    format_duration,
    parse_duration,
    read_address,
    read_count,
    read_duration,
    read_host,
    read_port,
    read_port_range,
    read_size,
)
from tower.tunnels.targets import parse_target
from tower.web.api.fields.kinds import CLUSTER
from tower.web.api.fields.schema import pruned
from tower.web.api.selectors import parse_fields, parse_labels
from tower.web.api.writes.cluster_object import merge, read_cluster
from tower.web.api.writes.cluster_writes import Write, applied, replaced, status_applied, status_replaced

T = TypeVar("T")


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


def _refused_or(read: Callable[..., T], error: type[Exception], *arguments: Any) -> T | None:
    try:
        return read(*arguments)
    except error as e:
        str(e)
        return None


def check_quantities(data: bytes, chance: random.Random) -> None:
    """A value or a `ValueError`; values stay within bounds, and durations are written as they are read."""
    text = _text(data)
    seconds = _refused_or(parse_duration, ValueError, text)
    if seconds is not None:
        if not 0 <= seconds <= LONGEST:
            raise Broken(f"{text!r} is {seconds} s")
        if abs(parse_duration(format_duration(seconds)) - seconds) > 0.001:
            raise Broken(f"{seconds} s are written as {format_duration(seconds)}")
    for read in (read_duration, read_size, read_count, read_port_range, read_host, read_address):
        _refused_or(read, ValueError, text)
    port = _refused_or(read_port, ValueError, text)
    if port is not None and not 0 < port < 65536:
        raise Broken(f"{text!r} is port {port}")
    host = _refused_or(read_host, ValueError, text)
    if host is not None and read_host(host) != host:
        raise Broken(f"{text!r} is host {host!r}, which is {read_host(host)!r}")


def check_addresses(data: bytes, chance: random.Random) -> None:
    """An address or a `ConfigurationError` without the password."""
    text = _text(data)
    for read in (parse_address, parse_target):
        _refused_or(read, ConfigurationError, text)
    _refused_or(parse_address, ConfigurationError, text, 443)
    target = _refused_or(parse_target, ConfigurationError, text)
    if target is not None and Targets([target]).find(target.name) is not target:
        raise Broken(f"{target} is not found by its name")
    url = _refused_or(parse_server_url, ConfigurationError, text)
    if url is not None:
        if not (0 < url.port < 65536 and url.resource.startswith("/")):
            raise Broken(f"{text!r} is {url}")
        for name in ("https_proxy", "no_proxy"):
            _refused_or(
                find_proxy, ConfigurationError, url, {name: text, "HTTPS_PROXY": "http://u:p@proxy:1"}
            )
    server = parse_server_url("wss://tower.example.com")
    way = _refused_or(find_proxy, ConfigurationError, server, {"HTTPS_PROXY": text})
    if way is not None and way.request(server).count(b"\r\n\r\n") != 1:
        raise Broken(f"{text!r} makes the request {way.request(server)!r}")


@cache
def _folder() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="tower-fuzz-"))
    atexit.register(shutil.rmtree, folder, True)
    return folder


def check_kubeconfig(data: bytes, chance: random.Random) -> None:
    """A kubeconfig or a `ConfigurationError` of one line."""
    path = _folder() / "kubeconfig"
    path.write_bytes(data)
    try:
        access = load_kubeconfig(path)
    except ConfigurationError as e:
        if "\n" in str(e):
            raise Broken(f"more than a line: {e}") from e
        return
    if not access.server.lower().startswith(("http://", "https://")):
        raise Broken(f"the server is {access.server!r}")


def check_options(data: bytes, chance: random.Random) -> None:
    """Options are taken, or refused with a `UsageError`; words are separated by newlines."""
    words = _text(data).split("\n")
    for kind in (proxy.Options, agent.Options):
        variables = dict(word.partition("=")[::2] for word in words if word.startswith("TOWER_"))
        options = kind(variables)
        with contextlib.redirect_stdout(io.StringIO()):
            try:
                options.parse([word for word in words if not word.startswith("TOWER_")])
            except usage.UsageError as e:
                str(e)
            except SystemExit as e:
                if e.code not in (0, None):
                    raise Broken(f"ends with {e.code}") from e


def check_objects(data: bytes, chance: random.Random) -> None:
    """A client's object is accepted or refused with one of Tower's errors."""
    text = _text(data)
    parse_request_info(b"GET", data)
    choose(text, ["application/json", "application/json;as=Table;v=v1;g=meta.k8s.io"])
    for matches in (_refused_or(parse_labels, TowerError, text) or (), _fields(text)):
        for match in matches:
            match({"a": "b", "metadata.name": "alpha"})
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return
    if not isinstance(value, dict):
        return
    _refused_or(read_cluster, TowerError, value)
    cluster = Cluster("alpha", "1", 1, 0.0)
    write = Write("fuzz", "2026-01-01T00:00:00Z")
    merged = pruned(merge(to_object(cluster), value), CLUSTER)[0]
    changed = _refused_or(replaced, TowerError, cluster, merged, write)
    if changed is not None and changed.name != "alpha":
        raise Broken(f"a patch changed the name to {changed.name!r}")
    config = pruned(value, CLUSTER)[0]
    for apply in (applied, status_applied, status_replaced):
        _refused_or(apply, TowerError, cluster, config, write)


def _fields(text: str) -> Any:
    return _refused_or(parse_fields, TowerError, text, {"metadata.name": lambda item: "alpha"}) or ()


_KUBECONFIGS = (
    kubeconfig(
        server="https://tower:8443/clusters/alpha", ca_pem=b"PEM", cluster="alpha", user="jane", token="x"
    ).encode(),
    b"""\
clusters: [{name: a, cluster: {server: 'https://a:1', insecure-skip-tls-verify: true}}]
contexts: [{name: a, context: {cluster: a, user: a, namespace: n}}]
users: [{name: a, user: {tokenFile: t}}]
current-context: a
""",
)
_YAML = (
    b"&a",
    b"*a",
    b"<<: *a",
    b"!!python/object",
    b"!!binary",
    b"[",
    b"{",
    b": ",
    b"- ",
    b"\n",
    b"\t",
    b"null",
    b"~",
    b"[" * 2000,
    b"2001-01-01",
    b"1e999",
    b"exec: {command: x}",
    b"\xff\xfe",
    b"? ",
    b"| \n",
    b"server: 'http://[::1'",
    b"server: 'http://a:99999'",
)
_QUANTITIES = tuple(
    b"10s 1h30m 500ms 1d 0 .5h 1.5us 32MiB 1000000 1Gi 5 65535 6000-7000 none [::1] db.example:5432".split()
)
_ADDRESSES = tuple(
    b"postgres=10.0.0.5:5432 db=[::1]:1 wss://tower.example.com:8443/agent?x=y ws://[::1]:80 http://u:p@a:3128"
    b" proxy:3128 10.0.0.0/8,.example.com,*.b:80,[::1]:1 https://user@h".split()
)
_OPTIONS = (
    b"--port=8080\n--secure-port\n8443\n--cluster-ports=6000-7000\n--host=127.0.0.1\n--v=5",
    b"--name=alpha\n--proxy-server=wss://a:1\n--host-key=SHA256:"
    + base64.b64encode(bytes(32)).rstrip(b"=")
    + b"\n--target=db=a:1",
    b"TOWER_PORT=80\nTOWER_KEEPALIVE=5s\nTOWER_TARGET=a=b:1,c=d:2\n--no-impersonation\n-v3\n--vmodule=a=1,b*=2",
)
_OPTION_WORDS = (
    b"\n",
    b"=",
    b"--",
    b"-",
    b"--help",
    b"--version",
    b"--ca-hash=sha256:" + b"00" * 32,
    b"--v=",
    b"true",
    b"false",
    b"--logtostderr",
    b"--buffer-budget=1KiB",
    b"--max-retry=",
    b"TOWER_V=",
    b"TOWER_NO_IMPERSONATION=x",
    b"--grace=",
    b"\xff",
    b"9" * 4400,
    b"_",
)
_OBJECTS = (
    b"""{"apiVersion":"cluster.kubesphere.io/v1alpha1","kind":"Cluster","spec":{"enable":true,"connection":
    {"type":"proxy"}},"metadata":{"name":"alpha","labels":{"a":"b"},"resourceVersion":"5"}}""",
    b'{"spec":{"enable":false},"metadata":{"annotations":{"x":null}}}',
    b"a=b,c!=d,e in (f,g),h notin (i),!j,k",
    b"metadata.name=alpha",
    b"application/json;as=Table;v=v1;g=meta.k8s.io,application/json;q=0.5,*/*;q=nan",
    b"/api/v1/namespaces/default/pods/x/log?follow=true&watch=1",
)
_OBJECT_WORDS = (
    b"null",
    b"[]",
    b"{}",
    b'"',
    b"1",
    b"true",
    b"9" * 4400,
    b'"' + b"9" * 4400 + b'"',
    b"metadata",
    b"spec",
    b"\\ud800",
    b"\xff",
    b"%zz",
    b"/apis/a/b/",
    b"watch/",
    b"proxy/",
    b"[" * 500,
    b",",
    b"(",
    b"q=",
    b";",
)

TARGETS = (
    Target(
        "quantities",
        _QUANTITIES,
        (
            b"h",
            b"m",
            b"s",
            b"e",
            b"9" * 4400,
            b".",
            b"-",
            b"\xc2\xb5s",
            b"\xd9\xa3",
            b" ",
            b"[",
            b"]",
            b":",
            b"%eth0",
        ),
        check_quantities,
    ),
    Target(
        "addresses",
        _ADDRESSES,
        (
            b"://",
            b"@",
            b":",
            b"[",
            b"]",
            b"/",
            b"%0d%0a",
            b"\r\n",
            b"wss://",
            b"http://",
            b"*",
            b"9" * 4400,
            b"\xc3\xa4",
            b"#",
            b"?",
        ),
        check_addresses,
    ),
    Target("kubeconfig", _KUBECONFIGS, _YAML, check_kubeconfig),
    Target("options", _OPTIONS, _OPTION_WORDS, check_options),
    Target("objects", _OBJECTS, _OBJECT_WORDS, check_objects),
)

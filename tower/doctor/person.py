"""Checks of a kubeconfig's context, which is a user's for one cluster, or an administrator's."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping
from urllib.parse import urlsplit

from tower.doctor.api import UNREACHED, Login, TowerServer, refusal, unanswered
from tower.doctor.expiry import lasts
from tower.doctor.findings import Course, Finding, Step, Verdict, examine, fail, judged, ok, warn
from tower.doctor.network import Network
from tower.errors import ConfigurationError
from tower.kube.client import APIError
from tower.kube.connection_settings import CredentialFacts, bearer_token
from tower.kube.kubeconfig import KubeAccess
from tower.kube.rest.kubeconfig_files import KubeconfigFiles
from tower.kube.rest.plugin_once import with_credential

_NEW = "get a new kubeconfig: tower kubeconfig CLUSTER --user USER"

#: The cluster in the path of its server.
_CLUSTER = re.compile(r"/clusters/([a-z0-9.-]+)")

_CURES = {
    401: _NEW,
    403: "use a kubeconfig for this cluster",
    404: "check the cluster's name with: tower cluster list",
}

_EXPLAIN = "ask Tower's administrator to run: tower access explain USER {}"

#: The cures of denials of a valid credential, by a part of the message; {} is the cluster.
_DENIALS = {
    "this is a rule of Tower": _EXPLAIN,
    "is not admitted to cluster": _EXPLAIN,
    "this is Tower's own API": "ask Tower's administrator for a role, such as tower:viewer",
    "forbidden by the owner of cluster": "ask the owner of cluster {} to change the policy of its agent",
}


async def examine_kubeconfig(
    network: Network,
    files: KubeconfigFiles,
    context: str | None,
    environ: Mapping[str, str],
    now: Callable[[], float],
) -> list[Finding]:
    """Return the findings about a context of *files*."""
    try:
        access, _ = with_credential(files.load(context), environ)
        new = _NEW if access.plugin is None else _new_login(access)
        server = TowerServer(network, access, environ, now, new)
        token = bearer_token(access) or ""
    except ConfigurationError as e:
        return [Finding("kubeconfig", judged(str(e), f"correct the file, or {_NEW}"))]
    found = _CLUSTER.search(access.server)
    cluster = found[1] if found else "CLUSTER"
    ask = f"ask Tower's administrator to run: tower doctor {cluster}"
    denials = {part: cure.format(cluster) for part, cure in _DENIALS.items()}
    course = Course(
        [
            Step("kubeconfig", lambda: _file(files, access)),
            *server.route.steps(),
            Step("credential", lambda: _credential(access, token, now(), new)),
            *Login(server, {**_CURES, 401: new}, denials).steps("cluster", ask),
            Step("user", lambda: _user(server, ask)),
        ]
    )
    return await examine([course])


def _file(files: KubeconfigFiles, access: KubeAccess) -> Verdict:
    for path in files.paths:
        if path.stat().st_mode & 0o077:
            return warn(f"{path} is accessible to other users", f"chmod 600 {shlex.quote(str(path))}")
    return ok(f"{files} is for {access.server}")


def _new_login(access: KubeAccess) -> str:
    url = urlsplit(access.server)
    return f"tower login {url.scheme}://{url.netloc}"


def _credential(access: KubeAccess, token: str, now: float, new: str) -> Verdict:
    facts = CredentialFacts.of(access.client_certificate or b"", token.encode())
    if not facts.kind:
        return fail("the kubeconfig has no token and no client certificate", new)
    begin, end = facts.lifetime.begin, facts.lifetime.end
    if begin is not None and now < begin:
        return fail(f"the {facts.kind} is not valid yet", "set the clock of this machine")
    if access.plugin is not None:
        return ok(f"a {facts.kind} of the credential plugin, which makes the next one")
    if end is None:
        return ok(f"a {facts.kind}; only the proxy knows its expiry")
    return lasts(f"the {facts.kind}", end, now, new, soon=facts.expires_soon(now))


async def _user(server: TowerServer, ask: str) -> Verdict:
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    try:
        code, value = await server.request("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", body)
    except APIError as e:
        return fail(unanswered(e), ask)
    if code in UNREACHED:
        return fail(refusal(code, value), ask)
    info = value.get("status", {}).get("userInfo", {}) if code < 300 else {}
    if not info.get("username"):
        return ok("unknown: the server has no SelfSubjectReview")
    return ok(f"{info['username']}, groups {', '.join(info.get('groups') or ()) or 'none'}")

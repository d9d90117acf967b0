"""Checks of the identity providers (OpenID Connect) of a running proxy."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any
from urllib.parse import urlsplit

from attrs import define, field

from tower.doctor.api import TowerServer, unanswered
from tower.doctor.expiry import compare_clocks
from tower.doctor.findings import Course, Step, Verdict, fail, ok, warn
from tower.doctor.network import Network
from tower.errors import ConfigurationError
from tower.escaping import quoted
from tower.kube.client import APIError
from tower.kube.connection_settings import server_address
from tower.kube.kubeconfig import KubeAccess
from tower.net.connecting import ConnectFailed
from tower.net.proxy_environment import ServerURL, find_proxy
from tower.net.tls.unverified import unverified_context
from tower.web.access.authentication.oidc.key_set import read_key_set

#: Page of the front door that lists the identity providers of 'tower login'.
_LOGIN = "/.well-known/tower-login"

#: Providers that are checked.
LIMIT = 20

#: Longest URL of a provider that is shown, characters.
_LONGEST = 200

_METRIC = re.compile(r'^tower_oidc_(keys|fetch_failed)\{issuer="((?:[^"\\]|\\.)*)"\} (\S+)$', re.MULTILINE)

_LOG = "search the log of tower-proxy for 'OIDC issuer'"
_SETTING = "--oidc-issuer-url, or the issuer's url in --authentication-config"


async def provider_courses(
    server: TowerServer, environ: Mapping[str, str], now: Callable[[], float]
) -> list[Course]:
    """Return the checks of the providers of the proxy *server*."""
    try:
        metrics = await server.text("/metrics")
        code, value = await server.request("GET", _LOGIN)
    except APIError:
        return []  # other checks have failed
    states = _states(metrics)
    courses = [Course([Step("proxy's keys", partial(_in_use, url, *state))]) for url, state in states]
    entries = value.get("issuers") if code == 200 else None
    known = [each for each in entries if isinstance(each, dict)] if isinstance(entries, list) else []
    checks = [ProviderChecks(server.network, each, environ, now) for each in known[:LIMIT]]
    return [*courses, *(each.course() for each in checks)]


def _states(metrics: str) -> Iterable[tuple[str, tuple[int, bool]]]:
    """Return each issuer with the number of its keys, and whether the last attempt to get them failed."""
    found: dict[str, dict[str, float]] = {}
    for name, url, number in _METRIC.findall(metrics):
        found.setdefault(url, {})[name] = float(number)
    states = [
        (url, (int(each.get("keys", 0)), bool(each.get("fetch_failed")))) for url, each in found.items()
    ]
    return states[:LIMIT]


def _in_use(url: str, keys: int, failed: bool) -> Verdict:
    if not keys and not failed:
        return warn(f"the proxy is getting the keys of {url}", "run this command again in a few seconds")
    if not keys:
        return fail(f"the proxy has no keys of {url}, so it rejects all tokens of this issuer", _LOG)
    if failed:
        return warn(f"the proxy has keys of {url}, but its last attempt to get them failed", _LOG)
    return ok(f"keys of {url} in use by the proxy: {keys}")


@define(eq=False)
class ProviderChecks:
    """Checks of one provider from this machine, with the CAs that the proxy uses.

    :param entry: the provider in the front door's discovery document.
    """

    _network: Network
    _entry: Mapping[str, Any]
    _environ: Mapping[str, str]
    _now: Callable[[], float]
    _document: Mapping[str, Any] = field(factory=dict, init=False)

    @property
    def _url(self) -> str:
        return str(self._entry.get("url"))

    def course(self) -> Course:
        """Return the checks."""
        return Course(
            [Step("identity provider", self._discovery)],
            [Course([Step("provider's keys", self._keys)]), Course([Step("provider's clock", self._clock)])],
        )

    async def _discovery(self) -> Verdict:
        address = str(self._entry.get("discoveryURL") or "")
        address = address or self._url.removesuffix("/") + "/.well-known/openid-configuration"
        answer = await self._get(address, f"correct {_SETTING}")
        if isinstance(answer, Verdict):
            return answer
        if not isinstance(answer, dict) or "issuer" not in answer:
            return fail(f"{address} is not a discovery document", f"correct {_SETTING}")
        if answer["issuer"] != self._url:
            named = quoted(str(answer["issuer"]), _LONGEST)
            seen = f"the discovery document of {self._url} names the issuer {named}"
            return fail(seen, f"set {_SETTING}, to exactly that URL, including any trailing slash")
        self._document = answer
        return ok(f"{self._url} has a discovery document for this issuer")

    async def _keys(self) -> Verdict:
        url = self._document.get("jwks_uri")
        if not isinstance(url, str) or not url.startswith("https://"):
            return fail("the discovery document has no https jwks_uri", "correct the provider's settings")
        answer = await self._get(url, "correct jwks_uri in the provider's settings")
        if isinstance(answer, Verdict):
            return answer
        try:
            return ok(f"usable keys at {url[:_LONGEST]}: {len(read_key_set(answer))}")
        except ValueError as e:
            return fail(f"{url[:_LONGEST]}: {e}", "add a signing key at the provider")

    async def _clock(self) -> Verdict:
        url = self._server_url(self._url)
        path = urlsplit(self._url).path or "/"
        try:
            answer = await self._network.glimpse(
                url, find_proxy(url, self._environ), path, unverified_context()
            )
        except ConnectFailed as e:
            return warn(f"could not read the provider's clock: {e}", "run this command again")
        if answer.date is None:
            return warn("the provider's response has no Date header", "check the clock of the provider")
        return compare_clocks(self._now() - answer.date, "the provider")

    async def _get(self, url: str, mended: str) -> Any:
        """Return the JSON value at *url*, or the failure.

        :param mended: the cure if *url* answers, but with something else.
        """
        authority = str(self._entry.get("certificateAuthority") or "").encode()
        cure = "start the provider, or correct its URL, or the DNS and routes of this machine"
        try:
            parts = urlsplit(url)
            path = f"{parts.path}{'?' if parts.query else ''}{parts.query}"
            path.encode("ascii")
            access = KubeAccess(f"https://{parts.netloc}", authority or None)
            client = self._network.client(access, find_proxy(self._server_url(url), self._environ))
        except (ConfigurationError, ValueError) as e:
            return fail(f"{quoted(url, _LONGEST)}: {e}", mended)
        try:
            answer = await client.request("GET", path)
        except APIError as e:
            if "certificate verify failed" in str(e):
                cure = "give the provider's CA in --oidc-ca-file, or certificateAuthority of the issuer"
            return fail(f"{parts.netloc}: {unanswered(e)}", cure)
        finally:
            client.close()
        if answer.code != 200:
            return fail(f"{url[:_LONGEST]} answered HTTP status {answer.code}", mended)
        try:
            return json.loads(answer.body)
        except (ValueError, RecursionError):
            return fail(f"{url[:_LONGEST]} is not JSON", mended)

    def _server_url(self, url: str) -> ServerURL:
        host, port, secure = server_address(KubeAccess(url))
        return ServerURL(secure, host, port, "/")

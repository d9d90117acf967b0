"""Logins at Keystone, version 3: tokens and the service catalog."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

from attrs import define, field, frozen

from tower.cloud.errors import CloudAnswerError, CloudError
from tower.cloud.http.answer import error_detail, shorten
from tower.cloud.openstack.config import OpenStackConfig
from tower.cloud.session import CloudSession


@frozen
class KeystoneLogin:
    """Result of a login.

    :ivar compute: Nova's URL, without a trailing slash.
    :ivar region: of *compute*.
    """

    token: str = field(repr=False)
    compute: str
    region: str


@define(eq=False, repr=False)
class Keystone:
    """Logs in with a password or an application credential.

    :param now: returns s since the epoch, for responses without a date.
    """

    _session: CloudSession
    _config: OpenStackConfig
    _now: Callable[[], float] = time.time

    async def log_in(self) -> tuple[KeystoneLogin, float]:
        """Return a new login and its lifetime, s.

        :raise CloudError: Keystone rejects the login, or has no matching compute service.
        """
        body = json.dumps({"auth": login_body(self._config)}).encode()
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        try:
            answer = await self._session.request(
                "POST", f"{self._config.auth_url}/auth/tokens", headers=headers, body=body, expect=(201, 200)
            )
        except CloudAnswerError as e:
            raise self._without_secrets(e) from None
        fields, token = answer.json(), answer.header("x-subject-token")
        try:
            until, since = fields["token"]["expires_at"], fields["token"].get("issued_at")
            issued = _moment(since) if since else self._now() if answer.date is None else answer.date
            lifetime = _moment(until) - issued
            compute, region = find_compute(fields["token"].get("catalog") or (), self._config)
        except (KeyError, TypeError, ValueError, AttributeError):
            raise CloudError(f"{answer.url} sent no valid login") from None
        if not token:
            raise CloudError(f"{answer.url} sent no token")
        return KeystoneLogin(token, compute, region), lifetime

    def _without_secrets(self, error: CloudAnswerError) -> CloudAnswerError:
        """Return the error without the request's secrets, which some services repeat."""
        secrets = [each for each in (self._config.password, self._config.credential_secret) if each]
        detail = error_detail(error.body, secrets)
        text = f"POST {self._config.auth_url}/auth/tokens answered {error.code}"
        return CloudAnswerError(
            error.code, f"{text}: {detail}" if detail else text, retry_after=error.retry_after
        )


def login_body(config: OpenStackConfig) -> dict[str, Any]:
    """Return the ``auth`` object of a login."""
    user: dict[str, Any] = config.user.render()
    if not config.user.id:
        user["domain"] = config.user_domain.render()
    if config.credential:
        credential: dict[str, Any] = {**config.credential.render(), "secret": config.credential_secret}
        if not config.credential.id:
            credential["user"] = user
        return _identity("application_credential", credential)
    auth = _identity("password", {"user": {**user, "password": config.password}})
    if config.trust:
        return auth | {"scope": {"OS-TRUST:trust": {"id": config.trust}}}
    project: dict[str, Any] = config.project.render()
    if not config.project.id:
        project["domain"] = config.project_domain.render()
    return auth | {"scope": {"project": project}}


def find_compute(catalog: Any, config: OpenStackConfig) -> tuple[str, str]:
    """Return URL and region of the configuration's compute service.

    :param catalog: Keystone's.
    :raise CloudError: there is none, or more than one.
    """
    found = {
        region: url
        for kind, interface, region, url in _endpoints(catalog)
        if kind == "compute" and interface == config.interface and config.region in ("", region)
    }
    if len(found) == 1:
        region, url = found.popitem()
        return url.rstrip("/"), region
    if found:
        raise CloudError(f"the catalog has several regions: set region = {' or '.join(sorted(found))}")
    regions = sorted({region for kind, _, region, _ in _endpoints(catalog) if kind == "compute"})
    where = f" in region {config.region}" if config.region else ""
    raise CloudError(
        f"the catalog has no {config.interface} compute service{where}; "
        f"regions with one: {shorten(', '.join(regions)) or 'none'}"
    )


def _endpoints(catalog: Any) -> Iterator[tuple[str, str, str, str]]:
    for service in catalog:
        for each in service.get("endpoints") or ():
            region = each.get("region_id") or each.get("region") or ""
            yield service["type"], each["interface"], region, each["url"]


def _identity(method: str, credential: dict[str, Any]) -> dict[str, Any]:
    return {"identity": {"methods": [method], method: credential}}


def _moment(text: str) -> float:
    moment = datetime.fromisoformat(text)
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()

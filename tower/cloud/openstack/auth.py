"""Logging in at Keystone, version 3: tokens, and where they lead."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

from attrs import field, frozen

from tower.cloud.errors import CloudAnswerError, CloudError
from tower.cloud.http.answer import shorten, what_it_says
from tower.cloud.openstack.config import OpenStackConfig
from tower.cloud.session import CloudSession


@frozen
class KeystoneLogin:
    """What a login gave.

    :ivar compute: Nova's URL, without a slash at its end.
    :ivar region: that it is in.
    """

    token: str = field(repr=False)
    compute: str
    region: str


class Keystone:
    """Logs in as the configuration says, by password or by application credential.

    :param now: tells the time, s since the epoch, where Keystone does not.
    """

    def __init__(
        self, session: CloudSession, config: OpenStackConfig, now: Callable[[], float] = time.time
    ) -> None:
        self._session = session
        self._config = config
        self._now = now

    async def log_in(self) -> tuple[KeystoneLogin, float]:
        """Return a new login, and how long it lasts, s.

        :raise CloudError: Keystone refuses us, or knows no such compute service.
        """
        body = json.dumps({"auth": login_body(self._config)}).encode()
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        try:
            answer = await self._session.request(
                "POST", f"{self._config.auth_url}/auth/tokens", headers=headers, body=body, expect=(201, 200)
            )
        except CloudAnswerError as e:
            raise self._without_secrets(e) from None
        said, token = answer.json(), answer.header("x-subject-token")
        try:
            until, since = said["token"]["expires_at"], said["token"].get("issued_at")
            came = _moment(since) if since else self._now() if answer.date is None else answer.date
            lifetime = _moment(until) - came
            compute, region = find_compute(said["token"].get("catalog") or (), self._config)
        except (KeyError, TypeError, ValueError, AttributeError):
            raise CloudError(f"{answer.url} gave no login that can be read") from None
        if not token:
            raise CloudError(f"{answer.url} gave no token")
        return KeystoneLogin(token, compute, region), lifetime

    def _without_secrets(self, error: CloudAnswerError) -> CloudAnswerError:
        """Return an error that does not repeat what we sent; some services do."""
        secrets = [each for each in (self._config.password, self._config.credential_secret) if each]
        said = what_it_says(error.body, secrets)
        text = f"POST {self._config.auth_url}/auth/tokens answered {error.code}"
        return CloudAnswerError(
            error.code, f"{text}: {said}" if said else text, retry_after=error.retry_after
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
    """Return URL and region of the compute service that the configuration means.

    :param catalog: as Keystone gives it.
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
        raise CloudError(f"there are several regions, name one: region = {' or '.join(sorted(found))}")
    regions = sorted({region for kind, _, region, _ in _endpoints(catalog) if kind == "compute"})
    where = f" in region {config.region}" if config.region else ""
    raise CloudError(
        f"this login leads to no {config.interface} compute service{where}; "
        f"regions with one: {shorten(', '.join(regions)) or 'none'}"
    )


def _endpoints(catalog: Any) -> Iterator[tuple[str, str, str, str]]:
    for service in catalog:
        for each in service.get("endpoints") or ():
            region = each.get("region_id") or each.get("region") or ""
            yield service["type"], each["interface"], region, each["url"]


def _identity(method: str, said: dict[str, Any]) -> dict[str, Any]:
    return {"identity": {"methods": [method], method: said}}


def _moment(text: str) -> float:
    moment = datetime.fromisoformat(text)
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()

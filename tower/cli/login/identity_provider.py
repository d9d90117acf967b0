"""An identity provider (OpenID Connect), as a public client sees it: discovery, PKCE, and its tokens."""

from __future__ import annotations

import hashlib
import secrets
import time
from base64 import urlsafe_b64encode
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlencode

import attrs

from tower.cli.client import CommandFailed
from tower.cli.login.exchange import Reply, Unreachable, Untrusted, ask
from tower.kube.connection_settings import claims_of_token
from tower.kube.kubeconfig import KubeAccess

#: Scopes that are requested, if the provider has them.
SCOPES = ("openid", "email", "profile", "groups", "offline_access")

#: Pause between two requests for the result of a device login, s, and what slow_down adds to it.
PAUSE = 5.0

#: Longest of these pauses while the provider does not answer, s.
LONGEST_PAUSE = 60.0

_DEVICE_GRANT = "urn:ietf:params:oauth:grant-type:device_code"
_DEVICE_ERRORS = ("authorization_pending", "slow_down", "access_denied", "expired_token")


@attrs.frozen
class ProviderTokens:
    """The tokens of a user.

    :ivar refresh_token: may be empty.
    :ivar has_consent: the login requested consent.
    """

    id_token: str = attrs.field(repr=False)
    refresh_token: str = attrs.field(repr=False)
    has_consent: bool = False


@attrs.frozen
class PKCE:
    """Secrets of one login by browser (RFC 7636)."""

    verifier: str = attrs.field(factory=lambda: secrets.token_urlsafe(48), repr=False)
    state: str = attrs.field(factory=lambda: secrets.token_urlsafe(24), repr=False)

    @property
    def challenge(self) -> str:
        """The part that the browser sends."""
        digest = hashlib.sha256(self.verifier.encode()).digest()
        return urlsafe_b64encode(digest).rstrip(b"=").decode()


@attrs.frozen
class DeviceLogin:
    """A login that the user finishes on another machine.

    :ivar address: URL to open there; *whole* has the code, too, or is empty.
    """

    code: str = attrs.field(repr=False)
    user_code: str
    address: str
    whole: str
    interval: float
    lifetime: float


class IdentityProvider:
    """One provider.

    :param issuer: its entry in the front door's configuration.
    :param nonce: of the login; see `tower.trust.login_nonce`.
    :ivar needs_refresh_token: whether the front door rejects a login here without one.
    :raise CommandFailed: its discovery document cannot be got or used.
    """

    def __init__(self, issuer: Mapping[str, Any], nonce: str) -> None:
        self.url, self.client = str(issuer["url"]), str(issuer["clientID"])
        self._nonce = nonce
        self._accepts_devices = issuer.get("deviceCode") is not False
        secret = str(issuer.get("clientSecret", ""))
        self._secret = {"client_secret": secret} if secret else {}
        self.needs_refresh_token = issuer.get("refreshToken") is True
        self._access = KubeAccess(self.url, str(issuer.get("certificateAuthority", "")).encode() or None)
        address = str(issuer.get("discoveryURL") or "")
        address = address or self.url.removesuffix("/") + "/.well-known/openid-configuration"
        if not address.startswith("https://"):
            raise CommandFailed(
                f"{address} is not the URL of a discovery document: it must begin with https://"
            )
        reply = self._ask("GET", address)
        if reply.status != 200 or reply.value.get("issuer") != self.url:
            raise CommandFailed(f"{address} is not the discovery document of {self.url}: {reply.message}")
        self._document = reply.value

    @property
    def has_devices(self) -> bool:
        """Whether it supports logins by device code (RFC 8628), and the front door accepts them."""
        return self._accepts_devices and bool(self._document.get("device_authorization_endpoint"))

    @property
    def scope(self) -> str:
        """The scopes to request."""
        known = self._document.get("scopes_supported")
        found = [each for each in SCOPES if not isinstance(known, list) or each in known or each == "openid"]
        return " ".join(found)

    def address(self, pkce: PKCE, redirect: str, *, consent: bool = False) -> str:
        """Return the URL that the browser opens.

        :param consent: the provider asks the user again; some give refresh tokens only then.
        """
        query = {
            "response_type": "code",
            "client_id": self.client,
            "redirect_uri": redirect,
            "scope": self.scope,
            "state": pkce.state,
            "nonce": self._nonce,
            "code_challenge": pkce.challenge,
            "code_challenge_method": "S256",
            "access_type": "offline",  # Google's name of offline_access; others ignore it
            **_prompt(consent),
        }
        endpoint = self._endpoint("authorization_endpoint")
        return f"{endpoint}{'&' if '?' in endpoint else '?'}{urlencode(query)}"

    def has_answered(self, issuer: str | None) -> bool:
        """Return whether an authorization response is this provider's, by its parameter ``iss`` (RFC 9207).

        :param issuer: None: the response has none, although the provider may always send it.
        """
        if issuer is None:
            return self._document.get("authorization_response_iss_parameter_supported") is not True
        return issuer == self.url

    def by_code(self, pkce: PKCE, redirect: str, code: str) -> ProviderTokens:
        """Return the tokens for the code that the browser brought.

        :raise CommandFailed: the provider rejects it, or its answer is of another login.
        """
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": redirect,
            "client_id": self.client,
            "code_verifier": pkce.verifier,
        }
        reply = self._ask("POST", self._endpoint("token_endpoint"), form)
        if reply.status != 200:
            raise CommandFailed(self._rejected(reply))
        tokens = self._tokens(reply)
        if claims_of_token(tokens.id_token.encode()).get("nonce") != self._nonce:
            raise CommandFailed(f"{self.url} answered with a token of another login: run 'tower login' again")
        return tokens

    def begin_device(self, *, consent: bool = False) -> DeviceLogin:
        """Begin a login by device code.

        :param consent: as in `address`.
        :raise CommandFailed: the provider does not support that, or the front door does not accept it.
        """
        if not self._accepts_devices:
            raise CommandFailed(
                "this Tower does not accept device codes (--login-device-code of the proxy): run 'tower "
                "login' on a machine with a browser, without --device"
            )
        reply = self._ask(
            "POST",
            self._endpoint("device_authorization_endpoint"),
            {"client_id": self.client, "scope": self.scope, **_prompt(consent)},
        )
        value = reply.value
        if reply.status != 200 or not all(value.get(key) for key in ("device_code", "user_code")):
            raise CommandFailed(self._rejected(reply))
        return DeviceLogin(
            str(value["device_code"]),
            str(value["user_code"]),
            str(value.get("verification_uri") or value.get("verification_url") or ""),
            str(value.get("verification_uri_complete") or ""),
            _seconds(value.get("interval"), PAUSE),
            _seconds(value.get("expires_in"), 600.0),
        )

    def by_device(
        self,
        device: DeviceLogin,
        sleep: Callable[[float], object],
        seconds: Callable[[], float] = time.monotonic,
    ) -> ProviderTokens:
        """Return the tokens, once the user has finished the login.

        While the provider does not answer, or answers 429 or 5xx, the pause doubles (RFC 8628, section 3.5).

        :raise CommandFailed: the user did not finish it in time, or refused it.
        """
        form = {"grant_type": _DEVICE_GRANT, "device_code": device.code, "client_id": self.client}
        interval = pause = max(1.0, device.interval)
        end, problem = seconds() + device.lifetime, ""
        while (left := end - seconds()) > 0:
            sleep(min(pause, left))
            reply, problem = self._polled(form)
            if reply is None:
                pause = min(2 * pause, LONGEST_PAUSE)
                continue
            if reply.status == 200:
                return self._tokens(reply)
            match reply.value.get("error"):
                case "authorization_pending":
                    pass
                case "slow_down":
                    interval += PAUSE
                case "access_denied":
                    raise CommandFailed(f"the login was refused at {self.url}")
                case "expired_token":
                    break
                case _:
                    raise CommandFailed(self._rejected(reply))
            pause = interval
        cause = f" ({problem})" if problem else ""
        raise CommandFailed(f"the code was not entered in time{cause}: run 'tower login' again")

    def _polled(self, form: Mapping[str, str]) -> tuple[Reply | None, str]:
        """Return the token endpoint's answer; or None, and why a later one may be better.

        :raise Untrusted: the provider's certificate cannot be verified.
        """
        try:
            reply = self._ask("POST", self._endpoint("token_endpoint"), form)
        except Untrusted:
            raise
        except Unreachable as e:
            return None, str(e)
        is_answer = reply.status == 200 or reply.value.get("error") in _DEVICE_ERRORS
        if not is_answer and (reply.status == 429 or reply.status >= 500):
            return None, f"the identity provider {self.url} answered {reply.message}"
        return reply, ""

    def _tokens(self, reply: Reply) -> ProviderTokens:
        tokens = reply.value.get("id_token"), reply.value.get("refresh_token") or ""
        if not all(isinstance(each, str) for each in tokens) or not tokens[0]:
            raise CommandFailed(f"{self.url} answered without an ID token: the scope openid must be allowed")
        return ProviderTokens(str(tokens[0]), str(tokens[1]))

    def _endpoint(self, name: str) -> str:
        url = self._document.get(name)
        if not isinstance(url, str) or not url.startswith("https://"):
            raise CommandFailed(f"the identity provider {self.url} has no {name} with https")
        return url

    def _ask(self, method: str, url: str, form: Mapping[str, str] | None = None) -> Reply:
        access = attrs.evolve(self._access, server=url)
        return ask(access, method, url, form=None if form is None else {**form, **self._secret})

    def _rejected(self, reply: Reply) -> str:
        error = reply.value.get("error")
        more = ""
        if error in ("invalid_client", "unauthorized_client"):
            more = (
                f": an administrator must make {self.client} a public client there, or give tower-proxy its "
                "secret (--login-client-secret-file)"
            )
        return f"the identity provider {self.url} rejects the login: {reply.message}{more}"


def _prompt(consent: bool) -> Mapping[str, str]:
    return {"prompt": "consent"} if consent else {}


def _seconds(value: object, default: float) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 86400:
        return default
    return float(value)

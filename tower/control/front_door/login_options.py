"""Options of ``tower-proxy`` for ``tower login``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from attrs import evolve
from twisted.python import usage

from tower.control.front_door.oidc_options import OIDCOptions
from tower.options.errors import OptionError
from tower.options.parameters import Parameter, flag, parameter
from tower.options.values import read_boolean, read_duration
from tower.web.access.authentication.oidc.configuration import AuthenticationConfiguration
from tower.web.access.authentication.oidc.issuer import IssuerSettings
from tower.web.login.login_settings import LoginSettings

#: Longest secret, characters.
_SECRET_LIMIT = 4096

#: Longest session, s.
LONGEST = 7 * 86400.0


def _read_session_ttl(text: str) -> float:
    ttl = read_duration(text)
    if not 60 <= ttl <= LONGEST:
        raise ValueError("is out of range: give 1m to 168h")
    return ttl


class LoginOptions(OIDCOptions):
    """Options of logins."""

    optParameters: ClassVar[Sequence[Parameter]] = [
        parameter(
            "login-session-ttl",
            "12h",
            "Lifetime of a session of 'tower login', after which the user logs in again.",
            _read_session_ttl,
        ),
        parameter(
            "login-workload-ttl",
            "1h",
            "Lifetime of the session that 'tower login --token-file' gets for a workload's token.",
            _read_session_ttl,
        ),
        parameter(
            "login-device-code",
            "true",
            "Accept logins by device code.  Their ID tokens are not bound to this Tower, so a program that "
            "poses as a Tower can use them here; false accepts only logins by browser.",
            read_boolean,
        ),
    ]
    optFlags: ClassVar[Sequence[tuple[str, None, str]]] = [
        flag(
            "login-without-refresh-token",
            "Accept logins without a refresh token from providers that have them.  Such a session goes on "
            "until it expires, also if the user is removed at the provider.",
        )
    ]
    repeated = frozenset({*OIDCOptions.repeated, "login-client-id", "login-client-secret-file"})

    def __init__(self, environ: Mapping[str, str] | None = None) -> None:
        super().__init__(environ)
        self["login-client-ids"] = {}
        self["login-client-secrets"] = {}

    def opt_login_client_id(self, text: str) -> None:
        """Client ID of 'tower login', as ISSUER=CLIENT-ID.  Repeatable.  [default: --oidc-client-id]"""
        self.check(self._add_client, text)

    def opt_login_client_secret_file(self, text: str) -> None:
        """Client secret that a provider requires and all users get, as ISSUER=FILE.  Repeatable."""
        self.check(self._add_secret, text)

    def check_rules(self) -> None:
        """See `EnvironmentOptions.check_rules`."""
        super().check_rules()
        self.check(self._check_login)

    @property
    def login(self) -> LoginSettings:
        """The settings of logins."""
        clients = dict(self["login-client-ids"])
        if not clients and self.issuer is not None:
            clients = {self.issuer.url: self.issuer.audiences[0]}
        return LoginSettings(
            clients,
            self["login-session-ttl"],
            self["login-workload-ttl"],
            not self["login-without-refresh-token"],
            is_exclusive=bool(self["login-client-ids"]),
            secrets=dict(self["login-client-secrets"]),
            accepts_device_codes=self["login-device-code"],
        )

    @property
    def issuer(self) -> IssuerSettings | None:
        """The issuer of ``--oidc-*``; its tokens may also be for the client of logins."""
        found = super().issuer
        client = "" if found is None else self["login-client-ids"].get(found.url, "")
        if found is None or not client or client in found.audiences:
            return found
        return evolve(found, audiences=(*found.audiences, client))

    def read_configuration(self, data: bytes) -> AuthenticationConfiguration:
        """Return the content of ``--authentication-config``.

        :raise ValueError: it is not valid, or rejects the tokens of logins.
        """
        found = super().read_configuration(data)
        for i, issuer in enumerate(found.issuers):
            client = self["login-client-ids"].get(issuer.url, "")
            if client and client not in issuer.audiences:
                raise ValueError(
                    f"jwt[{i}].issuer.audiences: must contain {client!r} of --login-client-id: add it, and "
                    "set audienceMatchPolicy: MatchAny"
                )
        return found

    def _add_client(self, text: str) -> None:
        url, equals, client = text.rpartition("=")
        if not equals or not url.startswith("https://") or not client.strip():
            raise OptionError(
                "login-client-id",
                text,
                "is malformed: give ISSUER=CLIENT-ID, such as https://id.example.org=tower",
            )
        self["login-client-ids"][url.strip()] = client.strip()

    def _add_secret(self, text: str) -> None:
        url, _, path = text.rpartition("=")
        if not url.startswith("https://") or not path.strip():
            raise OptionError(
                "login-client-secret-file",
                text,
                "is malformed: give ISSUER=FILE, such as https://id.example.org=/etc/tower/login-client",
            )
        try:
            with open(path.strip(), encoding="ascii") as file:
                secret = file.read(_SECRET_LIMIT).strip()
        except OSError as e:
            raise OptionError("login-client-secret-file", text, f"cannot be read: {e.strerror}") from e
        except UnicodeDecodeError:
            secret = ""
        if not secret or not secret.isprintable():
            raise OptionError("login-client-secret-file", text, "must contain one line of ASCII, the secret")
        self["login-client-secrets"][url.strip()] = secret

    def _check_login(self) -> None:
        if self["login-client-ids"] and self["authentication-config"] is None and self.issuer is None:
            raise usage.UsageError(
                "--login-client-id requires the issuer: give --authentication-config or --oidc-issuer-url"
            )
        for url in self["login-client-secrets"]:
            if url not in self["login-client-ids"]:
                raise usage.UsageError(
                    f"--login-client-secret-file {url}: the client is unknown: give --login-client-id "
                    f"{url}=CLIENT-ID"
                )

"""Options of ``tower-proxy`` for ID tokens of OpenID Connect providers, with kube-apiserver's names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from twisted.python import usage

from tower.control.front_door.token_options import TokenOptions
from tower.errors import ConfigurationError
from tower.http.verifying_agent import trust_of_file
from tower.options.errors import OptionError
from tower.options.followed_file import FollowedFile
from tower.options.parameters import Parameter, list_parameter, parameter
from tower.options.values import read_file, read_path, unless_empty
from tower.web.access.authentication.oidc.configuration import (
    AuthenticationConfiguration,
    read_configuration,
)
from tower.web.access.authentication.oidc.configuration_checks import url_problems
from tower.web.access.authentication.oidc.issuer import ALGORITHMS, ClaimSource, IssuerSettings

#: Value of ``--oidc-username-prefix`` for no prefix.
NO_PREFIX = "-"

#: Default of ``--oidc-signing-algs``.
_ALGORITHM = "RS256"

_FLAGS = (
    "oidc-issuer-url",
    "oidc-client-id",
    "oidc-ca-file",
    "oidc-username-claim",
    "oidc-username-prefix",
    "oidc-groups-claim",
    "oidc-groups-prefix",
    "oidc-signing-algs",
    "oidc-required-claim",
)


def _read_algorithms(text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    for name in names:
        if name not in ALGORITHMS:
            known = ", ".join(ALGORITHMS)
            raise ValueError(f'oidc: unsupported signing alg: "{name}": give some of {known}')
    if not names:
        raise ValueError(f"is empty: give some of {', '.join(ALGORITHMS)}")
    return names


class OIDCOptions(TokenOptions):
    """Options of one issuer, or the file with several."""

    optParameters: ClassVar[Sequence[Parameter]] = [
        parameter(
            "authentication-config",
            None,
            "File with an AuthenticationConfiguration (apiserver.config.k8s.io/v1), for several OpenID "
            "issuers and anonymous users; read again when it changes.  It excludes --oidc-*.",
            read_path,
        ),
        parameter(
            "oidc-issuer-url",
            None,
            "URL of the OpenID issuer whose ID tokens authenticate users; https only.",
        ),
        parameter("oidc-client-id", None, "Client ID that ID tokens are for (claim aud)."),
        parameter(
            "oidc-ca-file",
            None,
            "File with the CAs of the issuer's certificate (PEM), read at each connection.  "
            "[default: the system's CAs]",
            unless_empty(read_file),
        ),
        parameter("oidc-username-claim", "sub", "Claim with the user name."),
        parameter(
            "oidc-username-prefix",
            None,
            "Prefix of user names; -: none.  [default: the issuer's URL and #; none if the claim is email]",
        ),
        parameter("oidc-groups-claim", None, "Claim with the groups: a text or a list of texts."),
        parameter("oidc-groups-prefix", None, "Prefix of groups."),
        list_parameter(
            "oidc-signing-algs",
            _ALGORITHM,
            f"Comma-separated signature algorithms of ID tokens, some of {', '.join(ALGORITHMS)}.",
            unless_empty(_read_algorithms, (_ALGORITHM,)),
        ),
    ]
    repeated = TokenOptions.repeated | {"oidc-required-claim"}

    def __init__(self, environ: Mapping[str, str] | None = None) -> None:
        super().__init__(environ)
        self["oidc-required-claims"] = {}

    def opt_oidc_required_claim(self, text: str) -> None:
        """Claim that ID tokens must have with this value, as NAME=VALUE.  Repeatable."""
        self.check(self._require_claim, text)

    def check_rules(self) -> None:
        """See `EnvironmentOptions.check_rules`."""
        super().check_rules()
        self.check(self._check_oidc)

    def read_configuration(self, data: bytes) -> AuthenticationConfiguration:
        """Return the content of ``--authentication-config``.

        :raise ValueError: it is not valid, or does not go together with other options.
        """
        found = read_configuration(data, self.account_issuers)
        if found.has_anonymous and "anonymous-auth" in self.given:
            raise ValueError(
                "anonymous: Forbidden: --anonymous-auth flag cannot be set when anonymous field is "
                "configured in authentication configuration file: omit one of them"
            )
        return found

    @property
    def issuer(self) -> IssuerSettings | None:
        """The issuer of ``--oidc-*``, if these options are set."""
        url, client = self["oidc-issuer-url"], self["oidc-client-id"]
        if not url or not client:
            return None
        claim, prefix = self["oidc-username-claim"], self["oidc-username-prefix"] or ""
        if prefix == NO_PREFIX:
            prefix = ""
        elif not prefix and claim != "email":
            prefix = f"{url}#"
        groups = self["oidc-groups-claim"]
        return IssuerSettings(
            url,
            (client,),
            ClaimSource(claim, prefix),
            ClaimSource(groups, self["oidc-groups-prefix"] or "") if groups else None,
            required=tuple(self["oidc-required-claims"].items()),
            ca_file=str(self["oidc-ca-file"] or ""),
            algorithms=self["oidc-signing-algs"],
        )

    def _require_claim(self, text: str) -> None:
        name, equals, value = text.partition("=")
        if not name.strip() or not equals:
            raise OptionError("oidc-required-claim", text, "is malformed: give NAME=VALUE")
        self["oidc-required-claims"][name.strip()] = value.strip()

    def _check_oidc(self) -> None:
        given = [name for name in _FLAGS if name in self.given]
        path, url, ca_file = (
            self[name] for name in ("authentication-config", "oidc-issuer-url", "oidc-ca-file")
        )
        if path is not None:
            if given:
                raise usage.UsageError(
                    "authentication-config file and oidc-* flags are mutually exclusive: "
                    f"omit --{given[0]}, and put the issuer into the file"
                )
            FollowedFile("authentication-config", path, self.read_configuration)
            return
        if given and not (url and self["oidc-client-id"]):
            raise usage.UsageError(
                "oidc-issuer-url and oidc-client-id must be specified together when any oidc-* flags are "
                "set: give --oidc-issuer-url and --oidc-client-id"
            )
        problems = url_problems(url) if url else []
        if problems:
            raise OptionError("oidc-issuer-url", url, f"is not valid: {', '.join(problems)}")
        if not self["oidc-username-claim"]:
            raise OptionError("oidc-username-claim", "", "is empty: omit it, or name a claim such as email")
        if ca_file is not None:
            try:
                trust_of_file(str(ca_file))
            except ConfigurationError as e:
                raise OptionError("oidc-ca-file", str(ca_file), f"cannot be used: {e}") from None

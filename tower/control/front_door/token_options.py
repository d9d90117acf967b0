"""Options of ``tower-proxy`` for tokens of service accounts, reviewed tokens and anonymous users.

The names, and where it makes sense the defaults and errors, are those of kube-apiserver.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import ClassVar
from urllib.parse import urlsplit

from twisted.python import usage

from tower.control.host_options import HostOptions
from tower.kube.access.reviews import VERSIONS
from tower.options.go_urls import url_problem
from tower.options.parameters import Parameter, list_parameter, parameter
from tower.options.values import parse_duration, read_boolean, read_path, unless_empty
from tower.web.access.authentication.oidc.configuration_checks import url_problems

_BARE = ("--anonymous-auth", "--anonymous_auth")


def _read_version(text: str) -> str:
    if text not in VERSIONS:
        known = ", ".join(f'"{each}"' for each in VERSIONS)
        raise ValueError(
            f'unsupported authentication webhook version "{text}", supported versions are {known}'
        )
    return text


def _read_audiences(text: str) -> tuple[str, ...]:
    found = tuple(each.strip() for each in text.split(","))
    if not all(found):
        raise ValueError("has an empty audience: give audiences separated by commas")
    return found


class TokenOptions(HostOptions):
    """Options of methods that authenticate bearer tokens, and of requests without any."""

    optParameters: ClassVar[Sequence[Parameter]] = [
        parameter(
            "anonymous-auth",
            "false",
            "Accept requests without a credential, as the user system:anonymous of the group "
            "system:unauthenticated.",
            read_boolean,
        ),
        list_parameter(
            "api-audiences",
            None,
            "Comma-separated audiences that tokens of service accounts, and reviewed tokens, must be for.  "
            "[default: the issuers, for service accounts; any, for reviewed tokens]",
            unless_empty(_read_audiences),
        ),
        parameter(
            "service-account-jwks-uri",
            None,
            "URL of the service accounts' keys, in place of the one in the issuers' discovery documents; "
            "https only.",
            unless_empty(str),
        ),
        parameter(
            "authentication-token-webhook-config-file",
            None,
            "File in kubeconfig format that describes a webhook, which reviews bearer tokens.",
            read_path,
        ),
        parameter(
            "authentication-token-webhook-version",
            "v1beta1",
            "API version of the TokenReviews for the webhook: v1 or v1beta1.",
            _read_version,
        ),
        parameter(
            "authentication-token-webhook-cache-ttl",
            None,
            "Time for which answers to TokenReviews are cached; 0: not at all.  [default: 2m for the "
            "webhook, 10s for --authentication-kubeconfig]",
            parse_duration,
        ),
        parameter(
            "authentication-kubeconfig",
            None,
            "Kubeconfig of a cluster, such as the host cluster, whose API server reviews bearer tokens.",
            read_path,
        ),
    ]
    repeated = frozenset({"service-account-issuer", "service-account-key-file"})

    def __init__(self, environ: Mapping[str, str] | None = None) -> None:
        super().__init__(environ)
        self.account_issuers: list[str] = []
        self.account_key_files: list[Path] = []

    def opt_service_account_issuer(self, text: str) -> None:
        """Issuer whose tokens of service accounts are accepted.  Repeatable."""
        self.account_issuers.append(text)

    def opt_service_account_key_file(self, text: str) -> None:
        """File with public keys (PEM) for service accounts' tokens; read again on changes.  Repeatable."""
        self.account_key_files.append(Path(text))

    def read(self, arguments: Sequence[str]) -> None:
        """Also accept ``--anonymous-auth`` without a value."""
        super().read([f"{word}=true" if word in _BARE else word for word in arguments])

    def check_rules(self) -> None:
        """See `EnvironmentOptions.check_rules`."""
        super().check_rules()
        for each in self._account_problems():
            self.check(_fail, each)

    @property
    def account_audiences(self) -> Sequence[str]:
        """The audiences that tokens of service accounts, and those that the webhook reviews, must be for."""
        return self["api-audiences"] or self.account_issuers

    def _account_problems(self) -> Iterator[str]:
        issuers, files, url = self.account_issuers, self.account_key_files, self["service-account-jwks-uri"]
        for number, issuer in enumerate(issuers):
            if not issuer and issuer in issuers[:number]:
                continue
            if issuer in issuers[:number]:
                yield f'service-account-issuer "{issuer}" is already specified: omit one'
            else:
                yield from _issuer_problems(issuer, publishes=not files and url is None)
        if (files or url is not None) and not issuers:
            yield (
                "service-account-issuer is a required flag with --service-account-key-file and "
                "--service-account-jwks-uri: set it to the claim iss of the tokens"
            )
        if files and url is not None:
            yield (
                "--service-account-key-file and --service-account-jwks-uri are both sources of keys: omit one"
            )
        if url is not None:
            problem = url_problem(url)
            if problem:
                yield f"service-account-jwks-uri must be a valid URL: {problem}: correct it"
            elif not _has_port(url):
                yield "service-account-jwks-uri must be a valid URL: its port is out of range: correct it"
            elif urlsplit(url).scheme != "https":
                yield f"service-account-jwks-uri requires https scheme, parsed as: {url}: correct it"


def _has_port(url: str) -> bool:
    try:
        return urlsplit(url).port != 0
    except ValueError:
        return False


def _issuer_problems(issuer: str, *, publishes: bool) -> Iterator[str]:
    if not issuer:
        yield "service-account-issuer should not be an empty string: omit it"
    elif ":" in issuer and (problem := url_problem(issuer)):
        shown = f"contained a ':' but was not a valid URL: {problem}: correct it"
        yield f'service-account-issuer "{issuer}" {shown}'
    elif publishes and (found := url_problems(issuer)):
        yield (
            f'service-account-issuer "{issuer}" cannot publish its keys ({", ".join(found)}): give them with '
            "--service-account-key-file"
        )


def _fail(text: str) -> None:
    raise usage.UsageError(text)

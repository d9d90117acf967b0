"""Options of ``tower-proxy`` for users without a credential of Tower, with kube-apiserver's names."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import ClassVar

from twisted.python import usage

from tower.control.front_door.login_options import LoginOptions
from tower.options.parameters import Parameter, list_parameter, parameter
from tower.options.values import read_path, unless_empty
from tower.web.access.authentication.request_header import FrontProxyFields

#: Options of front proxies.
_REQUEST_HEADER = (
    "requestheader-client-ca-file",
    "requestheader-allowed-names",
    "requestheader-username-headers",
    "requestheader-group-headers",
    "requestheader-uid-headers",
    "requestheader-extra-headers-prefix",
)

_NAME = re.compile(r"[A-Za-z0-9][-_A-Za-z0-9]*")

# Fields with another meaning.
_TAKEN = re.compile(
    r"host|authorization|cookie|connection|upgrade|expect|te|trailer|via|date|forwarded|x-forwarded-.*|"
    r"content-.*|transfer-.*|proxy-.*|sec-.*|accept.*|user-agent|audit-id|impersonate-.*"
)


def _read_names(text: str) -> tuple[str, ...]:
    names = _split(text)
    if not all(names):
        raise ValueError("has an empty name: give names separated by commas")
    return names


def _split(text: str) -> tuple[str, ...]:
    return tuple(each.strip() for each in text.split(","))


def _read_headers(text: str, option: str) -> tuple[bytes, ...]:
    """Return names of header fields in lower case."""
    names = _split(text)
    if not all(names):
        raise ValueError(f'empty value in "{option}": give names separated by commas')
    for each in names:
        if not _NAME.fullmatch(each):
            raise ValueError(f"has {each!r}, which is not the name of a header field: correct it")
        if _TAKEN.fullmatch(each.lower()):
            raise ValueError(f"has {each!r}, a header field with another meaning: choose another one")
    return tuple(each.lower().encode("ascii") for each in names)


def _headers(name: str, doc: str) -> Parameter:
    option = f"requestheader-{name}"
    return list_parameter(option, None, doc, unless_empty(partial(_read_headers, option=option)))


class AuthenticationOptions(LoginOptions):
    """Options of the methods of authentication."""

    optParameters: ClassVar[Sequence[Parameter]] = [
        parameter(
            "token-auth-file",
            None,
            'File with bearer tokens of users, as lines TOKEN,USER,UID,"GROUP,GROUP"; TOKEN may be '
            "sha256:HASH.  Read again when it changes.",
            read_path,
        ),
        parameter(
            "requestheader-client-ca-file",
            None,
            "File with the CAs (PEM) of front proxies, which send the user's name in header fields.  Read "
            "again when it changes.",
            read_path,
        ),
        list_parameter(
            "requestheader-allowed-names",
            None,
            "Comma-separated common names of front proxies' certificates.  [default: all of that CA]",
            unless_empty(_read_names),
        ),
        _headers("username-headers", "Comma-separated header fields with the user, such as X-Remote-User."),
        _headers("group-headers", "Comma-separated header fields with groups, such as X-Remote-Group."),
        _headers("uid-headers", "Comma-separated header fields with the user's UID, such as X-Remote-Uid."),
        _headers(
            "extra-headers-prefix",
            "Comma-separated prefixes of header fields with more about the user, such as X-Remote-Extra-.",
        ),
    ]

    repeated = LoginOptions.repeated | {"client-ca-file"}

    def __init__(self, environ: Mapping[str, str] | None = None) -> None:
        super().__init__(environ)
        self.client_ca_files: list[Path] = []

    def opt_client_ca_file(self, text: str) -> None:
        """CAs (PEM) of users' certificates: common name is user, organizations are groups.  Repeatable."""
        if text:
            self.client_ca_files.append(Path(text))

    def check_rules(self) -> None:
        """See `EnvironmentOptions.check_rules`."""
        super().check_rules()
        self.check(self._check_front_proxies)

    @property
    def front_proxy_fields(self) -> FrontProxyFields | None:
        """The header fields that front proxies set; None: there are no front proxies."""
        if self["requestheader-client-ca-file"] is None:
            return None
        return FrontProxyFields(
            self["requestheader-username-headers"],
            self["requestheader-group-headers"] or (),
            self["requestheader-uid-headers"] or (),
            self["requestheader-extra-headers-prefix"] or (),
        )

    def _check_front_proxies(self) -> None:
        required = ("requestheader-client-ca-file", "requestheader-username-headers")
        given = [each for each in _REQUEST_HEADER if self[each] is not None]
        missing = [each for each in required if self[each] is None]
        if given and missing:
            raise usage.UsageError(f"--{given[0]} requires --{missing[0]}: set it, or omit --{given[0]}")

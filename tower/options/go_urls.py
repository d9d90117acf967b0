"""Why a text is not a URL, in the words of Go's parser, with which kube-apiserver reads the same options."""

from __future__ import annotations

import re

from tower.escaping import quoted

_SCHEME = re.compile(r"([A-Za-z][-+.A-Za-z0-9]*)?:")
_PORT = re.compile(r"(?::[0-9]*)?", re.ASCII)
_USER = re.compile(r"[-A-Za-z0-9._:~!$&'()*+,;=%@]*")
_HOST_CHARACTER = re.compile(r"[-A-Za-z0-9_.~!$&'()*+,;=:\[\]<>\"%]|[^\x00-\x7f]")
_WRONG_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2}).{0,2}", re.DOTALL)
_ASCII_ESCAPE = re.compile(r"%(?!25)[0-7][0-9A-Fa-f]")


def url_problem(text: str) -> str:
    """Return the problem, such as ``parse ":": missing protocol scheme``; empty: it is a URL."""
    problem = _problem(text)
    return f"parse {quoted(text)}: {problem}" if problem else ""


def _problem(text: str) -> str:
    if any(each < " " or each == "\x7f" for each in text):
        return "net/url: invalid control character in URL"
    text, _, fragment = text.partition("#")
    scheme = _SCHEME.match(text)
    rest = text[scheme.end() :] if scheme else text
    rest = rest.partition("?")[0]
    if scheme and not scheme[1]:
        return "missing protocol scheme"
    if not rest.startswith("/"):
        if scheme:
            return _escape_problem(fragment)
        if ":" in rest.partition("/")[0]:
            return "first path segment in URL cannot contain colon"
    problem = ""
    if rest.startswith("//") and (scheme or not rest.startswith("///")):
        authority, _, rest = rest[2:].partition("/")
        problem = _authority_problem(authority)
    return problem or _escape_problem(rest) or _escape_problem(fragment)


def _authority_problem(authority: str) -> str:
    user, _, host = authority.rpartition("@")
    if not _USER.fullmatch(user):
        return "net/url: invalid userinfo"
    if host.startswith("["):
        end = host.rfind("]")
        if end < 0:
            return "missing ']' in host"
        port = host[end + 1 :]
    else:
        port = host[host.rfind(":") :] if ":" in host else ""
    if not _PORT.fullmatch(port):
        return f"invalid port {quoted(port)} after host"
    problem = _escape_problem(host)
    wrong = next((each for each in host if not _HOST_CHARACTER.fullmatch(each)), "")
    if not problem and wrong:
        return f"invalid character {quoted(wrong)} in host name"
    found = _ASCII_ESCAPE.search(host)
    return problem or (f"invalid URL escape {quoted(found[0])}" if found else "")


def _escape_problem(text: str) -> str:
    wrong = _WRONG_ESCAPE.search(text)
    return f"invalid URL escape {quoted(wrong[0])}" if wrong else ""

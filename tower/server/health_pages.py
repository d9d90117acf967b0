"""Health checks and their pages `/healthz`, `/livez` and `/readyz`, with kube-apiserver's texts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from urllib.parse import parse_qs

from attrs import frozen

from tower.escaping import quoted
from tower.web.outcome import NOT_CACHED, Response
from tower.web.ports.plain_port import NOSNIFF, OK, TEXT_TYPE

_PASSED = (TEXT_TYPE, NOSNIFF, NOT_CACHED)


@frozen
class HealthCheck:
    """A named check.

    :ivar check: returns the problem, which anyone may read; empty: there is none.
    """

    name: str
    check: Callable[[], str]


class HealthPages:
    """The pages with all checks, and a page for each check below them.

    They are public, so a page with several checks withholds the reasons of failed ones.

    :param pages: the checks of each page, by its name (``readyz``).
    """

    def __init__(self, pages: Mapping[str, Sequence[HealthCheck]]) -> None:
        self._pages = {f"/{name}".encode(): (name, tuple(checks)) for name, checks in pages.items()}
        self._single = {
            f"/{name}/{each.name}".encode(): each for name, checks in pages.items() for each in checks
        }

    @property
    def paths(self) -> Iterator[str]:
        """All paths."""
        return (path.decode() for path in (*self._pages, *self._single))

    def answer(self, path: bytes, query: bytes) -> Response | None:
        """Return the page at *path*; None: there is none."""
        page = self._pages.get(path)
        if page is not None:
            return _page(*page, parse_qs(query.decode("latin-1"), keep_blank_values=True))
        single = self._single.get(path)
        if single is None:
            return None
        problem = single.check()
        return _failure(f"internal server error: {problem}") if problem else OK


def _page(name: str, checks: Sequence[HealthCheck], query: Mapping[str, Sequence[str]]) -> Response:
    excluded = set(query.get("exclude", ()))
    lines, is_healthy = [], True
    for each in checks:
        if each.name in excluded:
            lines.append(f"[+]{each.name} excluded: ok")
        elif each.check():
            lines.append(f"[-]{each.name} failed: reason withheld")
            is_healthy = False
        else:
            lines.append(f"[+]{each.name} ok")
    unknown = sorted(excluded.difference(each.name for each in checks))
    if unknown:
        names = ",".join(quoted(each) for each in unknown)
        lines.append(f"warn: some health checks cannot be excluded: no matches for {names}")
    if not is_healthy:
        return _failure("\n".join([*lines, f"{name} check failed"]))
    if "verbose" not in query:
        return Response(200, b"ok", _PASSED)
    return Response(200, "".join(f"{line}\n" for line in [*lines, f"{name} check passed"]).encode(), _PASSED)


def _failure(text: str) -> Response:
    return Response(500, f"{text}\n".encode(), _PASSED)

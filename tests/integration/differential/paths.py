"""Paths that do not exist, by users without a credential, with a wrong one, and without the right."""

from __future__ import annotations

from collections.abc import Iterator

from tests.integration.differential.asks import Ask
from tests.integration.differential.rows import Row, Table


def _rows(user: str, token: str, *, name: str) -> Iterator[Row[Ask]]:
    for method, path in (
        ("GET", "/nothing"),
        ("POST", "/nothing"),
        ("GET", "/nothing?watch=1"),
        ("GET", "/livez/nothing"),
        ("GET", "/metrics/nothing"),
        ("GET", "/clusters"),
        ("GET", "/clusters/"),
        ("GET", "/clusters/Alpha/api"),
    ):
        yield Row(f"`{method} {path}` {name}", Ask(method, path, user=user, token=token))


PATHS = Table(
    "Unknown paths",
    [
        *_rows("", "", name="without a credential"),
        *_rows("", "unknown-token", name="with a wrong token"),
        *_rows("jane", "", name="without the right"),
    ],
)

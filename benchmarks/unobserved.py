"""``python -m benchmarks.unobserved``: ``twistd`` with a proxy that does not measure requests."""

from __future__ import annotations

from typing import Any

from twisted.scripts.twistd import run

from tower.web.gateway.gateway import Gateway
from tower.web.ports import assembly


def unobserved(*arguments: Any, **settings: Any) -> Gateway:
    """Return a gateway without its meter."""
    return Gateway(*arguments, **{**settings, "meter": None})


if __name__ == "__main__":
    setattr(assembly, "Gateway", unobserved)  # noqa: B010 (the name is a class)
    run()

"""Coroutines as Deferreds."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from twisted.internet.defer import Deferred

P = ParamSpec("P")
T = TypeVar("T")


def deferred(function: Callable[P, Coroutine[Deferred[Any], Any, T]]) -> Callable[P, Deferred[T]]:
    """Make an ``async`` function return a `Deferred`: it runs at once, up to its first wait."""

    @wraps(function)
    def start(*args: P.args, **kwargs: P.kwargs) -> Deferred[T]:
        return Deferred.fromCoroutine(function(*args, **kwargs))

    return start

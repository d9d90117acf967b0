"""Imports at first use, so that a command that starts often imports only what it needs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

from attrs import frozen


def deferred_names(package: str, modules: Mapping[str, str]) -> Callable[[str], Any]:
    """Return a ``__getattr__`` for a package that imports its names at first use.

    :param modules: for each name, the module of the package that defines it.
    """

    def find(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(f"{package}.{modules[name]}"), name)

    return find


@frozen
class DeferredFunction:
    """A function whose module is imported when the function is called."""

    module: str
    name: str

    def find(self) -> Callable[..., str]:
        """Return the function itself."""
        found: Callable[..., str] = getattr(import_module(self.module), self.name)
        return found

    def __call__(self, *arguments: Any, **options: Any) -> str:
        """Import the module, and call its function."""
        return self.find()(*arguments, **options)


@frozen
class DeferredModule:
    """A stand-in for a module of functions, which is imported when one of them is called."""

    name: str

    def __getattr__(self, name: str) -> DeferredFunction:
        if name.startswith("_"):
            raise AttributeError(name)
        return DeferredFunction(self.name, name)

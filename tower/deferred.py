"""Imports at first use, so that a command that starts often imports only what it needs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

from attrs import frozen


def deferred_names(package: str, modules: Mapping[str, str]) -> Callable[[str], Any]:
    """Return the ``__getattr__`` of a package.

    :param modules: for each name, the module of the package that has it.
    """

    def find(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(f"{package}.{modules[name]}"), name)

    return find


@frozen
class DeferredFunction:
    """A function of a module that is imported by the call."""

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
    """A module whose functions are its attributes, and which is imported when one of them is called."""

    name: str

    def __getattr__(self, name: str) -> DeferredFunction:
        if name.startswith("_"):
            raise AttributeError(name)
        return DeferredFunction(self.name, name)

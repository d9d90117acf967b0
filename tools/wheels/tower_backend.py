"""The build backend: setuptools, plus the packages that compile the data path if ``TOWER_NATIVE=1``.

See PEP 517.  setuptools itself would take these packages from ``setup_requires``, which is deprecated.
"""

from __future__ import annotations

from native_requirements import is_wanted, requirements
from setuptools import build_meta
from setuptools.build_meta import (
    build_editable,
    build_sdist,
    build_wheel,
    get_requires_for_build_sdist,
    prepare_metadata_for_build_editable,
    prepare_metadata_for_build_wheel,
)

__all__ = [
    "build_editable",
    "build_sdist",
    "build_wheel",
    "get_requires_for_build_editable",
    "get_requires_for_build_sdist",
    "get_requires_for_build_wheel",
    "prepare_metadata_for_build_editable",
    "prepare_metadata_for_build_wheel",
]

Settings = dict[str, str | list[str] | None] | None


def get_requires_for_build_wheel(config_settings: Settings = None) -> list[str]:
    """Return the packages that a wheel needs."""
    compilation = requirements() if is_wanted() else []
    return [*build_meta.get_requires_for_build_wheel(config_settings), *compilation]


def get_requires_for_build_editable(config_settings: Settings = None) -> list[str]:
    """Return the packages that an editable installation needs."""
    compilation = requirements() if is_wanted() else []
    return [*build_meta.get_requires_for_build_editable(config_settings), *compilation]

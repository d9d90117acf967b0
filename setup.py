"""Packaging: the list of packages is here because the twistd plugin is not part of a package."""

from __future__ import annotations

from setuptools import find_packages, setup

setup(packages=[*find_packages(include=["tower*"]), "twisted.plugins"])

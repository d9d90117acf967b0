"""Packaging: the package list lives here, because the twistd plugin has no package of its own."""

from __future__ import annotations

from setuptools import find_packages, setup

setup(packages=[*find_packages(include=["tower*"]), "twisted.plugins"])

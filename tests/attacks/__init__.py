"""Regression tests of successful attacks, each by its number in `docs/security-model.md`."""

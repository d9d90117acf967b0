"""Tests: beside this file those without I/O, below `tests.integration` those with real processes."""

from hypothesis import HealthCheck, settings

# No test asserts a time: the machine may be busy with something else.
settings.register_profile("tower", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("tower")

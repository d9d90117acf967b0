"""Tests: without I/O in the rooms, with real processes in `tests.integration`; see README.md."""

from hypothesis import HealthCheck, settings

# No test asserts a time: the machine may be busy with something else.
settings.register_profile("tower", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("tower")

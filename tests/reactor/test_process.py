"""Settings of the process."""

from __future__ import annotations

import ctypes
import gc
import os
import resource
from pathlib import Path
from wsgiref.handlers import BaseHandler

from twisted.trial.unittest import SynchronousTestCase

from tower.reactor.process import (
    RESERVE,
    are_scarce,
    forget_variable,
    is_scarce,
    raise_file_limit,
    settle_memory,
)


class ProcessTests(SynchronousTestCase):
    """Limits and garbage."""

    def test_file_limit(self) -> None:
        """The soft limit becomes the hard one, and a second call changes nothing."""
        before = resource.getrlimit(resource.RLIMIT_NOFILE)
        self.addCleanup(resource.setrlimit, resource.RLIMIT_NOFILE, before)
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(256, before[1]), before[1]))
        for _ in range(2):
            self.assertEqual(raise_file_limit(), before[1])
            self.assertEqual(resource.getrlimit(resource.RLIMIT_NOFILE), (before[1], before[1]))

    def test_scarce(self) -> None:
        """The last descriptors of the limit are scarce, and so is everything beyond."""
        before = resource.getrlimit(resource.RLIMIT_NOFILE)
        self.addCleanup(resource.setrlimit, resource.RLIMIT_NOFILE, before)
        with Path("/dev/null").open() as file:
            number = file.fileno()
            free = os.dup(number)
            os.close(free)
            for spare, scarce in ((RESERVE + 1, False), (RESERVE, True), (0, True)):
                resource.setrlimit(resource.RLIMIT_NOFILE, (free + spare, before[1]))
                self.assertEqual((is_scarce(free), are_scarce(number)), (scarce, scarce), spare)
        self.assertRaises(OSError, are_scarce, -1)

    def test_forgotten(self) -> None:
        """A variable is removed from the environment, and its value overwritten; others stay."""
        for name, value in (("TOWER_TEST_TOKEN", "t0p-s3cret"), ("TOWER_TEST_TOKENS", "other")):
            os.environ[name] = value
            self.addCleanup(os.environ.pop, name, None)
        libc = ctypes.CDLL(None)
        libc.getenv.restype = ctypes.c_void_p
        address = libc.getenv(b"TOWER_TEST_TOKEN")
        self.assertEqual(ctypes.string_at(address), b"t0p-s3cret")
        kept = ctypes.create_string_buffer(b"TOWER_TEST_TOKEN=t0p-s3cret")
        self.addCleanup(libc.unsetenv, b"TOWER_TEST_TOKEN")
        libc.putenv(kept)  # the environment has this very buffer now, as it has those of the start
        forget_variable("TOWER_TEST_TOKEN")
        self.assertEqual(kept.raw.rstrip(b"\0"), b"TOWER_TEST_TOKEN=")
        self.assertNotIn("TOWER_TEST_TOKEN", os.environ)
        self.assertEqual(os.environ["TOWER_TEST_TOKENS"], "other")
        forget_variable("TOWER_TEST_TOKEN")

    def test_copied_variable(self) -> None:
        """The copy of the environment that the standard library's WSGI handlers keep is cleared, too."""
        self.patch(
            BaseHandler, "os_environ", {"TOWER_TEST_TOKEN": "t0p-s3cret", "TOWER_TEST_TOKENS": "other"}
        )
        forget_variable("TOWER_TEST_TOKEN")
        self.assertEqual(BaseHandler.os_environ, {"TOWER_TEST_TOKENS": "other"})

    def test_settled(self) -> None:
        """Existing objects are frozen, and collections become rarer."""
        thresholds = gc.get_threshold()
        self.addCleanup(gc.set_threshold, *thresholds)
        self.addCleanup(gc.unfreeze)
        gc.set_threshold(700, 10, 10)
        settle_memory()
        self.assertGreater(gc.get_freeze_count(), 1000)
        self.assertGreater(gc.get_threshold()[0], 700)

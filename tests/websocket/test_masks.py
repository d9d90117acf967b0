"""Tests of `tower.websocket.masks`, against Autobahn's own."""

from __future__ import annotations

import random
from collections.abc import Callable
from struct import Struct

from autobahn.websocket.xormasker import create_xor_masker  # type: ignore[attr-defined]
from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from tower.websocket import masks
from tower.websocket.masks import Maskers, mask, masked, rotated

KEYS = st.binary(min_size=4, max_size=4)
BULK = random.Random(7).randbytes(8192)


def theirs(data: bytes, key: bytes) -> bytes:
    """Return what Autobahn makes of *data*."""
    return create_xor_masker(key, len(data)).process(data) if data else b""


class MaskTests(SynchronousTestCase):
    """Masks, with and without compiled code."""

    def each_way(self, check: Callable[[], None]) -> None:
        """Call *check* with compiled code and without."""
        check()
        with_code = vars(masks)["lib"]
        self.patch(masks, "lib", None)
        check()
        self.patch(masks, "lib", with_code)

    @given(st.binary(max_size=3000), KEYS)
    def test_as_autobahn(self, data: bytes, key: bytes) -> None:
        """Small and large data are masked as Autobahn masks them, in place or not."""

        def check() -> None:
            covered = bytearray(data)
            mask(memoryview(covered), key)
            self.assertEqual(covered, theirs(data, key))
            self.assertEqual(masked(data, key), theirs(data, key))

        self.each_way(check)

    @given(KEYS, st.integers(0, 1000), st.binary(max_size=200))
    def test_rotated(self, key: bytes, begin: int, data: bytes) -> None:
        """A part that begins in the middle is masked as in the whole."""
        whole = masked(bytes(begin) + data, key)
        self.assertEqual(masked(data, rotated(key, begin)), whole[begin:])

    def test_each_with_its_key(self) -> None:
        """Each piece is masked with its key, repeatedly, also with another layout of the compiled code."""

        def check() -> None:
            maskers = Maskers(8, 1024)
            for count in (8, 1, 2, 7, 8):
                keys = random.Random(count).randbytes(4 * count)
                maskers.pieces[:] = BULK
                maskers.mask(memoryview(keys).cast("I"))
                for at in range(8):
                    piece = BULK[1024 * at :][:1024]
                    expected = theirs(piece, keys[4 * at :][:4]) if at < count else piece
                    self.assertEqual(maskers.pieces[1024 * at :][:1024], expected)

        self.each_way(check)
        self.patch(Maskers, "_LAYOUT", Struct("@4siN"))
        check()

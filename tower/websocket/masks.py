"""WebSocket masks (RFC 6455 section 5.3): XOR with a repeated key of four bytes.

By Autobahn's compiled code if it is installed, else as one operation on two big integers, which takes several
times as long.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import Any, ClassVar, Final

from tower.net.pipes import Buffer

try:  # Autobahn's SIMD code, a module that Autobahn may remove
    from _nvx_xormasker import ffi, lib
except ImportError:
    ffi = lib = None

#: Up to this size, big integers are faster than calls of C, B.
_SMALL: Final = 48

_BYTES: Final = None if ffi is None else ffi.typeof("uint8_t[]")


def mask(data: memoryview, key: bytes) -> None:
    """XOR *data* in place with the repeated 4 bytes of *key*."""
    size = len(data)
    if size <= _SMALL or lib is None:
        data[:] = _xor(data, _pattern(key, size))
        return
    masker = lib.nvx_xormask_new(key)
    lib.nvx_xormask_process(masker, ffi.from_buffer(_BYTES, data), size)
    lib.nvx_xormask_free(masker)


def masked(data: bytes, key: bytes) -> Buffer:
    """Return *data* masked."""
    if len(data) <= _SMALL or lib is None:
        return _xor(data, _pattern(key, len(data)))
    covered = bytearray(data)
    mask(memoryview(covered), key)
    return covered


def rotated(key: bytes, count: int) -> bytes:
    """Return the key for the bytes after the first *count* that *key* covers."""
    shift = count & 3
    return key[shift:] + key[:shift]


def _pattern(key: bytes, size: int) -> bytes:
    return (key * ((size + 3) >> 2))[:size]


def _xor(data: Buffer, pattern: bytes) -> bytes:
    return (int.from_bytes(data, "little") ^ int.from_bytes(pattern, "little")).to_bytes(len(data), "little")


class Maskers:
    """Masks many pieces of one size, each with its key, in one buffer.

    The maskers are made once, in one block of memory in which their keys are set together: making and freeing
    one takes twice as long as its work.

    :param count: maximum number of pieces.
    :param size: of each, B; a multiple of 4.
    :ivar pieces: buffer for the pieces, one after the other.
    """

    #: Autobahn's ``xor_masker_t``: mask, position, implementation.
    _LAYOUT: ClassVar[Struct] = Struct("@4sNi0N")

    def __init__(self, count: int, size: int) -> None:
        self.pieces = memoryview(bytearray(count * size))
        self._size = size
        self._keys: memoryview | None = None
        self._work: Sequence[tuple[Any, Any]] = ()
        if lib is None or not (template := self._template()):
            return
        block = memoryview(bytearray(template * count))
        self._keys = block.cast("I")[:: len(template) // 4]
        self._kept = masker, piece = ffi.from_buffer(_BYTES, block), ffi.from_buffer(_BYTES, self.pieces)
        self._work = [(masker + len(template) * each, piece + size * each) for each in range(count)]

    def _template(self) -> bytes:
        """Return the bytes of a masker if it has the known layout, else nothing."""
        masker = lib.nvx_xormask_new(b"mask")
        found = self._LAYOUT.unpack(ffi.buffer(masker, self._LAYOUT.size))
        known = b"mask", 0, lib.nvx_xormask_get_impl(masker)
        lib.nvx_xormask_free(masker)
        return self._LAYOUT.pack(*known) if found == known else b""

    def mask(self, keys: memoryview) -> None:
        """XOR each piece with its key; *keys*, of format ``I``, has one for each piece from the first on."""
        count, size = len(keys), self._size
        if self._keys is None:
            run = self.pieces[: count * size]
            whole = keys.tobytes()
            run[:] = _xor(run, b"".join([whole[at : at + 4] * (size // 4) for at in range(0, 4 * count, 4)]))
            return
        self._keys[:count] = keys
        process = lib.nvx_xormask_process
        for masker, piece in self._work[:count]:
            process(masker, piece, size)

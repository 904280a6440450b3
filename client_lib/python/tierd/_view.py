"""Memory of the cache as a Python buffer.

Only C types can lend memory in Python 3.11 and before, and the only ones that the standard library lets us make are ctypes arrays. So the owner of a view is
an instance of a ctypes array type placed over the cache's memory; it gives the lease back when its last reference goes, and every memoryview, slice, NumPy
array or tensor made from it holds such a reference. Array types are made once per power of two (making one costs 20 us) and cut to size by a slice.

Thread rule: a lease may end on any thread, also in the garbage collector and at interpreter exit: nothing here takes a lock or needs a module that may be
gone by then. In a forked child libtier knows that the lease belongs to the parent as well.
"""

from __future__ import annotations

import ctypes
from typing import Any, Callable

from . import _library

_BITS = 48  # of a size


def _owner_type(bits: int, release: Callable[[Any], None]) -> Any:
    class Lease(ctypes.c_ubyte * (1 << bits)):  # type: ignore[misc]
        """Memory of the cache under a lease; ends with its last reference."""

        __slots__ = ("view", "client")

        def __del__(self, release: Callable[[Any], None] = release) -> None:
            release(self.view)

    return Lease


class Viewer:
    """Makes memoryviews out of struct tier_view."""

    def __init__(self, binding: _library.Binding) -> None:
        release = binding.release
        self._types = [_owner_type(bits, release) for bits in range(_BITS)]

    def lend(self, view: _library.View, client: object) -> memoryview:
        """A read-only memoryview of exactly the view's bytes. The view is the memoryview's from now on; `client` lives as long as it."""
        size = view.size
        lease = self._types[size.bit_length()].from_address(view.data)
        lease.view = view
        lease.client = client
        return memoryview(lease).cast("B")[:size].toreadonly()

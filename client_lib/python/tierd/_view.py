"""Memory of the cache as a Python buffer.

Only C types can lend memory in Python 3.11 and before, and the only ones that the standard library lets us make are ctypes arrays. So what lends the memory of a
view is an instance of a ctypes array type placed over it, which holds the struct tier_view; every memoryview, slice, NumPy array or tensor made from it holds such
a reference, and with the last one the struct gives the lease back. Array types are made once per power of two (making one costs 20 us) and cut to size by a slice.

The struct owns its lease from before there is one, and its finalizer is C code from end to end: a signal handler that raises (^C), which Python runs between any
two bytecodes, neither loses a lease that was just got nor one that is being given back.

The garbage collector does not see the struct. It runs the finalizers of a whole cycle before it takes any of it apart (PEP 442), so that another finalizer in the
cycle, or who gets the view from that, would find another file's bytes in it. What the struct refers to never leads back to it: with its last reference it goes.

Thread rule: a lease may end on any thread, also in the garbage collector and at interpreter exit: nothing here takes a lock or needs a module that may be
gone by then. In a forked child libtier knows that the lease belongs to the parent as well.
"""

from __future__ import annotations

import ctypes
import functools
from typing import Any, TypeVar

from . import _library

_BITS = 48  # of a size

_untrack = ctypes.pythonapi["PyObject_GC_UnTrack"]
_untrack.argtypes, _untrack.restype = (ctypes.py_object,), None

_Owning = TypeVar("_Owning")


def uncollected(owning: _Owning) -> _Owning:
    """`owning`, which from now on ends with its last reference and never before it, in the garbage collector. For what refers to nothing that leads back to it."""
    _untrack(owning)
    return owning


class OwnedView(_library.View):
    """struct tier_view that gives back what is in it when it goes; empty, it does nothing then."""

    # Looked up in the type and found in the instance: a functools.partial, so that no Python code runs.
    __slots__ = ("client", "__del__")


def own(view: OwnedView, end: Any, client: object) -> OwnedView:
    """`view`, which is to be zeroed still. `end`: Library.end; `client` lives as long as the view."""
    view.client = client  # type: ignore[attr-defined]
    view.__del__ = functools.partial(end, ctypes.addressof(view))  # type: ignore[attr-defined]
    return uncollected(view)


def _lender_type(bits: int) -> Any:
    class Lender(ctypes.c_ubyte * (1 << bits)):  # type: ignore[misc]
        """Memory of the cache; holds the view that it is the memory of."""

        __slots__ = ("view",)

    return Lender


_LENDERS = tuple(_lender_type(bits) for bits in range(_BITS))


def lend(view: OwnedView) -> memoryview:
    """A read-only memoryview of exactly the view's bytes, which holds the view."""
    size = view.size
    lender = _LENDERS[size.bit_length()].from_address(view.data)
    lender.view = view
    return memoryview(lender).cast("B")[:size].toreadonly()

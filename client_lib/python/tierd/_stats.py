"""tierd.stats: what this process read, and from where."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any

from . import _library

_PAGES = ("4k", "hugetlb", "shmem_huge", "tmpfs_huge")


@dataclass(frozen=True)
class Stats:
    """Counts of one client in this process since it was made (a forked child starts at 0). Exact.

    `reads` and `bytes` by origin: "ram" (shared memory), "ssd", "source" (both read by tierd), "bypass" (read by this process from the source itself).
    `fallback`: reads of the source by this process, by reason; only reasons that happened.
    """

    reads: dict[str, int]
    bytes: dict[str, int]
    fallback: dict[str, int]
    leases: int  # views and files that hold cache memory now
    frozen_leases: int  # of these: held over a fork
    leased_bytes: int  # of large views
    mapped_bytes: int
    sessions: int  # opened since the start
    connected: bool
    hung: bool  # the daemon is there and does not answer; the source is read meanwhile
    pages: str  # kind of the cache's memory pages: "4k", "hugetlb", "shmem_huge", "tmpfs_huge"


@dataclass(frozen=True)
class JobStats:
    """Counts of all clients of a daemon since it started, also of those that have ended.

    `reads` and `bytes` by origin, as in Stats. `fallback`: by reason; it also counts opens under the preload library that became the source's own file.
    """

    reads: dict[str, int]
    bytes: dict[str, int]
    fallback: dict[str, int]
    processes: int  # that are connected now


def job_stats_of(status: dict[str, Any]) -> JobStats:
    """From the answer of GET /v1/status."""
    reads = status["reads"]
    return JobStats(
        reads={origin: counts["count"] for origin, counts in reads.items()},
        bytes={origin: counts["bytes"] for origin, counts in reads.items()},
        fallback=dict(status["fallback"]),
        processes=status["sessions"],
    )


def stats_of(binding: Any, pointer: int) -> Stats:
    raw = _library.Statistics(size=ctypes.sizeof(_library.Statistics))
    binding.stats(pointer, raw)
    return Stats(
        reads=dict(zip(_library.ORIGINS, raw.reads)),
        bytes=dict(zip(_library.ORIGINS, raw.bytes)),
        fallback={binding.fallback_name(i).decode(): n for i, n in enumerate(raw.fallback) if n},
        leases=raw.leases,
        frozen_leases=raw.frozen_leases,
        leased_bytes=raw.leased_bytes,
        mapped_bytes=raw.mapped_bytes,
        sessions=raw.sessions,
        connected=bool(raw.connected),
        hung=bool(raw.hung),
        pages=_PAGES[raw.page_kind] if raw.page_kind < len(_PAGES) else "unknown",
    )

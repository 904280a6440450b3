"""The list of a plan: a file in the daemon's runtime directory, from where the daemon reads and removes it."""

from __future__ import annotations

import contextlib
import os
import secrets
from typing import Any


class PlanList:
    """Of the files' names, to be written to `file`. A context manager: after it, nothing is there.

    Nor is there of a process that is killed while it writes: only `publish` gives it a name. The directory lies in memory, where it would stay.
    """

    def __init__(self, directory: str) -> None:
        self._name = f"plan-{secrets.token_hex(8)}.list"
        self._path = os.path.join(directory, self._name)
        self._named = False
        try:
            opened = os.open(directory, os.O_TMPFILE | os.O_WRONLY | os.O_CLOEXEC, 0o600)
        except OSError:  # a file system that has none without a name
            opened = os.open(self._path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600)
            self._named = True
        self.file = open(opened, "wb")

    def publish(self) -> str:
        """All is written: its name in the directory. OSError."""
        self.file.flush()
        if not self._named:
            opened = self.file.fileno()
            # With a directory, though the name is absolute, Python calls linkat, which alone can follow this link.
            os.link(f"/proc/self/fd/{opened}", self._path, src_dir_fd=opened, follow_symlinks=True)
        return self._name

    def __enter__(self) -> "PlanList":
        return self

    def __exit__(self, *_: Any) -> None:
        try:
            self.file.close()
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._path)

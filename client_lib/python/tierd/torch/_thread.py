"""Threads that end before the interpreter does.

One that is inside PyTorch by then would end the process with SIGABRT: when it wants the interpreter's lock back, CPython before 3.14 unwinds it (pthread_exit), through C++ that lets nothing
through. And what it has begun, such as a list for the daemon, nobody would clean up.
"""

from __future__ import annotations

import atexit
import threading
from typing import Callable


class EndingThread(threading.Thread):
    """Runs `body` beside the program, which is free to end at any time. `stop`: any thread, also where `body` is over; has `body` return soon."""

    def __init__(self, name: str, body: Callable[[], None], stop: Callable[[], None]) -> None:
        super().__init__(target=body, name=name, daemon=True)
        self.stop = stop


def _end_all() -> None:
    # In a forked child there are none of them, and what they share with the parent (a connection) is left alone.
    ending = [thread for thread in threading.enumerate() if isinstance(thread, EndingThread) and thread.is_alive()]
    for thread in ending:
        thread.stop()
    for thread in ending:
        thread.join()  # as long as it takes to draw one order, or to look up one path


atexit.register(_end_all)

"""What the tests of announce share: a daemon with some files, and a client that notes what it is asked for."""

import contextlib
import gc
import threading
import types
import warnings
from unittest import mock

import rig

FILES = 96


def threads():
    return [thread for thread in threading.enumerate() if thread.name in ("tierd-announce", "tierd-plan")]


class Recorder:
    """Stands in for a client: what it is asked to prefetch, in order."""

    def __init__(self, takes=1000):
        self.asked = []
        self.takes = takes  # of one call

    def prefetch(self, paths):
        taken = paths[:self.takes]
        self.asked += taken
        return len(taken)

    def stats(self):
        return types.SimpleNamespace(connected=True)


class AnnounceTest(rig.DaemonTest):
    default = True

    @classmethod
    def fill(cls):
        cls.paths = [cls.rig.write(f"files/{i:03}", 2000 + i) for i in range(FILES)]  # the size says which file it is

    def tearDown(self):
        gc.collect()
        self.eventually(lambda: not threads())

    @contextlib.contextmanager
    def quiet(self, warned):
        """No thread dies, and so many times it is said that an announcement has ended."""
        with mock.patch.object(threading, "excepthook") as hook, warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            yield
            self.assertEqual(hook.call_args_list, [])
            self.assertEqual([str(each.message)[:32] for each in said], ["tierd.torch.announce has ended, "] * warned)

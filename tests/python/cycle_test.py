"""What is in a garbage cycle is there for the finalizers of that cycle, and for whom they hand it to: views and clients."""

import gc
import unittest

import rig
import tierd

FILES, SIZE = 300, 100_000


class Keeper:
    """A cycle whose finalizer uses what it holds."""

    def __init__(self, held, use):
        self.held, self.use, self.itself = held, use, self

    def __del__(self):
        self.use(self.held)


class CycleTest(rig.DaemonTest):
    @classmethod
    def fill(cls):
        cls.paths = [cls.rig.write(f"{i}", SIZE) for i in range(FILES)]

    def setUp(self):
        gc.collect()
        gc.disable()
        self.addCleanup(gc.enable)

    def after_collection(self, make):
        """What make() gave, and the finalizer of a cycle kept."""
        kept = []
        Keeper(make(), kept.append)
        self.assertGreater(gc.collect(), 0)
        return kept.pop()

    def test_views(self):
        for socket in self.rig.socket, "/nowhere/tierd.sock":
            with self.subTest(socket), tierd.Client(socket) as client:
                kept = [self.after_collection(lambda: client.view(self.paths[0])), *self.after_collection(lambda: client.get_batch(self.paths[1:3]))]
                client.evict(self.paths[:3])
                for path in self.paths[3:]:  # into the memory of those, if nobody had it
                    client.read(path)
                for i in range(3):
                    self.assertEqual(bytes(kept[i]), rig.content(f"{i}", SIZE))

    def test_views_give_their_memory_back(self):
        with tierd.Client(self.rig.socket) as client:
            view = client.view(self.paths[0])
            before = client.stats().leases
            Keeper(view, len)
            del view
            gc.collect()
            self.assertEqual(client.stats().leases, before - 1)

    def test_clients(self):
        def connected():
            client = tierd.Client(self.rig.socket)
            client.read(self.paths[0])
            return client

        kept = self.after_collection(connected)
        self.assertEqual((kept.read(self.paths[0]), kept.stats().sessions), (rig.content("0", SIZE), 1))


if __name__ == "__main__":
    unittest.main()

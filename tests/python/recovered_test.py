"""Nobody tells the order that a real DataLoader reads in: the daemon finds it, and the epochs that follow are exactly as its recipe says."""

import itertools
import json
import time
import unittest

import rig
import tierd
import torch
from tierd.plan import Plan
from torch.utils.data import DataLoader, Dataset, DistributedSampler, RandomSampler

FILES = 1003
FEW = 168  # UNet3D's
MOST_EPOCHS = 15
LATER = 5

LOADERS = {
    "distributed": ("torch.distributed", lambda data: dict(sampler=DistributedSampler(data, 2, 1, seed=7))),
    "shuffle, generator": ("torch.random", lambda data: dict(shuffle=True, generator=torch.Generator().manual_seed(42))),
    "sampler with a generator": ("torch.random", lambda data: dict(sampler=RandomSampler(data, generator=torch.Generator().manual_seed(42)))),
    "shuffle, manual_seed": ("torch.random", lambda data: dict(shuffle=True)),
}


class Reading(Dataset):
    """A sample is its own index."""

    def __init__(self, paths, client):
        self.paths, self.client = paths, client

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        self.client.read(self.paths[index])
        return index


class RecoveredTest(unittest.TestCase):
    def test_orders_are_found(self):
        for name, (kind, how) in LOADERS.items():
            for workers in (0, 2):
                with self.subTest(name, workers=workers):
                    self.find(FILES, kind, how, workers)

    def test_orders_of_small_sets_are_found(self):
        for name in ("distributed", "shuffle, manual_seed"):
            for workers in (0, 2):
                with self.subTest(name, workers=workers):
                    self.find(FEW, *LOADERS[name], workers)

    def find(self, files, kind, how, workers):
        own = rig.Rig()
        try:
            # As ImageFolder numbers them. Not all of them find room in RAM: where they do, no order is looked for.
            paths = sorted(own.write(f"files/c{i % 5}/{i:04}.jpg", (20 << 20) // files) for i in range(files))
            own.start("--set", "source.mode=observed", ram="16 MiB")
            with tierd.Client(own.socket) as client:
                torch.manual_seed(42)
                data = Reading(paths, client)
                self.compare(own, kind, DataLoader(data, 7, num_workers=workers, **how(data)))
        finally:
            own.close()

    def compare(self, own, kind, loader):
        sampler = loader.batch_sampler.sampler
        epochs = itertools.count()

        def read():
            epoch = next(epochs)
            if hasattr(sampler, "set_epoch"):
                sampler.set_epoch(epoch)
            return [index for batch in loader for index in batch.tolist()]

        def plans():
            return own.control("GET", "/v1/plans")["plans"]

        def eventually(condition, seconds):
            until = time.monotonic() + seconds
            while not condition() and time.monotonic() < until:
                time.sleep(0.05)
            return condition()

        # It looks once a second, on a tenth of a core, and on what others leave where all of them are busy.
        for number in range(MOST_EPOCHS):
            read()
            if eventually(plans, 2 if number < MOST_EPOCHS / 2 else 20):
                break
        self.assertTrue(plans(), own.status())
        plan = plans()[0]
        self.assertEqual((len(plans()), plan["from"], plan["plan"]["kind"]), (1, "observed", kind))
        self.assertTrue(eventually(lambda: plans()[0]["state"] != "mapping" and plans()[0]["epoch_samples"] > 0, 30))
        # The plan stands at the epoch that was read last; from there on each sample of each epoch is as its recipe says.
        recipe = Plan.from_json(json.dumps(plan["plan"]))
        first = plans()[0]["epoch"] + 1
        foretold = itertools.islice(recipe.orders(), first - recipe.epoch, None)
        for number in range(first, first + LATER):
            self.assertEqual(read(), next(foretold), number)
            # An epoch that was read faster than it was computed is looked at when it is there.
            self.assertTrue(eventually(lambda: plans()[0]["epoch"] == number and plans()[0]["position"] == plans()[0]["epoch_samples"], 30), plans())
            plan = plans()[0]
            self.assertEqual(plan["state"], "followed")
        # But for some that say that the epoch that was found is over.
        self.assertGreater(min(plan["recall_ratio"], plan["precision_ratio"]), min(0.98, 1 - 30 / (LATER * plan["epoch_samples"])), plan)


if __name__ == "__main__":
    unittest.main()

"""Orders computed by policies/orders against the libraries that draw them, over random parameters: PyTorch's samplers and DataLoader, NumPy, Python's random,
ImageFolder, and tierd.plan. Argument: orders_dump. TIERD_SEED repeats a run."""

import hashlib
import json
import os
import random
import subprocess
import sys
import tempfile
import unittest

import numpy
import torch
from torch.utils.data import BatchSampler, DataLoader, RandomSampler
from torch.utils.data.distributed import DistributedSampler

from tierd.plan import KINDS, RULES, Plan, Start

SEED = int(os.environ.get("TIERD_SEED", random.SystemRandom().randrange(2**32)))
DUMP = sys.argv.pop(1)


class Dump:
    def __init__(self):
        self.process = subprocess.Popen([DUMP], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, request):
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def close(self):
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait()


class Live(unittest.TestCase):
    def setUp(self):
        self.dump = Dump()
        self.addCleanup(self.dump.close)
        self.random = random.Random(f"{SEED} {self._testMethodName}")

    def orders(self, epochs, **plan):
        return self.dump.ask({"plan": {"tierd_plan": 1, **plan}, "epochs": epochs})

    def test_randperm_of_imagenet(self):
        with tempfile.NamedTemporaryFile() as raw:
            self.dump.ask({"plan": {"tierd_plan": 1, "kind": "torch.distributed", "samples": 1281167, "seed": 0}, "epochs": 1, "raw": raw.name})
            self.assertEqual(hashlib.sha256(raw.read()).hexdigest(), "bbf70b62862c7ae6fac74033870a4e187be3f61ac977c4b9f4a8ecbf1deef134")

    def test_distributed_sampler(self):
        for _ in range(150):
            n, world = self.random.randint(1, 3000), self.random.randint(1, 17)
            seed = self.random.choice([0, 1, self.random.randrange(2**32), self.random.randrange(2**40)])
            rank, drop, shuffle = self.random.randrange(world), self.random.random() < .5, self.random.random() < .8
            first = self.random.randrange(20)
            sampler = DistributedSampler(range(n), num_replicas=world, rank=rank, shuffle=shuffle, seed=seed, drop_last=drop)
            expected = []
            for epoch in range(first, first + 3):
                sampler.set_epoch(epoch)
                expected.append([int(i) for i in sampler])
            self.assertEqual(self.orders(3, kind="torch.distributed", samples=n, world=world, rank=rank, seed=seed, drop_last=drop, shuffle=shuffle, epoch=first), expected)
            sampler.set_epoch(first)
            same = [list(sampler) for _ in range(2)]
            self.assertEqual(self.orders(2, kind="torch.distributed", samples=n, world=world, rank=rank, seed=seed, drop_last=drop, shuffle=shuffle, epoch=first,
                                         set_epoch=False), same)

    def test_random_sampler_with_and_without_generator(self):
        for _ in range(60):
            n, seed = self.random.randint(1, 2000), self.random.randrange(2**32)
            draws = self.random.choice([n, n, self.random.randint(1, 3 * n)])
            replacement = self.random.random() < .3
            generator = torch.Generator()
            generator.manual_seed(seed)
            sampler = RandomSampler(range(n), replacement=replacement, num_samples=draws, generator=generator)
            common = dict(kind="torch.random", samples=n, draws=draws, replacement=replacement, start={"seed": seed})
            self.assertEqual(self.orders(3, **common), [list(sampler) for _ in range(3)])
            torch.manual_seed(seed)
            sampler = RandomSampler(range(n), replacement=replacement, num_samples=draws)
            self.assertEqual(self.orders(3, shared=True, **common), [list(sampler) for _ in range(3)])

    def test_data_loader(self):
        for _ in range(12):
            n, seed, batch, drop = self.random.randint(1, 300), self.random.randrange(2**32), self.random.randint(1, 40), self.random.random() < .5
            for own in (False, True):
                generator = torch.Generator().manual_seed(seed) if own else None
                torch.manual_seed(seed)
                loader = DataLoader(range(n), batch_size=batch, shuffle=True, drop_last=drop, generator=generator)
                expected = [[int(i) for b in loader for i in b] for _ in range(3)]
                self.assertEqual(self.orders(3, kind="torch.random", samples=n, draws=n, shared=not own, start={"seed": seed}, skip_first=1, skip_later=1,
                                             batch_size=batch, batch_drop_last=drop), expected)
        sampler = BatchSampler(DistributedSampler(range(101), num_replicas=4, rank=2), 7, drop_last=True)
        loader = DataLoader(range(101), batch_sampler=sampler)
        self.assertEqual(self.orders(1, kind="torch.distributed", samples=101, world=4, rank=2, batch_size=7, batch_drop_last=True), [[int(i) for b in loader for i in b]])

    def test_generator_state(self):
        for _ in range(20):
            generator = torch.Generator().manual_seed(self.random.randrange(2**32))
            torch.empty(self.random.randrange(1500)).random_(generator=generator)
            state = generator.get_state().numpy()
            words = state[24:24 + 624 * 8].view("<u8").astype("<u4")
            left = int(state[8:12].view("<i4")[0])
            index = 624 if left == 1 else 624 - left + 1
            plan = Plan("torch.random", 77, draws=77, start=Start(words=words.tobytes(), index=index), epochs=3)
            expected = [torch.randperm(77, generator=generator).tolist() for _ in range(6)][::2]
            self.assertEqual(self.dump.ask({"plan": json.loads(plan.to_json()), "epochs": 3}), expected)

    def test_plans_of_the_python_package(self):
        for _ in range(200):
            n, world = self.random.randint(1, 500), self.random.randint(1, 9)
            kind = self.random.choice(KINDS)
            common = dict(samples=n, epoch=self.random.randrange(5), epochs=self.random.randint(0, 3), position=self.random.randint(0, n), batch_size=self.random.randrange(9),
                          batch_drop_last=self.random.random() < .5)
            if kind == "torch.random":
                common.update(draws=self.random.randint(1, 2 * n), replacement=self.random.random() < .5, shared=self.random.random() < .5,
                              start=Start(seed=self.random.randrange(2**63)), skip_first=self.random.randrange(3), skip_later=self.random.randrange(3))
            if kind == "torch.distributed":
                common.update(seed=self.random.randrange(-2**40, 2**62), world=world, rank=self.random.randrange(world), drop_last=self.random.random() < .5,
                              set_epoch=self.random.random() < .5, shuffle=self.random.random() < .5)
            if kind in ("block", "strided"):
                common.update(world=world, rank=self.random.randrange(world))
            if kind.startswith("numpy.") or kind in ("python.random", "dali.file"):
                rules = ("reseed", "in_place", "same") if kind == "dali.file" else RULES
                common.update(seed=self.random.randrange(2**32 - 9 if kind == "numpy.legacy" else 2**62), world=world, rank=self.random.randrange(world), rule=self.random.choice(rules))
            if kind == "dali.file":
                common.update(stick=self.random.random() < .5, shuffle=self.random.random() < .8, uniform=self.random.choice(["multiply", "divide"]))
            plan = Plan(kind, **common)
            self.assertEqual(self.dump.ask({"plan": json.loads(plan.to_json()), "epochs": 3}), list(plan.orders()), plan)

    def test_numpy(self):
        for _ in range(60):
            n, seed = self.random.randint(1, 4000), self.random.choice([0, 1, self.random.randrange(2**32 - 9)])
            expected = [numpy.random.RandomState(seed + epoch).permutation(n).tolist() for epoch in range(2)]
            self.assertEqual(self.orders(2, kind="numpy.legacy", samples=n, seed=seed), expected)
            state = numpy.random.RandomState(seed)
            self.assertEqual(self.orders(3, kind="numpy.legacy", samples=n, seed=seed, rule="continue"), [state.permutation(n).tolist() for _ in range(3)])
            state, order, expected = numpy.random.RandomState(seed), numpy.arange(n), []
            for _ in range(3):
                state.shuffle(order)
                expected.append(order.tolist())
            self.assertEqual(self.orders(3, kind="numpy.legacy", samples=n, seed=seed, rule="in_place"), expected)
            self.assertEqual(self.orders(1, kind="numpy.legacy", samples=n, seed=seed, rule="in_place", epoch=2), expected[2:])
            wide = self.random.randrange(2**63)
            generator = numpy.random.default_rng(wide)
            self.assertEqual(self.orders(3, kind="numpy.pcg64", samples=n, seed=wide, rule="continue"), [generator.permutation(n).tolist() for _ in range(3)])
            self.assertEqual(self.orders(2, kind="numpy.pcg64", samples=n, seed=wide, rule="same"), [numpy.random.default_rng(wide).permutation(n).tolist()] * 2)
            world = self.random.randint(2, 9)
            rank = self.random.randrange(world)
            self.assertEqual(self.orders(1, kind="numpy.pcg64", samples=n, seed=wide, world=world, rank=rank, rule="same"),
                             [numpy.random.default_rng(wide).permutation(n).tolist()[rank::world]])

    def test_python_random(self):
        for _ in range(60):
            n, seed = self.random.randint(1, 4000), self.random.choice([0, -7, self.random.randrange(2**32), self.random.randrange(-2**62, 2**62)])
            generator, order, expected = random.Random(seed), list(range(n)), []
            for _ in range(3):
                generator.shuffle(order)
                expected.append(list(order))
            self.assertEqual(self.orders(3, kind="python.random", samples=n, seed=seed, rule="in_place"), expected)
            fresh = list(range(n))
            random.Random(seed + 1).shuffle(fresh)
            self.assertEqual(self.orders(1, kind="python.random", samples=n, seed=seed, epoch=1), [fresh])

    def test_block_and_strided(self):
        self.assertEqual(self.orders(1, kind="strided", samples=10, world=4, rank=1), [[1, 5, 9]])
        self.assertEqual([self.orders(1, kind="block", samples=10, world=3, rank=r)[0] for r in range(3)], [[0, 1, 2], [3, 4, 5], [6, 7, 8, 9]])

    def test_image_folder(self):
        extensions = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")
        with tempfile.TemporaryDirectory() as root:
            words = [b"a", b"b", b"a-b", b"a.b", "ä".encode(), b"\xff", "\U0001F600".encode(), "\uffee".encode(), b"Z", b"a b", b"\xc3"]
            paths = set()
            while len(paths) < 300:
                parts = [self.random.choice(words) for _ in range(self.random.randint(1, 4))]
                name = parts[-1] + str(self.random.randrange(30)).encode() + self.random.choice([b".jpg", b".JPEG", b".txt", b".Webp", b"jpg", b".png"])
                paths.add(b"/".join([*(b"d" + p for p in parts[:-1]), name]))
            for path in paths:
                whole = os.path.join(root.encode(), path)
                os.makedirs(os.path.dirname(whole), exist_ok=True)
                open(whole, "wb").close()
            # The rule of torchvision.datasets.folder (find_classes, make_dataset), in its words.
            expected = []
            for label in sorted(entry.name for entry in os.scandir(root) if entry.is_dir()):
                for directory, _, names in sorted(os.walk(os.path.join(root, label), followlinks=True)):
                    expected += [os.path.relpath(os.path.join(directory, name), root) for name in sorted(names) if name.lower().endswith(extensions)]
            shuffled = sorted(paths)
            self.random.shuffle(shuffled)
            order = self.dump.ask({"list": [path.decode("latin-1") for path in shuffled]})
            self.assertEqual([os.fsdecode(shuffled[i]) for i in order], expected)


if __name__ == "__main__":
    print(f"seed {SEED}, PyTorch {torch.__version__}, NumPy {numpy.__version__}", file=sys.stderr)
    unittest.main()

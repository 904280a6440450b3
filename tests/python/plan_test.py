"""Plans against the samplers of the PyTorch that is installed, over random parameters, and their documents."""

import base64
import json
import random
import unittest

import numpy
import torch
from tierd._mt19937 import Mt19937
from tierd.plan import Plan, PlanError, Start, digest_of
from tierd.torch import TorchDraws, plan_of
from torch.utils.data import BatchSampler, DataLoader, DistributedSampler, RandomSampler, SequentialSampler

ENGINES = (Mt19937, TorchDraws)
DALI_IN_PLACE = [[4, 0, 3, 1, 7, 5, 2, 6, 10, 8, 9], [7, 2, 5, 9, 0, 4, 1, 6, 10, 8, 3], [1, 0, 10, 8, 9, 2, 6, 4, 7, 3, 5]]


def epochs_of(loader, count, before=lambda epoch: None):
    found = []
    for epoch in range(count):
        before(epoch)
        found.append([int(index) for batch in loader for index in (batch.tolist() if hasattr(batch, "tolist") else [batch])])
    return found


class GeneratorTest(unittest.TestCase):
    def test_vectors(self):
        for engine in ENGINES:
            for seed, order in ((0, [4, 1, 7, 5, 3, 9, 0, 8, 6, 2]), (1, [5, 6, 1, 2, 0, 8, 9, 3, 7, 4]), (42, [2, 6, 1, 8, 4, 5, 0, 9, 3, 7])):
                self.assertEqual(engine.from_seed(seed).randperm(10), order)

    def test_both_agree_with_torch_draw_by_draw(self):
        dice = random.Random(1)
        for _ in range(30):
            seed = dice.choice([dice.randrange(100), dice.randrange(2**63)])
            theirs = torch.Generator().manual_seed(seed)
            ours = [engine.from_seed(seed) for engine in ENGINES]
            for _ in range(30):
                kind, n = dice.randrange(3), dice.randrange(1, 700)
                if kind == 0:
                    wanted = torch.empty((), dtype=torch.int64).random_(generator=theirs).item()
                    got = [each.random63() for each in ours]
                elif kind == 1:
                    wanted = torch.randperm(n, generator=theirs).tolist()
                    got = [each.randperm(n) for each in ours]
                else:
                    wanted = torch.randint(high=n, size=(32,), generator=theirs).tolist()
                    got = [each.integers(n, 32) for each in ours]
                self.assertEqual(got, [wanted] * 2)


class OrderTest(unittest.TestCase):
    """Each makes the plan first, then lets PyTorch draw, and compares; and asserts that making it changed no generator."""

    def check(self, loader, dataset_size, epochs=3, before=lambda epoch: None):
        state = torch.get_rng_state()
        plan = plan_of(loader, epochs=epochs)
        self.assertTrue(torch.equal(state, torch.get_rng_state()))
        self.assertEqual(Plan.from_json(plan.to_json()), plan)
        wanted = epochs_of(loader, epochs, before)
        for engine in ENGINES:
            self.assertEqual(list(plan.orders(engine)), wanted, plan.to_json()[:200])

    def test_distributed(self):
        dice = random.Random(2)
        for _ in range(150):
            world = dice.randrange(1, 9)
            n = dice.randrange(world, 80)
            sampler = DistributedSampler(range(n), world, dice.randrange(world), shuffle=dice.random() < 0.8, seed=dice.randrange(2**31), drop_last=dice.random() < 0.5)
            loader = DataLoader(range(n), sampler=sampler, batch_size=dice.randrange(1, 9), drop_last=dice.random() < 0.5)
            self.check(loader, n, before=sampler.set_epoch)

    def test_distributed_with_more_ranks_than_samples(self):
        for n, world in ((1, 7), (2, 7), (3, 8)):
            for rank in range(world):
                self.check(DistributedSampler(range(n), world, rank), n, epochs=1)

    def test_distributed_without_set_epoch(self):
        sampler = DistributedSampler(range(20), 2, 1, seed=5)
        wanted = epochs_of(sampler, 3)
        plan = plan_of(sampler, epochs=3)
        self.assertEqual(list(Plan(**{**plan.__dict__, "set_epoch": False}).orders()), wanted)

    def test_random_with_and_without_generator(self):
        dice = random.Random(3)
        for turn in range(120):
            n = dice.randrange(1, 60)
            torch.manual_seed(turn)
            torch.rand(dice.randrange(700))  # somewhere in the middle of a state
            own = dice.random() < 0.5
            generator = torch.Generator().manual_seed(turn) if own else None
            if own:
                torch.randperm(dice.randrange(1, 700), generator=generator)
            replacement = dice.random() < 0.3
            sampler = RandomSampler(range(n), replacement=replacement, num_samples=dice.choice([None, dice.randrange(1, 150)]), generator=generator)
            kind = dice.randrange(4)
            if kind == 0:
                self.check(sampler, n)
            elif kind == 1:
                self.check_batches(BatchSampler(sampler, dice.randrange(1, 9), dice.random() < 0.5))
            else:
                self.check(DataLoader(range(n), sampler=sampler, batch_size=dice.randrange(1, 9), drop_last=dice.random() < 0.5,
                                      generator=generator if kind == 3 else None), n)

    def check_batches(self, batches):
        plan = plan_of(batches, epochs=3)
        self.assertEqual(list(plan.orders()), [[index for batch in batches for index in batch] for _ in range(3)])

    def test_shuffling_loader(self):
        for generator in (None, torch.Generator().manual_seed(9)):
            torch.manual_seed(0)
            self.check(DataLoader(range(10), shuffle=True, generator=generator), 10)
        self.check(DataLoader(range(10)), 10)
        self.check(DataLoader(range(10), batch_size=None, sampler=SequentialSampler(range(10))), 10)

    def test_persistent_workers_draw_no_seed_after_the_first_epoch(self):
        for generator in (None, torch.Generator().manual_seed(9)):
            loader = DataLoader(range(10), shuffle=True, generator=generator, num_workers=1, persistent_workers=True)
            self.check(loader, 10)
            self.check(loader, 10)  # its iterator is there already

    def test_resumed_in_the_middle(self):
        plan = Plan("torch.distributed", 100, seed=3, world=4, rank=1, batch_size=4, batch_drop_last=True)
        whole = [order for order, _ in zip(plan.orders(), range(3))]
        later = plan.at(epoch=1, position=8, epochs=2)
        self.assertEqual(list(later.orders()), [whole[1][8:], whole[2]])

    def test_unknown_samplers_are_refused(self):
        class Own(RandomSampler):
            def __iter__(self):
                return iter([0])

        for sampler in (Own(range(3)), [1, 2], torch.utils.data.SubsetRandomSampler([1])):
            self.assertRaisesRegex(TypeError, "cannot tell the order", plan_of, sampler)


class OtherLibrariesTest(unittest.TestCase):
    """The recipes that are not PyTorch's, against the libraries that draw them."""

    def check(self, expected, epochs, kind, samples, **fields):
        plan = Plan(kind, samples, epochs=epochs, **fields)
        self.assertEqual(Plan.from_json(plan.to_json()), plan)
        self.assertEqual(list(plan.orders()), expected, plan)

    def test_numpy(self):
        dice = random.Random(5)
        for _ in range(40):
            n, world = dice.randrange(1, 900), dice.randrange(1, 6)
            rank = dice.randrange(world)
            for kind, seed, made in (("numpy.legacy", dice.choice([0, dice.randrange(2**32 - 9)]), numpy.random.RandomState),
                                     ("numpy.pcg64", dice.choice([0, dice.randrange(2**32), dice.randrange(2**63 - 9)]), numpy.random.default_rng)):
                share = dict(seed=seed, world=world, rank=rank)
                self.check([made(seed + epoch).permutation(n).tolist()[rank::world] for epoch in (2, 3)], 2, kind, n, epoch=2, **share)
                self.check([made(seed).permutation(n).tolist()[rank::world]] * 2, 2, kind, n, rule="same", epoch=7, **share)
                generator = made(seed)
                later = [generator.permutation(n).tolist()[rank::world] for _ in range(4)]
                self.check(later[1:], 3, kind, n, rule="continue", epoch=1, **share)
                generator, order, expected = made(seed), numpy.arange(n), []
                for _ in range(3):
                    generator.shuffle(order)
                    expected.append(order.tolist()[rank::world])
                self.check(expected[2:], 1, kind, n, rule="in_place", epoch=2, **share)

    def test_python(self):
        dice = random.Random(6)
        for _ in range(40):
            n, seed = dice.randrange(1, 900), dice.choice([0, -7, dice.randrange(2**32), dice.randrange(-2**62, 2**62)])
            generator, order, expected = random.Random(seed), list(range(n)), []
            for _ in range(3):
                generator.shuffle(order)
                expected.append(list(order))
            self.check(expected[1:], 2, "python.random", n, seed=seed, rule="in_place", epoch=1)
            order = list(range(n))
            random.Random(seed + 4).shuffle(order)
            self.check([order[1::3]], 1, "python.random", n, seed=seed, epoch=4, world=3, rank=1)

    def test_shards(self):
        self.check([[3, 4, 5, 6]] * 2, 2, "block", 11, world=3, rank=1)
        self.check([[1, 4, 7, 10]] * 2, 2, "strided", 11, world=3, rank=1)
        self.check([[5, 6], [3, 4, 5, 6]], 2, "block", 11, world=3, rank=1, position=2)

    def test_dali(self):
        """Golden: std::shuffle(std::mt19937(524287 + epoch)) over 0..10, libstdc++ 12; tests/policies/orders has the same against the library itself."""
        self.check(DALI_IN_PLACE, 3, "dali.file", 11, seed=524287, rule="in_place")
        self.check([order[3:7] for order in DALI_IN_PLACE[2:]], 1, "dali.file", 11, seed=524287, world=3, rank=1, rule="in_place", epoch=2)
        self.check([DALI_IN_PLACE[0]], 1, "dali.file", 11, seed=524287)
        self.check([DALI_IN_PLACE[0]] * 2, 2, "dali.file", 11, seed=524288, rule="same", epoch=5)
        moving = [list(range(6, 9)), list(range(0, 3)), list(range(3, 6))]
        self.check(moving, 3, "dali.file", 9, shuffle=False, stick=False, world=3, rank=2)

    def test_what_is_refused(self):
        for fields in (dict(kind="numpy.legacy", seed=2**32), dict(kind="numpy.pcg64", seed=-1), dict(kind="dali.file", rule="continue"), dict(kind="python.random", rule="other"),
                       dict(kind="dali.file", uniform="other"), dict(kind="numpy.pcg64", rule="continue", epoch=2**32), dict(kind="block", rank=1), dict(kind="strided", samples=2**30 + 1)):
            self.assertRaises(PlanError, Plan, **{"samples": 10, **fields})


class DocumentTest(unittest.TestCase):
    def test_worked_example(self):
        text = '{"tierd_plan":1,"kind":"torch.distributed","samples":10,"epochs":2,"seed":0,"world":3,"rank":0}'
        plan = Plan.from_json(text)
        self.assertEqual(plan.to_json(), text)
        self.assertEqual(list(plan.orders()), [[4, 5, 0, 2], [5, 2, 9, 4]])

    def test_start_in_words(self):
        plan = Plan("torch.random", 5, epochs=1, draws=5, start=Start(words=bytes(2496), index=3))
        self.assertEqual(Plan.from_json(plan.to_json()), plan)

    def test_bad_documents(self):
        good = json.loads(Plan("torch.random", 5, draws=5, start=Start(seed=1)).to_json())
        Plan.from_json(json.dumps(good))
        changes = ({"tierd_plan": 2}, {"kind": "other"}, {"samples": 0}, {"samples": "5"}, {"samples": True}, {"epochs": -1}, {"position": -1}, {"world": 0}, {"rank": 1},
                   {"draws": 0}, {"skip_first": -1}, {"skip_later": 65}, {"shuffle": 1}, {"list_sha256": "x"}, {"unknown": 1}, {"start": None}, {"start": {}}, {"start": []},
                   {"start": {"seed": "x"}}, {"start": {"words": "!!", "index": 1}}, {"start": {"words": base64.b64encode(bytes(2496)).decode(), "index": 0}},
                   {"start": {"words": base64.b64encode(bytes(2495)).decode(), "index": 1}},
                   {"tierd_plan": True}, {"tierd_plan": 1.0}, {"kind": 5}, {"kind": None}, {"kind": []}, {"kind": {}}, {"rule": []}, {"uniform": {}}, {"samples": float("inf")},
                   {"start": 5}, {"start": "seed"}, {"start": {"seed": float("inf")}}, {"start": {"seed": 1.5}}, {"start": {"seed": True}}, {"start": {"seed": None}},
                   {"start": {"seed": "1"}}, {"start": {"seed": 2**64}}, {"start": {"words": base64.b64encode(bytes(2496)).decode(), "index": 1.0}},
                   {"start": {"words": base64.b64encode(bytes(2496)).decode(), "index": "1"}}, {"start": {"words": 5, "index": 1}})
        for change in changes:
            with self.subTest(str(change)[:80]), self.assertRaises(PlanError):
                Plan.from_json(json.dumps({**good, **change}))
        for text in ("", "[]", "null", "{}", "{", '{"tierd_plan":1}', b"\xff", "[" * 100_000, '{"tierd_plan":1,"kind":"torch.random","samples":5,"draws":5,"start":{"seed":1e999}}'):
            with self.subTest(text[:80]), self.assertRaises(PlanError):
                Plan.from_json(text)
        for start in (5, {"seed": 1}, Start(words="x" * 2496, index=1), Start(words=bytes(2496), index=True), Start(seed=1, index=0)):
            with self.subTest(str(start)[:40]), self.assertRaises(PlanError):
                Plan("torch.random", 5, draws=5, start=start)

    def test_digest(self):
        self.assertEqual(digest_of(["a", b"b"]), digest_of(["a", "b"]))
        self.assertNotEqual(digest_of(["ab"]), digest_of(["a", "b"]))


if __name__ == "__main__":
    unittest.main()

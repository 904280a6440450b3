// Makes the golden directory of the present format. Usage: ssd_golden_dir DIRECTORY. Small regions, packed, direct and chunked records, a
// replaced version, an invalidated dataset; left as by a clean stop. golden_test.cc knows what must be found in it.
#include <cstdio>

#include "tests/ssd/golden.h"
#include "tests/ssd/tier_fixture.h"

int main(int argc, char** argv) {
  using namespace tierd::ssd;
  testing::InitGoogleTest(&argc, argv);
  if (argc != 2) {
    std::fprintf(stderr, "usage: %s DIRECTORY\n", argv[0]);
    return 64;
  }
  Life life(GoldenOptions(argv[1]));
  if (!life.Start().status.ok()) return 1;
  life.dataset = kGoldenVoidSet;
  for (int i = 0; i < 5; ++i) {
    if (!life.Put("void" + std::to_string(i), 1, 900).ok()) return 1;
  }
  bool durable = false;
  life.tier->InvalidateDataset(kGoldenVoidSet, [&](tierd::Status s) { durable = s.ok(); });
  if (!life.RunUntil([&] { return durable; })) return 1;
  life.dataset = kGoldenSet;
  for (const GoldenFile& file : kGoldenFiles) {
    for (std::uint64_t version = 1; version <= file.version; ++version) {
      if (!life.Put(file.path, version, file.bytes).ok()) return 1;
    }
  }
  if (!life.tier->Stop(10'000).ok()) return 1;
  return testing::UnitTest::GetInstance()->ad_hoc_test_result().Failed() ? 1 : 0;
}

// One read of the index that gives another byte, whichever: also one of the second pass, when a part of the records has been handed over already.
#include <gtest/gtest.h>
#include <leveldb/env.h>

#include <atomic>
#include <cstring>

#include "tests/ssd/tier_fixture.h"

namespace tierd::ssd {
namespace {

class DamagingEnv final : public leveldb::EnvWrapper {
 public:
  DamagingEnv() : leveldb::EnvWrapper(leveldb::Env::Default()) {}
  leveldb::Status NewRandomAccessFile(const std::string& name, leveldb::RandomAccessFile** out) override {
    const leveldb::Status status = target()->NewRandomAccessFile(name, out);
    if (status.ok()) *out = new File(*this, *out);
    return status;
  }
  std::atomic<int> reads = 0;
  std::atomic<int> damaged = 0;  // the how manieth

 private:
  class File final : public leveldb::RandomAccessFile {
   public:
    File(DamagingEnv& env, leveldb::RandomAccessFile* file) : env_(env), file_(file) {}
    leveldb::Status Read(std::uint64_t offset, std::size_t n, leveldb::Slice* result, char* scratch) const override {
      const leveldb::Status status = file_->Read(offset, n, result, scratch);
      if (++env_.reads != env_.damaged || !status.ok() || result->empty()) return status;
      std::memmove(scratch, result->data(), result->size());
      scratch[result->size() / 2] ^= 1;
      *result = leveldb::Slice(scratch, result->size());
      return status;
    }

   private:
    DamagingEnv& env_;
    const std::unique_ptr<leveldb::RandomAccessFile> file_;
  };
};

TEST(SsdIndexDamage, InWhicheverReadOfItNothingComesTwice) {
  int reads = 1;
  bool partial = false;
  for (int damaged = 0; damaged <= reads; ++damaged) {
    SCOPED_TRACE(damaged);
    TempDirectory dir;
    DamagingEnv env;
    SsdOptions options = SmallOptions(dir.path() + "/c");
    options.index_env = &env;
    std::size_t all = 0;
    {
      Life life(options);
      ASSERT_TRUE(life.Start().status.ok());
      for (int i = 0; life.Put("some/directory/with/a/name/f" + std::to_string(i), 1, 5'000).ok();) ++i;
      life.Settle();
      all = life.items.size();
      life.Stop();
    }
    env.reads = 0;
    env.damaged = damaged;
    Life life(options);
    const RecoveryReport report = life.Start();
    if (damaged == 0) reads = env.reads;
    if (report.status.ok()) {
      EXPECT_EQ(life.items.size(), all);
    } else {
      partial |= !life.items.empty();
    }
    EXPECT_EQ(life.tier->status().live_records, life.items.size());
    life.ExpectAllReadable();
    // All regions can be used.
    while (!life.items.empty()) {
      life.tier->Forget(life.items.begin()->second.location);
      life.items.erase(life.items.begin());
    }
    EXPECT_TRUE(life.RunUntil([&] { return life.Put("again", 1, 5'000).ok(); }));
    for (int i = 0; i < 100; ++i) (void)life.Put("again" + std::to_string(i), 1, 5'000);
    life.Settle();
    EXPECT_EQ(life.Get("again"), ReadOutcome::kOk);
  }
  EXPECT_GT(reads, 10);
  EXPECT_TRUE(partial);
}

}  // namespace
}  // namespace tierd::ssd

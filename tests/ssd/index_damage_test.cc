// One read of the index that gives another byte or fails, whichever: also one of the second pass, when a part of the records has been handed over already. And
// an index that cannot be written.
#include <gtest/gtest.h>
#include <leveldb/env.h>

#include <atomic>
#include <cstring>
#include <filesystem>

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
  std::atomic<bool> fails = false;  // instead of giving another byte
  // Bytes that can still be written: a disk that is nearly full.
  std::atomic<std::int64_t> room = std::int64_t{1} << 60;

  leveldb::Status NewWritableFile(const std::string& name, leveldb::WritableFile** out) override {
    const leveldb::Status status = target()->NewWritableFile(name, out);
    if (status.ok()) *out = new Full(*this, *out);
    return status;
  }

 private:
  class Full final : public leveldb::WritableFile {
   public:
    Full(DamagingEnv& env, leveldb::WritableFile* file) : env_(env), file_(file) {}
    leveldb::Status Append(const leveldb::Slice& data) override {
      env_.room -= static_cast<std::int64_t>(data.size());
      return env_.room < 0 ? leveldb::Status::IOError("no space") : file_->Append(data);
    }
    leveldb::Status Close() override { return file_->Close(); }
    leveldb::Status Flush() override { return file_->Flush(); }
    leveldb::Status Sync() override { return env_.room < 0 ? leveldb::Status::IOError("no space") : file_->Sync(); }

   private:
    DamagingEnv& env_;
    const std::unique_ptr<leveldb::WritableFile> file_;
  };
  class File final : public leveldb::RandomAccessFile {
   public:
    File(DamagingEnv& env, leveldb::RandomAccessFile* file) : env_(env), file_(file) {}
    leveldb::Status Read(std::uint64_t offset, std::size_t n, leveldb::Slice* result, char* scratch) const override {
      const leveldb::Status status = file_->Read(offset, n, result, scratch);
      if (++env_.reads != env_.damaged || !status.ok() || result->empty()) return status;
      if (env_.fails) return leveldb::Status::IOError("a bad sector");
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

std::size_t Fill(const SsdOptions& options) {
  Life life(options);
  EXPECT_TRUE(life.Start().status.ok());
  for (int i = 0; life.Put("some/directory/with/a/name/f" + std::to_string(i), 1, 5'000).ok();) ++i;
  life.Settle();
  life.Stop();
  return life.items.size();
}

// All that it has is right, and all its regions can be used.
void ExpectUsable(Life& life) {
  EXPECT_EQ(life.tier->status().live_records, life.items.size());
  life.ExpectAllReadable();
  while (!life.items.empty()) {
    life.tier->Forget(life.items.begin()->second.location);
    life.items.erase(life.items.begin());
  }
  EXPECT_TRUE(life.RunUntil([&] { return life.Put("again", 1, 5'000).ok(); }));
  for (int i = 0; i < 100; ++i) (void)life.Put("again" + std::to_string(i), 1, 5'000);
  life.Settle();
  EXPECT_EQ(life.Get("again"), ReadOutcome::kOk);
}

class SsdIndexDamage : public testing::TestWithParam<bool> {};  // does the read fail?
INSTANTIATE_TEST_SUITE_P(Reads, SsdIndexDamage, testing::Bool());

TEST_P(SsdIndexDamage, InWhicheverReadOfItNothingComesTwice) {
  int reads = 1;
  bool partial = false;
  for (int damaged = 0; damaged <= reads; ++damaged) {
    SCOPED_TRACE(damaged);
    TempDirectory dir;
    DamagingEnv env;
    SsdOptions options = SmallOptions(dir.path() + "/c");
    options.index_env = &env;
    const std::size_t all = Fill(options);
    env.reads = 0;
    env.damaged = damaged;
    env.fails = GetParam();
    Life life(options);
    const RecoveryReport report = life.Start();
    if (damaged == 0) reads = env.reads;
    if (report.status.ok()) {
      EXPECT_EQ(life.items.size(), all);
    } else {
      partial |= !life.items.empty();
    }
    ExpectUsable(life);
  }
  EXPECT_GT(reads, 10);
  EXPECT_TRUE(partial);
}

// Wherever the room ends: the regions hold what they held, and are asked.
TEST(SsdIndexDamage, WithoutRoomForItNothingIsForgotten) {
  bool without = false, with = false;
  for (const std::int64_t room : {0, 100, 1'000, 10'000, 20'000, 40'000, 80'000, 160'000, 320'000, 640'000}) {
    for (const bool missing : {false, true}) {
      SCOPED_TRACE(std::to_string(room) + (missing ? " without one" : " with one"));
      TempDirectory dir;
      DamagingEnv env;
      SsdOptions options = SmallOptions(dir.path() + "/c");
      options.index_env = &env;
      const std::size_t all = Fill(options);
      if (missing) std::filesystem::remove_all(options.directory + "/index");
      env.room = room;
      Life life(options);
      (life.Start().status.ok() ? with : without) = true;
      EXPECT_EQ(life.items.size(), all);
      ExpectUsable(life);
      life.Stop();
      env.room = std::int64_t{1} << 60;
      Life next(options);
      EXPECT_TRUE(next.Start().status.ok());
      next.ExpectAllReadable();
      EXPECT_FALSE(next.items.empty());
    }
  }
  EXPECT_TRUE(with);
  EXPECT_TRUE(without);
}

}  // namespace
}  // namespace tierd::ssd

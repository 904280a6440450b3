#include "tierd/ram/shared_index.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <map>
#include <random>
#include <unordered_map>
#include <utility>
#include <vector>

namespace tierd::ram {
namespace {

abi::FileKey KeyOf(std::uint64_t n) { return {abi::Mix64(n * 0x9e3779b97f4a7c15ull + 1), abi::Mix64(n + 0x1234567)}; }

SlotValues ValuesOf(std::uint64_t n) {
  SlotValues values;
  values.size = n * 7 % abi::kMaxFileSize;
  values.attr_class = static_cast<std::uint32_t>(n % 4096);
  values.kind = abi::SlotKind::kFile;
  values.deadline = static_cast<std::uint32_t>(n + 5);
  values.location = n << 16 | 3;
  values.mtime_ns = static_cast<std::int64_t>(n) * 1000;
  values.ctime_ns = -static_cast<std::int64_t>(n);
  values.atime_ns = static_cast<std::int64_t>(n) * 3 + 1;
  values.ino = n + 99;
  return values;
}

std::unique_ptr<SharedIndex> Make(std::uint64_t slots, std::uint64_t max_slots = std::uint64_t{64} << 20, const PrivateTmpfs* tmpfs = nullptr) {
  IndexOptions options;
  options.tmpfs = tmpfs;
  options.initial_slots = slots;
  options.max_slots = max_slots;
  for (std::size_t i = 0; i < sizeof options.hash_secret; ++i) options.hash_secret[i] = static_cast<std::uint8_t>(i);
  options.instance[0] = 0xaa;
  Result<std::unique_ptr<SharedIndex>> index = SharedIndex::Create(options);
  EXPECT_TRUE(index.ok()) << index.status().message();
  return std::move(index).value();
}

void Adopt(SharedIndex& index) {
  Result<std::unique_ptr<IndexTable>> table = SharedIndex::CreateTable(index.NextTable());
  ASSERT_TRUE(table.ok()) << table.status().message();
  const Status adopted = index.AdoptTable(std::move(table).value());
  ASSERT_TRUE(adopted.ok()) << adopted.message();
}

void GrowNow(SharedIndex& index) {
  Adopt(index);
  while (!index.GrowStep(1 << 20)) {
    ASSERT_TRUE(index.growing());
  }
}

TEST(SharedIndex, KeepsWhatWasInserted) {
  auto index = Make(256);
  const auto ordinal = index->Insert(KeyOf(1), ValuesOf(1), 42);
  ASSERT_TRUE(ordinal);
  const auto found = index->Find(KeyOf(1));
  ASSERT_TRUE(found);
  EXPECT_EQ(found->ordinal, *ordinal);
  EXPECT_EQ(found->owner, 42u);
  EXPECT_EQ(index->Read(*ordinal), ValuesOf(1));
  EXPECT_EQ(index->KeyAt(*ordinal), KeyOf(1));
  EXPECT_FALSE(index->Find(KeyOf(2)));
  index->Update(*ordinal, ValuesOf(3));
  EXPECT_EQ(index->Read(*ordinal), ValuesOf(3));
  index->SetOwner(*ordinal, 43);
  EXPECT_EQ(index->Owner(*ordinal), 43u);
  EXPECT_EQ(*index->Insert(KeyOf(1), ValuesOf(4), 44), *ordinal) << "the same key is rewritten in place";
  EXPECT_EQ(index->Owner(*ordinal), 44u);
  EXPECT_EQ(index->live(), 1u);
  index->Erase(*ordinal);
  EXPECT_FALSE(index->Find(KeyOf(1)));
  EXPECT_EQ(index->live(), 0u);
}

// What a reader re-reads last: everything but the location moves it.
TEST(SharedIndex, SequenceMovesWithEverythingButTheLocation) {
  auto index = Make(256);
  const std::uint32_t ordinal = *index->Insert(KeyOf(1), ValuesOf(1), 0);
  struct stat st {};
  ASSERT_EQ(::fstat(index->client_fd(), &st), 0);
  void* view = ::mmap(nullptr, static_cast<std::size_t>(st.st_size), PROT_READ, MAP_SHARED, index->client_fd(), 0);
  ASSERT_NE(view, MAP_FAILED);
  const auto* header = static_cast<const abi::IndexHeader*>(view);
  EXPECT_EQ(header->magic, abi::kIndexMagic);
  EXPECT_EQ(header->generation, 1u);
  EXPECT_EQ(header->slot_count, 256u);
  EXPECT_EQ(header->total_bytes, static_cast<std::uint64_t>(st.st_size));
  EXPECT_EQ(header->instance[0], 0xaa);
  EXPECT_EQ(header->hash_secret[191], 191);
  EXPECT_LE(header->probe_limit, abi::kProbeSlack);
  EXPECT_LE(header->slots_offset + (header->slot_count + abi::kProbeSlack) * sizeof(abi::Slot), header->total_bytes);
  const abi::Slot& slot = reinterpret_cast<const abi::Slot*>(static_cast<const std::byte*>(view) + header->slots_offset)[ordinal];
  std::uint32_t seq = slot.seq.load();
  EXPECT_EQ(seq % 2, 0u);
  index->ClearLocation(ordinal);
  EXPECT_EQ(slot.location.load(), 0u);
  index->SetLocation(ordinal, 77);
  EXPECT_EQ(slot.location.load(), 77u);
  EXPECT_EQ(slot.seq.load(), seq);
  index->SetDeadline(ordinal, 1234);
  EXPECT_EQ(slot.deadline.load(), 1234u);
  EXPECT_EQ(slot.seq.load(), seq + 2);
  index->Update(ordinal, ValuesOf(9));
  EXPECT_EQ(slot.seq.load(), seq + 4);
  index->Heartbeat(std::int64_t{123} << abi::kTickShift);
  EXPECT_EQ(header->heartbeat_ticks.load(), 123u);
  index->Erase(ordinal);
  EXPECT_GT(slot.seq.load(), seq + 4);
  EXPECT_EQ(slot.location.load(), 0u);
  EXPECT_EQ(header->retired.load(), 0u);
  index->Retire();
  EXPECT_EQ(header->retired.load(), 1u);
  ::munmap(view, static_cast<std::size_t>(st.st_size));
}

// Whoever keeps bytes of a file looks at its slot again when this word has moved (LAYOUT 1).
TEST(SharedIndex, ChangesOfFilesMoveTheWordThatReadersCompare) {
  auto index = Make(256);
  std::uint64_t last = index->header()->changes.load();
  const auto moved = [&] {
    const std::uint64_t before = std::exchange(last, index->header()->changes.load());
    EXPECT_EQ(last % 2, 0u);
    EXPECT_NE(last, 0u);
    return last - before;
  };
  SlotValues unread = ValuesOf(1);
  unread.mtime_ns = unread.ctime_ns = 0;
  const std::uint32_t ordinal = *index->Insert(KeyOf(1), unread, 0);
  EXPECT_EQ(moved(), 0u);
  index->Update(ordinal, ValuesOf(1));
  EXPECT_EQ(moved(), 0u) << "a walk had seen its name alone";
  SlotValues later = ValuesOf(1);
  later.deadline += 100;
  later.location = 0;
  later.atime_ns += 1;
  index->Update(ordinal, later);
  index->SetLocation(ordinal, 77);
  index->SetDeadline(ordinal, 1000);
  EXPECT_EQ(moved(), 0u) << "the same version";
  index->Update(ordinal, ValuesOf(2));
  EXPECT_EQ(moved(), 2u);
  index->SetDeadline(ordinal, abi::kDeadlineExpired);
  EXPECT_EQ(moved(), 2u);
  index->SetDeadline(ordinal, abi::kDeadlineExpired);
  EXPECT_EQ(moved(), 2u) << "told once more";
  index->NoteChange();
  EXPECT_EQ(moved(), 2u);
  index->Erase(ordinal);
  EXPECT_EQ(moved(), 2u);
  SlotValues directory = ValuesOf(3);
  directory.kind = abi::SlotKind::kDirectory;
  const std::uint32_t other = *index->Insert(KeyOf(2), directory, 0);
  directory.mtime_ns += 1;
  index->Update(other, directory);
  index->Erase(other);
  EXPECT_EQ(moved(), 0u) << "nobody keeps bytes of it";
  index->Retire();
  EXPECT_EQ(moved(), 2u);
}

TEST(SharedIndex, ChangesGoOnInTheNextTable) {
  auto index = Make(256);
  const abi::IndexHeader* const old = index->header();
  const std::uint64_t before = old->changes.load();
  GrowNow(*index);
  EXPECT_NE(old, index->header());
  EXPECT_EQ(old->changes.load(), before + 2) << "who reads by the old one alone notices";
  EXPECT_NE(index->header()->changes.load(), before);
}

TEST(SharedIndex, ClientDescriptorIsSealed) {
  auto index = Make(256);
  const int fd = index->client_fd();
  EXPECT_EQ(::fcntl(fd, F_GET_SEALS) & (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL | 0x10 /* FUTURE_WRITE */),
            F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL | 0x10);
  EXPECT_EQ(::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0), MAP_FAILED);
  EXPECT_NE(::ftruncate(fd, 0), 0);
  // Even who may reopen it (the same uid) can neither write nor map it writable.
  const int again = ::open(("/proc/self/fd/" + std::to_string(fd)).c_str(), O_RDWR | O_CLOEXEC);
  if (again >= 0) {
    EXPECT_LT(::write(again, "x", 1), 0);
    EXPECT_EQ(::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, again, 0), MAP_FAILED);
    EXPECT_NE(::fallocate(again, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096), 0);
    ::close(again);
  }
}

// A large index has 2 MiB pages where the machine gives them: by a memfd that is sealed, or by a tmpfs file whose only descriptor is behind a read-only mount.
TEST(SharedIndex, LargeIndexHasHugePagesAndCannotBeWrittenByClients) {
  constexpr std::uint64_t kSlots = 200'000;
  const Result<UniqueFd> user_namespace = MakeUserNamespace();
  const auto tmpfs = PrivateTmpfs::Create(user_namespace.ok() ? user_namespace->get() : -1);
  auto index = Make(kSlots, kSlots, tmpfs.ok() ? &*tmpfs : nullptr);
  if (!index->huge_pages()) GTEST_SKIP() << "no 2 MiB pages for shared memory here";
  EXPECT_GE(index->shared_bytes(), kSlots * sizeof(abi::Slot));
  EXPECT_EQ(index->header()->total_bytes, index->shared_bytes());
  const int fd = index->client_fd();
  struct stat st {};
  ASSERT_EQ(::fstat(fd, &st), 0);
  EXPECT_EQ(static_cast<std::uint64_t>(st.st_size), index->shared_bytes());
  EXPECT_EQ(st.st_mode & 0777, 0400u);
  EXPECT_EQ(::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0), MAP_FAILED);
  EXPECT_NE(::ftruncate(fd, 0), 0);
  EXPECT_NE(::fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 2 << 20), 0);
  const int again = ::open(("/proc/self/fd/" + std::to_string(fd)).c_str(), O_RDWR | O_CLOEXEC);
  if (again >= 0) {
    EXPECT_EQ(::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, again, 0), MAP_FAILED);
    EXPECT_NE(::fallocate(again, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 2 << 20), 0);
    ::close(again);
  }
}

TEST(SharedIndex, GrowthKeepsTheNoticesOfSegmentsThatHaveLeft) {
  auto index = Make(64);
  EXPECT_EQ(index->NoteSegmentGone(7, 3), 1u);
  Adopt(*index);
  EXPECT_EQ(index->NoteSegmentGone(9, 4), 2u);
  while (!index->GrowStep(100)) {
  }
  const abi::IndexHeader& header = *index->header();
  EXPECT_EQ(header.generation, 2u);
  EXPECT_EQ(header.segments_gone.load(), 2u);
  EXPECT_EQ(header.oldest_segment.load(), 4u);
  EXPECT_EQ(header.gone_segments[0].load(), 7u);
  EXPECT_EQ(header.gone_segments[1].load(), 9u);
}

TEST(SharedIndex, ErasedSlotsAreUsedAgain) {
  auto index = Make(1024);
  for (std::uint64_t round = 0; round < 50; ++round) {
    for (std::uint64_t n = 0; n < 600; ++n) ASSERT_TRUE(index->Insert(KeyOf(round * 600 + n), ValuesOf(n), 1));
    for (std::uint64_t n = 0; n < 600; ++n) index->Erase(index->Find(KeyOf(round * 600 + n))->ordinal);
  }
  EXPECT_EQ(index->live(), 0u);
  EXPECT_EQ(index->tombstones(), 0u) << "the last one of a run turns the whole run empty";
}

TEST(SharedIndex, TombstonesAloneAreAReasonToRebuild) {
  auto index = Make(1024);
  std::mt19937_64 random(1);
  std::vector<std::uint64_t> there;
  std::uint64_t next = 0;
  int rebuilds = 0;
  for (int step = 0; step < 100'000; ++step) {
    if (there.size() < 500) {
      there.push_back(next);
      ASSERT_TRUE(index->Insert(KeyOf(next), ValuesOf(next), static_cast<OwnerId>(next)));
      ++next;
    } else {
      const std::size_t at = random() % there.size();
      index->Erase(index->Find(KeyOf(there[at]))->ordinal);
      there[at] = there.back();
      there.pop_back();
    }
    if (index->WantsGrowth()) {
      GrowNow(*index);
      ++rebuilds;
    }
  }
  EXPECT_LE(index->slot_count(), 2048u);
  for (const std::uint64_t n : there) EXPECT_TRUE(index->Find(KeyOf(n)));
  std::printf("%d rebuilds in 100,000 steps\n", rebuilds);
}

// Every change during growth reaches both tables: compared with a plain map, with steps of random size in between.
TEST(SharedIndex, GrowsWhileItChanges) {
  auto index = Make(512);
  struct Entry {
    SlotValues values;
    OwnerId owner;
  };
  std::unordered_map<std::uint64_t, Entry> model;
  std::mt19937_64 random(7);
  int published = 0;
  for (int step = 0; step < 200'000; ++step) {
    const std::uint64_t n = random() % (1000 + static_cast<std::uint64_t>(step) / 4);
    const auto found = index->Find(KeyOf(n));
    ASSERT_EQ(found.has_value(), model.count(n) == 1);
    switch (random() % 8) {
      case 0: case 1: case 2: case 3: {
        const SlotValues values = ValuesOf(random() >> 20);
        const auto owner = static_cast<OwnerId>(step);
        if (index->Insert(KeyOf(n), values, owner)) model[n] = {values, owner};
        break;
      }
      case 4:
        if (found) {
          index->Erase(found->ordinal);
          model.erase(n);
        }
        break;
      case 5:
        if (found) {
          model[n].values = ValuesOf(random() >> 20);
          index->Update(found->ordinal, model[n].values);
        }
        break;
      case 6:
        if (found) {
          index->SetLocation(found->ordinal, model[n].values.location = random());
          index->SetOwner(found->ordinal, model[n].owner = static_cast<OwnerId>(random()));
        }
        break;
      default:
        if (found) index->SetDeadline(found->ordinal, model[n].values.deadline = static_cast<std::uint32_t>(random()));
    }
    if (index->WantsGrowth()) Adopt(*index);
    if (index->growing() && index->GrowStep(1 + static_cast<std::uint32_t>(random() % 20))) {
      ++published;
      for (const auto& [key, entry] : model) {
        const auto at = index->Find(KeyOf(key));
        ASSERT_TRUE(at);
        ASSERT_EQ(at->owner, entry.owner);
        ASSERT_EQ(index->Read(at->ordinal), entry.values);
      }
      ASSERT_EQ(index->live(), model.size());
    }
  }
  EXPECT_GE(published, 8);
}

TEST(SharedIndex, OldTableIsRetiredBeforeTheNewOneChangesAlone) {
  auto index = Make(64);
  struct stat st {};
  ASSERT_EQ(::fstat(index->client_fd(), &st), 0);
  void* view = ::mmap(nullptr, static_cast<std::size_t>(st.st_size), PROT_READ, MAP_SHARED, index->client_fd(), 0);
  const auto* old = static_cast<const abi::IndexHeader*>(view);
  const std::uint32_t ordinal = *index->Insert(KeyOf(5), ValuesOf(5), 55);
  Adopt(*index);
  EXPECT_EQ(old->retired.load(), 0u);
  EXPECT_FALSE(index->GrowStep(10));
  EXPECT_EQ(old->retired.load(), 0u);
  EXPECT_EQ(index->generation(), 1u);
  while (!index->GrowStep(100)) {
  }
  EXPECT_EQ(old->retired.load(), 1u);
  EXPECT_EQ(index->generation(), 2u);
  // A ring entry of the old generation still finds its owner, until the old table is given away.
  EXPECT_EQ(index->OwnerAt(1, ordinal), std::optional<OwnerId>(55));
  EXPECT_EQ(index->OwnerAt(2, index->Find(KeyOf(5))->ordinal), std::optional<OwnerId>(55));
  EXPECT_FALSE(index->OwnerAt(3, 0));
  EXPECT_FALSE(index->OwnerAt(2, 0xffffffffu)) << "ordinals come from clients";
  EXPECT_NE(index->TakeRetired(), nullptr);
  EXPECT_FALSE(index->OwnerAt(1, ordinal));
  ::munmap(view, static_cast<std::size_t>(st.st_size));
}

TEST(SharedIndex, RefusesWhenFullAndSaysThatItWantsToGrow) {
  auto index = Make(128, 128);
  std::uint64_t n = 0;
  while (index->Insert(KeyOf(n), ValuesOf(n), 0)) ++n;
  EXPECT_EQ(n, 112u) << "7/8 of 128";
  EXPECT_EQ(index->refused(), 1u);
  EXPECT_FALSE(index->WantsGrowth()) << "at its hard limit";
  auto larger = Make(128);
  for (n = 0; larger->Insert(KeyOf(n), ValuesOf(n), 0); ++n) {
  }
  EXPECT_TRUE(larger->WantsGrowth());
  GrowNow(*larger);
  EXPECT_TRUE(larger->Insert(KeyOf(n), ValuesOf(n), 0));
}

TEST(SharedIndex, TableOfAnotherTimeIsNotAdopted) {
  auto index = Make(64);
  IndexTableOptions next = index->NextTable();
  ++next.generation;
  Result<std::unique_ptr<IndexTable>> wrong = SharedIndex::CreateTable(next);
  ASSERT_TRUE(wrong.ok());
  EXPECT_EQ(index->AdoptTable(std::move(wrong).value()).code(), Code::kInvalid);
  Adopt(*index);
  Result<std::unique_ptr<IndexTable>> second = SharedIndex::CreateTable(index->NextTable());
  ASSERT_TRUE(second.ok());
  EXPECT_EQ(index->AdoptTable(std::move(second).value()).code(), Code::kBusy);
  EXPECT_EQ(SharedIndex::CreateTable({.slot_count = 1}).status().code(), Code::kInvalid);
}

TEST(SharedIndex, AttributeClassesAreSharedAndSurviveGrowth) {
  auto index = Make(64);
  const abi::AttrClass a{1, 0100644, 1000, 1000, 1, 4096, 0};
  abi::AttrClass b = a;
  b.mode = 0100600;
  const std::uint32_t first = index->AttrClass(a);
  EXPECT_NE(first, 0u);
  EXPECT_EQ(index->AttrClass(a), first);
  Adopt(*index);
  const std::uint32_t second = index->AttrClass(b);
  EXPECT_NE(second, first);
  while (!index->GrowStep(1000)) {
  }
  EXPECT_EQ(index->Attrs(first).mode, 0100644u);
  EXPECT_EQ(index->Attrs(second).mode, 0100600u);
  EXPECT_EQ(index->AttrClass(b), second);
  EXPECT_EQ(index->Attrs(0).mode, 0u);
  EXPECT_EQ(index->Attrs(1 << 20).mode, 0u);
}

// Versions are compared with the device, so it must be known; and a mode of 0 sends who wants the rest to the source.
TEST(SharedIndex, WhenAttributeClassesRunOutTheDeviceIsStillKnown) {
  auto index = Make(64);
  abi::AttrClass file{.dev = 1, .mode = 0100644, .uid = 1000};
  const std::uint32_t first = index->AttrClass(file);
  abi::AttrClass directory{.dev = 1, .mode = 040755};
  for (directory.nlink = 2; directory.nlink < 5000; ++directory.nlink) (void)index->AttrClass(directory);
  EXPECT_EQ(index->Attrs(index->AttrClass(directory)).mode, 0u);
  file.mode = 0100600;
  EXPECT_EQ(index->Attrs(index->AttrClass(file)).mode, 0100600u) << "what directories have been with how many links takes no file's class";
  for (file.uid = 0; file.uid < abi::kMaxAttrClasses; ++file.uid) (void)index->AttrClass(file);
  file.uid = 123456;
  const std::uint32_t bare = index->AttrClass(file);
  EXPECT_EQ(index->AttrClass(directory), bare);
  EXPECT_EQ(index->Attrs(bare).dev, 1u);
  EXPECT_EQ(index->Attrs(bare).mode, 0u);
  EXPECT_EQ(index->Attrs(bare).uid, 0u);
  EXPECT_EQ(index->AttrClass({.dev = 1, .mode = 0100644, .uid = 1000}), first);
  for (std::uint64_t dev = 2; dev < 2 + SharedIndex::kBareClasses; ++dev) {
    file.dev = dev;
    (void)index->AttrClass(file);
  }
  file.dev = 1000;
  EXPECT_EQ(index->AttrClass(file), 0u) << "of too many devices: unknown";
}

#if !defined(__SANITIZE_THREAD__)
// A9: the shared index <= 128 bytes a file averaged over 1..10 M files, <= 170 at the worst point; the private owner array counted in. It grows by the same factor
// each time, so that from 1 M on all there is to see is seen before 2 M. TIERD_TEST_INDEX_FILES=10000000 for the full size.
TEST(SharedIndex, MemoryPerFile) {
  const char* const wanted = std::getenv("TIERD_TEST_INDEX_FILES");
  const std::uint64_t files = wanted == nullptr ? 2'000'000 : std::strtoull(wanted, nullptr, 10);
  auto index = Make(4096);
  double sum = 0, worst = 0;
  std::uint64_t points = 0;
  int grown = 0;
  for (std::uint64_t n = 1; n <= files; ++n) {
    ASSERT_TRUE(index->Insert(KeyOf(n), ValuesOf(n), 0));
    if (index->WantsGrowth()) {
      GrowNow(*index);
      (void)index->TakeRetired();
      grown += n >= 1'000'000 ? 1 : 0;
    }
    if (n < 1'000'000 || n % 1000 != 0) continue;
    const double each = static_cast<double>(index->memory_bytes()) / static_cast<double>(n);
    sum += each;
    worst = std::max(worst, each);
    ++points;
  }
  std::printf("average %.1f, worst %.1f bytes a file over 1 M..%llu\n", sum / static_cast<double>(points), worst, static_cast<unsigned long long>(files));
  EXPECT_GE(grown, 1);
  EXPECT_LE(sum / static_cast<double>(points), 128);
  EXPECT_LE(worst, 170);
  EXPECT_EQ(index->refused(), 0u);
}
#endif

}  // namespace
}  // namespace tierd::ram

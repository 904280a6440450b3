// Chunks mapped side by side where the kernel refuses to: an mremap to a fixed place may unmap what is there and fail then (hugetlb before Linux 5.16, want of
// memory), and another thread's memory comes to lie in the hole.
#include <errno.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include <cstdarg>
#include <cstring>

#include "tests/client/client_rig.h"

namespace {

enum class Kernel { kWilling, kRefuses, kLosesThePlace } kernel = Kernel::kWilling;
int mappings_left = 0;  // that succeed before that
std::string others;     // what another thread's memory holds
void* others_at = nullptr;

}  // namespace

extern "C" void* mremap(void* old, std::size_t old_bytes, std::size_t bytes, int flags, ...) noexcept {
  va_list arguments;
  va_start(arguments, flags);
  void* const place = (flags & MREMAP_FIXED) != 0 ? va_arg(arguments, void*) : nullptr;
  va_end(arguments);
  if (kernel == Kernel::kRefuses && place == nullptr && mappings_left-- <= 0) {
    errno = EAGAIN;
    return MAP_FAILED;
  }
  if (kernel == Kernel::kLosesThePlace && place != nullptr && mappings_left-- <= 0) {
    others_at = ::mmap(place, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    others.assign(bytes, 'o');
    std::memcpy(others_at, others.data(), bytes);
    kernel = Kernel::kWilling;
    errno = ENOMEM;
    return MAP_FAILED;
  }
  return reinterpret_cast<void*>(::syscall(SYS_mremap, old, old_bytes, bytes, flags, place));
}

namespace tierd::testing {
namespace {

constexpr std::size_t kChunk = 64 << 10;
constexpr std::size_t kBytes = 340'000;  // 6 chunks

class MappedChunksTest : public ClientRig {
 protected:
  void SetUp() override {
    ClientRig::SetUp();
    options_.chunk_bytes = kChunk;
    Write("f", ContentOf("f", kBytes));
    StartDaemon();
    daemon_->CacheAll();
    Client();
  }
  void TearDown() override {
    kernel = Kernel::kWilling;
    ClientRig::TearDown();
  }
  void ExpectContent() {
    tier_view view;
    ASSERT_EQ(0, tier_get(client_, Path("f").c_str(), &view, 0));
    EXPECT_TRUE(ContentOf("f", kBytes) == std::string_view(static_cast<const char*>(view.data), view.size));
    tier_release(&view);
    EXPECT_EQ(0u, daemon_->Leases());
    EXPECT_EQ(0u, Stats().leased_bytes);
  }
};

TEST_F(MappedChunksTest, WhatCannotBeMappedIsCopied) {
  ExpectContent();
  for (const int mapped : {0, 2, 5}) {
    kernel = Kernel::kRefuses;
    mappings_left = mapped;
    ExpectContent();
  }
}

TEST_F(MappedChunksTest, AnothersMemoryIsLeftAlone) {
  for (const int mapped : {0, 2, 4}) {
    kernel = Kernel::kLosesThePlace;
    mappings_left = mapped;
    ExpectContent();
    ASSERT_EQ(Kernel::kWilling, kernel);
    EXPECT_TRUE(others == std::string_view(static_cast<const char*>(others_at), others.size()));
    ::munmap(others_at, others.size());
  }
}

}  // namespace
}  // namespace tierd::testing

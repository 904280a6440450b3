// The worked bytes of client_lib/abi/LAYOUT.md are recomputed and looked for in its text, so that page and header cannot drift apart.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstring>
#include <new>
#include <span>
#include <string>
#include <string_view>

#include "client_lib/abi/layout.h"
#include "client_lib/abi/path_hash.h"
#include "tests/support/format_page.h"

namespace tierd::abi {
namespace {

const testing::FormatPage kPage{TIERD_LAYOUT_PAGE};

std::string Hex(std::uint64_t value) {
  char text[32];
  std::snprintf(text, sizeof text, "0x%016llx", static_cast<unsigned long long>(value));
  return text;
}

struct Example {
  Example() {
    std::uint8_t secret_key[32];
    for (std::uint8_t i = 0; i < 32; ++i) secret_key[i] = i;
    DeriveHashSecret(secret_key, secret);
    constexpr std::string_view kPath = "train/n01440764/n01440764_18.JPEG";
    key = HashPath(secret, 0, kPath.data(), kPath.size());
  }
  std::uint8_t secret[kHashSecretBytes];
  FileKey key;
  Location location{7, 0x1234c0, 0x0102};
};

TEST(LayoutPage, Key) {
  const Example example;
  kPage.ExpectContains("lo = " + Hex(example.key.lo));
  kPage.ExpectContains("hi = " + Hex(example.key.hi));
  kPage.ExpectContains("home slot of 6144: " + std::to_string(HomeSlot(example.key, 6144)));
  kPage.ExpectContains("chunk 0: lo = " + Hex(ChunkKeyOf(example.key, 0).lo) + ", hi = " + Hex(ChunkKeyOf(example.key, 0).hi));
  kPage.ExpectContains("listing: lo = " + Hex(ListingKeyOf(example.key).lo) + ", hi = " + Hex(ListingKeyOf(example.key).hi));
}

TEST(LayoutPage, LocationWord) {
  const Example example;
  const std::uint64_t word = EncodeLocation(example.location);
  kPage.ExpectContains("location word = " + Hex(word));
  EXPECT_EQ(DecodeLocation(word).segment, 7u);
  EXPECT_EQ(DecodeLocation(word).offset, 0x1234c0u);
  EXPECT_EQ(DecodeLocation(word).fill, 0x0102u);
}

TEST(LayoutPage, Slot) {
  const Example example;
  alignas(64) unsigned char memory[sizeof(Slot)] = {};
  Slot& slot = *new (memory) Slot;
  slot.seq.store(4);
  slot.deadline.store(TicksOf(std::int64_t{3'600} * 1'000'000'000));
  slot.key_lo.store(example.key.lo);
  slot.key_hi.store(example.key.hi);
  slot.size_attr.store(EncodeSizeAttr(110'000, 3, SlotKind::kFile));
  slot.location.store(EncodeLocation(example.location));
  slot.mtime_ns.store(1'700'000'000'123'456'789);
  slot.ctime_ns.store(1'700'000'001'000'000'000);
  slot.ino.store(131'073);
  kPage.ExpectBytes(std::as_bytes(std::span(memory)));
  kPage.ExpectContains("size_attr = " + Hex(slot.size_attr.load()));
}

TEST(LayoutPage, LeaseWord) {
  const Example example;
  kPage.ExpectContains("lease key = " + Hex(LeaseKeyOf(example.key)));
  kPage.ExpectContains("lease word = " + Hex(EncodeLease(LeaseKeyOf(example.key), example.location.fill)));
  kPage.ExpectContains("before a miss = " + Hex(EncodeLease(LeaseKeyOf(example.key), 0)));
}

TEST(LayoutPage, RingEntry) {
  kPage.ExpectContains("ring entry = " + Hex(EncodeRingEntry(12'345, 2, 123'456'789'012, Tier::kSsd, 5'000)));
}

TEST(LayoutPage, ListingEntry) {
  unsigned char record[24] = {};
  ListingEntry entry{};
  entry.ino = 131'073;
  entry.name_bytes = 5;
  entry.d_type = 8;
  std::memcpy(record, &entry, sizeof entry);
  std::memcpy(record + sizeof entry, "a.jpg", 5);
  kPage.ExpectBytes(std::as_bytes(std::span(record)));
}

TEST(LayoutPage, Sizes) {
  kPage.ExpectContains("slots_offset = " + std::to_string(kIndexHeaderBytes + sizeof(AttrClass) * kMaxAttrClasses));
  kPage.ExpectContains("session page: " + std::to_string(sizeof(SessionPage)) + " bytes");
  kPage.ExpectContains("kProbeSlack = " + std::to_string(kProbeSlack));
  kPage.ExpectContains("layout version " + std::to_string(kLayoutVersion));
  kPage.ExpectContains("leases at " + std::to_string(offsetof(SessionPage, leases)) + ", ring at " + std::to_string(offsetof(SessionPage, ring)));
}

}  // namespace
}  // namespace tierd::abi

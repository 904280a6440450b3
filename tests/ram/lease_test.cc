// Session pages and the scan of their leases, hostile ones included.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <random>
#include <vector>

#include "tierd/ram/lease_scanner.h"
#include "tierd/ram/session_page.h"

namespace tierd::ram {
namespace {

SessionPage MakePage(std::uint32_t id) {
  SessionPageOptions options;
  options.session_id = id;
  options.instance[3] = 9;
  options.pin_cap_bytes = 123456;
  Result<SessionPage> page = SessionPage::Create(options);
  EXPECT_TRUE(page.ok()) << page.status().message();
  return std::move(page).value();
}

TEST(SessionPage, CarriesTheDaemonsWordsAndIsOtherwiseZero) {
  SessionPage made = MakePage(17);
  const abi::SessionPage& page = *made.page();
  EXPECT_EQ(page.magic, abi::kSessionMagic);
  EXPECT_EQ(page.layout_version, abi::kLayoutVersion);
  EXPECT_EQ(page.session_id, 17u);
  EXPECT_EQ(page.instance[3], 9);
  EXPECT_EQ(page.pin_cap_bytes, 123456u);
  EXPECT_EQ(page.revoked.load(), 0u);
  EXPECT_EQ(page.lease_high.load(), 0u);
  EXPECT_EQ(page.ring_head.load(), 0u);
  made.Revoke();
  EXPECT_EQ(page.revoked.load(), 1u);
}

TEST(SessionPage, ClientCanWriteButNotResize) {
  SessionPage made = MakePage(1);
  const int fd = made.client_fd();
  EXPECT_NE(::ftruncate(fd, 0), 0);
  EXPECT_NE(::ftruncate(fd, 1 << 20), 0);
  EXPECT_NE(::fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE), 0) << "a client must not be able to stop the daemon from writing `revoked`";
  void* view = ::mmap(nullptr, SessionPage::kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  ASSERT_NE(view, MAP_FAILED);
  static_cast<abi::SessionPage*>(view)->leases[5].store(42);
  EXPECT_EQ(made.page()->leases[5].load(), 42u);
  // A hole punched by a client reads as zero here, it does not kill us.
  EXPECT_EQ(::fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, static_cast<off_t>(SessionPage::kBytes)), 0);
  EXPECT_EQ(made.page()->leases[5].load(), 0u);
  ::munmap(view, SessionPage::kBytes);
}

TEST(LeaseScanner, CoversTheExactFillAndAnyFill) {
  SessionPage one = MakePage(1);
  SessionPage two = MakePage(2);
  LeaseScanner scanner;
  scanner.Add(one.page());
  scanner.Add(two.page());
  one.page()->lease_high.store(3);
  one.page()->leases[2].store(abi::EncodeLease(100, 7));
  two.page()->lease_high.store(1);
  two.page()->leases[0].store(abi::EncodeLease(200, 0));
  const LeaseSet& leased = scanner.Scan();
  EXPECT_EQ(leased.size(), 2u);
  EXPECT_TRUE(leased.Covers(abi::EncodeLease(100, 7)));
  EXPECT_FALSE(leased.Covers(abi::EncodeLease(100, 8))) << "an older frame of a hot chunk leaves";
  EXPECT_TRUE(leased.Covers(abi::EncodeLease(200, 8))) << "taken before a miss: any frame of the chunk";
  EXPECT_FALSE(leased.Covers(abi::EncodeLease(201, 0)));
  scanner.Remove(two.page());
  EXPECT_FALSE(scanner.Scan().Covers(abi::EncodeLease(200, 8)));
  EXPECT_EQ(scanner.sessions(), 1u);
}

TEST(LeaseScanner, TellsWhatAScanCosts) {
  SessionPage one = MakePage(1);
  SessionPage two = MakePage(2);
  LeaseScanner scanner;
  EXPECT_EQ(scanner.cost(), 0u);
  scanner.Add(one.page());
  scanner.Add(two.page());
  EXPECT_EQ(scanner.cost(), 2 * LeaseScanner::kWordsPerPage) << "as far as is known";
  one.page()->lease_high.store(3);
  two.page()->lease_high.store(0xffffffffu);
  (void)scanner.Scan();
  EXPECT_EQ(scanner.cost(), 2 * LeaseScanner::kWordsPerPage + 3 + abi::kLeaseSlots);
  scanner.Remove(two.page());
  (void)scanner.Scan();
  EXPECT_EQ(scanner.cost(), LeaseScanner::kWordsPerPage + 3);
}

TEST(LeaseScanner, LooksOnlyBelowLeaseHigh) {
  SessionPage page = MakePage(1);
  LeaseScanner scanner;
  scanner.Add(page.page());
  page.page()->leases[10].store(abi::EncodeLease(1, 1));
  EXPECT_TRUE(scanner.Scan().empty());
  page.page()->lease_high.store(11);
  EXPECT_EQ(scanner.Scan().size(), 1u);
}

TEST(LeaseScanner, HostilePagesOnlyHarmTheirOwner) {
  std::mt19937_64 random(3);
  std::vector<SessionPage> pages;
  LeaseScanner scanner;
  for (std::uint32_t i = 0; i < 4; ++i) {
    pages.push_back(MakePage(i));
    abi::SessionPage* page = pages.back().page();
    // Everything a client can write, filled with noise and extremes; pages are sealed, so that only content can be hostile.
    for (auto& lease : page->leases) lease.store(random() % 3 == 0 ? ~std::uint64_t{0} : random());
    page->lease_high.store(i == 0 ? 0xffffffffu : static_cast<std::uint32_t>(random()));
    page->ring_head.store(random());
    page->magic = random();
    page->pin_cap_bytes = ~std::uint64_t{0};
  }
  for (const SessionPage& page : pages) scanner.Add(page.page());
  const LeaseSet& leased = scanner.Scan();
  EXPECT_LE(leased.size(), std::size_t{4} * abi::kLeaseSlots);
  EXPECT_GT(leased.size(), 0u);
  EXPECT_TRUE(leased.Covers(~std::uint64_t{0}));
  EXPECT_FALSE(leased.Covers(abi::EncodeLease(0x123456, 3)));
}

}  // namespace
}  // namespace tierd::ram

// The client's mapping of an index: header and slots are the input (in a file of a whole number of pages), then some keys are looked up.
#include <sys/mman.h>
#include <unistd.h>

#include <memory>

#include "client_lib/src/index_view.h"
#include "tests/fuzz/fuzz_input.h"

using namespace tierd;
using namespace tierd::client;

// The header, then 16-byte patches {u32 offset, u32 unused, u64 value} into the slots and attributes: an index is large, a seed should not be.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::Input input(data, size);
  const auto file_bytes = std::uint64_t{input.Take<std::uint16_t>()} * 4096;
  const auto claimed_bytes = file_bytes + input.Take<std::uint16_t>() % 3 * 4096;
  const int fd = ::memfd_create("fuzz", MFD_CLOEXEC);
  if (fd < 0 || file_bytes == 0 || ::ftruncate(fd, static_cast<off_t>(file_bytes)) != 0) {
    ::close(fd);
    return 0;
  }
  const auto header = input.Bytes(512);
  (void)!::pwrite(fd, header.data(), std::min<std::size_t>(header.size(), file_bytes), 0);
  while (input.size() > 0) {
    const auto offset = input.Take<std::uint32_t>() % file_bytes;
    (void)input.Take<std::uint32_t>();
    const auto value = input.Take<std::uint64_t>();
    if (offset + sizeof value <= file_bytes) (void)!::pwrite(fd, &value, sizeof value, static_cast<off_t>(offset));
  }
  const std::uint8_t instance[16] = {};
  IndexView* const view = MapIndex(fd, claimed_bytes, instance, false);
  ::close(fd);
  if (view == nullptr) return 0;
  FUZZ_CHECK(view->bytes <= file_bytes);
  for (std::uint64_t i = 0; i < 64; ++i) {
    const abi::FileKey key = i == 0 ? abi::FileKey{} : (i == 1 ? view->KeyOf(1, "a/b", 3) : abi::FileKey{abi::Mix64(i), abi::Mix64(i + 64)});
    if (const SlotRef ref = FindSlot(*view, key)) {
      (void)ReadFacts(*view, ref);
      (void)ReadAtime(*view, ref);
      (void)ref.Unchanged();
    }
  }
  // The largest keys of all: the last slots, and the slack behind them.
  for (std::uint64_t i = 0; i < 4; ++i) {
    if (const SlotRef ref = FindSlot(*view, {~std::uint64_t{0} - i, i})) (void)ReadAtime(*view, ref);
  }
  (void)view->Retired();
  RetireIndex(*view);
  ::munmap(const_cast<abi::IndexHeader*>(view->header), view->bytes);
  std::free(view);
  return 0;
}

// The answer to one FUSE request, kept until it is due, and the writer that sends it.
//
// Owned by one thread at a time: made by the receiving thread, then by the Scheduler's thread.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <vector>

#include "tests/pfs_sim/counters.h"
#include "tests/pfs_sim/ops.h"

namespace pfs_sim {

// The data of a READ is fetched when the reply is due: no buffer waits, and the bytes are those the
// backing file holds at that moment.
struct ReadWork {
  int fd = -1;  // open until the reply is written: the kernel releases a handle only after its reads
  uint32_t size = 0;
  uint64_t offset = 0;
  PathCounters* path = nullptr;
  bool flip = false;
  bool cut = false;
  uint64_t flip_bit = kMiddle;  // bit number in the file; kMiddle: of the reply's middle byte
  uint64_t cut_bytes = kMiddle;  // bytes given; kMiddle: half of what there is
  static constexpr uint64_t kMiddle = ~uint64_t{0};
};

struct Reply {
  uint64_t unique = 0;
  Op op = Op::kOther;
  int error = 0;  // errno, 0 for success
  bool is_read = false;
  uint32_t small_size = 0;
  alignas(8) std::array<char, 144> small;  // fixed-size answers
  std::vector<char> large;                 // listings, link targets
  ReadWork read;

  template <typename T>
  T& SetOut() {
    static_assert(sizeof(T) <= sizeof(small));
    small_size = sizeof(T);
    std::memset(small.data(), 0, sizeof(T));
    return *reinterpret_cast<T*>(small.data());
  }
};

// Writes replies to /dev/fuse. One instance per thread: it owns the buffer of the reads.
class ReplyWriter {
 public:
  ReplyWriter(int dev_fd, Counters& counters) : dev_fd_(dev_fd), counters_(counters) {}
  void Send(Reply& reply);

 private:
  size_t FetchData(Reply& reply);

  const int dev_fd_;
  Counters& counters_;
  std::vector<char> buffer_;
};

}  // namespace pfs_sim

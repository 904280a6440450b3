// Questions that came in one message are waited for together: of their answers only the last lets anybody go on, and each one that is sent by itself wakes the client for
// nothing. Pure; one per session; loop thread only.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace tierd::server {

class Together {
 public:
  static constexpr std::size_t kMostMessages = 64;  // of more, every answer is awaited

  // A message of `count` questions with ids from `first_id` on. May run out of memory.
  void Asked(std::uint64_t first_id, std::uint32_t count) {
    if (count < 2 || messages_.size() == kMostMessages || first_id > UINT64_MAX - count) return;
    messages_.push_back({first_id, count, count});
  }
  // An answer is ready: whether it is awaited, the last one of its message, or one of none.
  bool IsAwaited(std::uint64_t id) {
    const auto message = std::find_if(messages_.begin(), messages_.end(), [id](const Message& m) { return id >= m.first_id && id - m.first_id < m.count; });
    if (message == messages_.end()) return true;
    if (--message->left != 0) return false;
    messages_.erase(message);
    return true;
  }

 private:
  struct Message {
    std::uint64_t first_id;
    std::uint32_t count;
    std::uint32_t left;
  };
  std::vector<Message> messages_;
};

}  // namespace tierd::server

#include "client_lib/src/mounts_below.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "client_lib/src/spellings.h"

namespace tierd::client {
namespace {

constexpr std::uint64_t kLengthMask = 0xffff;

// FNV-1a.
struct NameHash {
  std::uint64_t hash = 0xcbf29ce484222325u;
  std::size_t bytes = 0;
  void Add(char c) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
    ++bytes;
  }
  std::uint64_t word() const { return (hash & ~kLengthMask) | (bytes & kLengthMask); }
};

// Goes through the text of mountinfo (proc(5)): the fifth field of each line is where something is mounted, with \ooo for blanks.
class MountPoints {
 public:
  MountPoints(const char* root, std::size_t root_bytes) : root_(root), root_bytes_(root_bytes) {}

  // True: the line's mount lies below the root, and is called name().
  bool Take(char c) {
    if (c == '\n') {
      *this = MountPoints(root_, root_bytes_);
      return false;
    }
    if (c == ' ') return ++field_ == kMountPoint + 1 && below_ && at_ > root_bytes_ + 1;
    if (field_ != kMountPoint) return false;
    if (c == '\\') {
      octal_ = 3;
      code_ = 0;
      return false;
    }
    if (octal_ > 0) {
      code_ = code_ * 8 + (c - '0');
      if (--octal_ > 0) return false;
      c = static_cast<char>(code_);
    }
    if (at_ > root_bytes_) name_.Add(c);
    else below_ = below_ && c == (at_ < root_bytes_ ? root_[at_] : '/');
    ++at_;
    return false;
  }
  const NameHash& name() const { return name_; }

 private:
  static constexpr int kMountPoint = 4;
  const char* root_;
  std::size_t root_bytes_;
  int field_ = 0;
  int octal_ = 0;
  int code_ = 0;
  std::size_t at_ = 0;
  bool below_ = true;
  NameHash name_;
};

}  // namespace

MountsBelow::Found MountsBelow::Look(const char* root) {
  PathText name;  // the root's by which mountinfo knows it
  std::size_t bytes = KernelNameOf(root, name);
  if (bytes == 1) bytes = 0;  // the root directory
  else if (bytes == 0) return Found::kNone;
  const int fd = ::open("/proc/self/mountinfo", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return Found::kNone;
  MountPoints points(name.text, bytes);
  std::size_t count = 0;
  char text[1024];
  for (;;) {
    const ssize_t got = ::read(fd, text, sizeof text);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    for (ssize_t i = 0; i < got && count <= kMost; ++i) {
      if (!points.Take(text[i])) continue;
      if (count < kMost) names_[count].store(points.name().word(), std::memory_order_relaxed);
      ++count;
    }
  }
  ::close(fd);
  for (std::size_t i = count; i < kMost; ++i) names_[i].store(0, std::memory_order_relaxed);
  return count == 0 ? Found::kNone : count <= kMost ? Found::kSome : Found::kTooMany;
}

bool MountsBelow::Cover(const char* relative, std::size_t bytes) const {
  NameHash prefix;
  for (std::size_t i = 0; i <= bytes; ++i) {
    if ((i == bytes || relative[i] == '/') && prefix.bytes != 0) {
      for (const auto& name : names_) {
        const std::uint64_t word = name.load(std::memory_order_relaxed);
        if (word == 0) break;
        if (word == prefix.word()) return true;
      }
    }
    if (i < bytes) prefix.Add(relative[i]);
  }
  return false;
}

}  // namespace tierd::client

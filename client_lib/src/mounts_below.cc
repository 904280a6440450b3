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

// Goes through the text of mountinfo (proc(5)): the fifth field of each line is where something is mounted, with \ooo
// for blanks.
class MountPoints {
 public:
  MountPoints(const char* root, std::size_t root_bytes) : root_(root), root_bytes_(root_bytes) {}

  // True: the line's mount lies below the root, and is called name().
  bool Take(char c) {
    if (c == '\n') {
      if (concerns_) lines_ = (lines_ ^ line_.hash) * 0x100000001b3u;
      const std::uint64_t lines = lines_;
      *this = MountPoints(root_, root_bytes_);
      lines_ = lines;
      return false;
    }
    line_.Add(c);
    if (c == ' ') return ++field_ == kMountPoint + 1 && EndOfName();
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
    else agrees_ = agrees_ && c == (at_ < root_bytes_ ? root_[at_] : '/');
    ++at_;
    return false;
  }
  const NameHash& name() const { return name_; }
  // A hash of the lines whose mount is the root, lies above it, or lies below it.
  std::uint64_t lines() const { return lines_; }

 private:
  static constexpr int kMountPoint = 4;
  // True: the mount lies below the root.
  bool EndOfName() {
    const bool above = at_ == 1 || at_ == root_bytes_ || (at_ < root_bytes_ && root_[at_] == '/');
    const bool below = at_ > root_bytes_ + 1;
    concerns_ = agrees_ && (above || below);
    return agrees_ && below;
  }

  const char* root_;
  std::size_t root_bytes_;
  int field_ = 0;
  int octal_ = 0;
  int code_ = 0;
  std::size_t at_ = 0;
  bool agrees_ = true;  // with the root, as far as both reach
  bool concerns_ = false;
  NameHash name_;
  NameHash line_;
  std::uint64_t lines_ = 1;
};

// Hands each mount below the root to `take`. False: the text cannot be read.
template <typename Take>
bool ReadMounts(MountPoints& points, Take take) {
  const int fd = ::open("/proc/self/mountinfo", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  char text[1024];
  for (;;) {
    const ssize_t got = ::read(fd, text, sizeof text);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    for (ssize_t i = 0; i < got; ++i) {
      if (points.Take(text[i])) take(points.name().word());
    }
  }
  ::close(fd);
  return true;
}

// An error that passes proves nothing. Without /proc there is nothing to look at, now or later.
MountsBelow::Found WithoutLook() {
  const bool passes = errno == EMFILE || errno == ENFILE || errno == ENOMEM;
  return passes ? MountsBelow::Found::kUnknown : MountsBelow::Found::kNone;
}

// The root directory's name is "" where names are compared.
std::size_t BytesOf(const char* root) {
  const std::size_t bytes = std::strlen(root);
  return bytes == 1 ? 0 : bytes;
}

}  // namespace

MountsBelow::Found MountsBelow::Look(const char* root) {
  lines_.store(0, std::memory_order_relaxed);
  PathText name;  // the root's by which mountinfo knows it
  errno = 0;
  if (KernelNameOf(root, name) == 0) return WithoutLook();
  MountPoints points(name.text, BytesOf(name.text));
  std::size_t count = 0;
  const bool read = ReadMounts(points, [&](std::uint64_t word) {
    if (count < kMost) names_[count].store(word, std::memory_order_relaxed);
    if (count <= kMost) ++count;
  });
  if (!read) return WithoutLook();
  for (std::size_t i = count; i < kMost; ++i) names_[i].store(0, std::memory_order_relaxed);
  if (std::strcmp(name.text, root) == 0) lines_.store(points.lines(), std::memory_order_relaxed);
  return count == 0 ? Found::kNone : count <= kMost ? Found::kSome : Found::kTooMany;
}

bool MountsBelow::AreAsLookedAt(const char* root) const {
  const std::uint64_t lines = lines_.load(std::memory_order_relaxed);
  MountPoints points(root, BytesOf(root));
  return lines != 0 && ReadMounts(points, [](std::uint64_t) {}) && points.lines() == lines;
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

// Which descriptor numbers are files served from the cache, and what is behind them (HAZARDS 2.17).
//
// A number of ours is, to the kernel, a placeholder: O_PATH of a socket that is closed, from a high range, so that the kernel's lowest-number rule does not hand it
// to somebody else behind our back. It can be neither read nor, by nobody, opened again (ENXIO). A few that are closed are kept for the next files. Its table entry names a description; dup gives a second entry to the same one, as in the kernel.
//
// A description's state, its count of numbers and its offset are one atomic word. A read copies, then moves the word; whoever changes what a number
// is (close of one of several, dup, conversion) owns the word for that time, with signals held off, and the others wait.
// `refs` counts numbers and threads inside; who takes the last one away gives the leases back.
//
// Any thread, signal handlers too. No lock, no allocation.
#pragma once

#include <fcntl.h>
#include <limits.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include <atomic>
#include <cstdint>

#include "client_lib/preload/counters.h"
#include "client_lib/preload/raw.h"
#include "client_lib/src/file.h"
#include "client_lib/src/lookup.h"

namespace tierd::preload {

inline constexpr int kTable = 1024;        // numbers above are never ours: select() takes no larger ones
inline constexpr std::uint32_t kDescriptions = 256;

enum class State : std::uint32_t {
  kCached = 1,
  kBusy = 2,           // a number is being added or taken away
  kMaterialising = 3,  // becomes real
  kReal = 4,           // has become real: look at the number again
  kClosed = 5,         // its last number is being closed
};

// Bits 0-51 offset, 52-60 numbers, 61-63 state.
inline constexpr std::uint64_t kMaxOffset = (std::uint64_t{1} << 52) - 1;
constexpr std::uint64_t MakeWord(State state, std::uint32_t numbers, std::uint64_t offset) {
  return (std::uint64_t{static_cast<std::uint32_t>(state)} << 61) | (std::uint64_t{numbers} << 52) | offset;
}
constexpr State StateOf(std::uint64_t word) { return static_cast<State>(word >> 61); }
constexpr std::uint32_t NumbersOf(std::uint64_t word) { return static_cast<std::uint32_t>(word >> 52) & 0x1ff; }
constexpr std::uint64_t OffsetOf(std::uint64_t word) { return word & kMaxOffset; }

struct Description {
  std::atomic<std::uint64_t> word;
  std::atomic<std::uint32_t> refs;          // 0: free
  std::atomic<std::uint32_t> generation;
  // Constant while it is open. A file of one chunk (or of none) is its leased piece; others are a File.
  bool whole;
  int flags;                                // as F_GETFL shows them
  client::Client* client;
  client::Session* session;
  client::Piece piece;
  client::FileFacts facts;
  std::uint64_t dev;
  // Any thread.
  std::atomic<std::uint8_t> tier;           // where the bytes came from, until the first read has counted it
  std::atomic<std::uint32_t> noted;         // 1: in the access ring
  std::atomic<bool> advised;                // all of it was asked for ahead
  std::atomic<std::int64_t> looked_ns;      // when it was last known that the file is still of this version
  std::atomic<const std::atomic<std::uint64_t>*> changes;  // the word of the index (abi::IndexHeader) that moves when some file has changed
  std::atomic<std::uint64_t> seen_changes;  // what it was when it was last known that this file had not; kLookAtSource: look, whatever it is
  std::atomic<int> source;                  // descriptor of the source, for what only that can do; -1
  alignas(client::File) unsigned char file_memory[sizeof(client::File)];
  char path[PATH_MAX];                      // canonical, absolute

  static constexpr std::uint64_t kLookAtSource = 1;  // never what a word rests at
  client::File& file() { return *reinterpret_cast<client::File*>(file_memory); }
  std::uint64_t size() const { return facts.size; }
};

namespace descriptors_detail {
// Bits 0-8 description + 1, bit 9 close-on-exec, bits 10-31 generation. 0: not ours.
inline constexpr std::uint32_t kCloseOnExec = 1u << 9;
extern std::atomic<std::uint32_t> table[kTable];
}  // namespace descriptors_detail

// The question of every wrapper. A number that is foreign costs one load.
inline bool IsOurs(int fd) {
  return static_cast<unsigned>(fd) < static_cast<unsigned>(kTable) && descriptors_detail::table[fd].load(std::memory_order_relaxed) != 0;
}

// Keeps a description while a call uses it.
class Using {
 public:
  explicit Using(int fd);
  ~Using() {
    if (description_ != nullptr) Leave(*description_);
  }
  Using(const Using&) = delete;
  Using& operator=(const Using&) = delete;
  explicit operator bool() const { return description_ != nullptr; }
  Description& operator*() const { return *description_; }
  Description* operator->() const { return description_; }

  static void Leave(Description& description);

 private:
  Description* description_ = nullptr;
};

// Makes the placeholder; false: descriptors of ours cannot be had in this process.
bool MakePlaceholder();
// Whether the kernel has a placeholder at that number. One system call.
bool ShowsPlaceholder(int fd);
// Another one, at `lowest` or above: a number that is set aside. Or -errno.
int PlaceholderFrom(int lowest);
// The process needs all numbers itself: those that are closed are kept no more, from now on. Whether there is one more by that.
bool StopKeepingIdle();
// Gives up the placeholder that others are made of; the next one makes it anew. Whether it was there.
// No descriptor of ours is open.
bool GivePlaceholderBack();
// From where on descriptors of the core itself are numbered.
int OwnBase();

// A description to be filled by the caller, with one reference, and its number-to-be; null: there is none (table full, EMFILE).
Description* NewDescription(int* fd);
// Makes it known under its number.
void Publish(Description& description, int fd, bool close_on_exec);
// Undoes NewDescription; the caller has given back what it had put in.
void Discard(Description& description, int fd);

// close: 0 or -errno.
int CloseNumber(int fd);
// POSIX: closing any descriptor of a file gives up the process's locks on it, whichever they were taken through. May wait for the source, if there are any.
void GiveUpLocks(const Description& description);
// A further number >= `lowest`, as F_DUPFD; or -errno.
int DuplicateNumber(int fd, int lowest, bool close_on_exec);
// The kernel says that `fd` is something else: forgets what it was. The number stays taken.
void ForgetNumber(int fd);
// Lets `replace` (dup2: a result, or a negative number for failure) put something else onto `fd`, which is no longer ours then. What it fails to replace stays.
template <typename Replace>
int ReplaceNumber(int fd, Replace replace);
bool CloseOnExec(int fd);
void SetCloseOnExec(int fd, bool on);

// Waits until the word says kCached and takes it: `to` is kBusy or kMaterialising. 0: the description is real or closed. The caller holds signals off.
std::uint64_t Own(Description& description, State to);
// Whether a read may be tried again (it waited), or the description has been closed under us.
bool AwaitUsable(Description& description, std::uint64_t word);

// For the conversion of a description: calls `visit(fd, close_on_exec)` for each of its numbers and takes those out of the table for which it is true. How many.
template <typename Visit>
std::uint32_t TakeNumbers(Description& description, Visit visit);
std::uint32_t EntryOf(const Description& description);

// How many descriptions are open; a hint.
std::uint32_t OpenDescriptions();
// In a forked child: threads that were inside are not here.
void ForgetThreads();

template <typename Visit>
std::uint32_t TakeNumbers(Description& description, Visit visit) {
  using namespace descriptors_detail;
  const std::uint32_t wanted = EntryOf(description);
  std::uint32_t taken = 0;
  for (int fd = 0; fd < kTable; ++fd) {
    const std::uint32_t entry = table[fd].load(std::memory_order_acquire);
    if (entry == 0 || (entry & ~kCloseOnExec) != wanted || !visit(fd, (entry & kCloseOnExec) != 0)) continue;
    const std::uint32_t last = table[fd].exchange(0, std::memory_order_acq_rel);
    if (((last ^ entry) & kCloseOnExec) != 0) raw::Call(SYS_fcntl, fd, F_SETFD, (last & kCloseOnExec) != 0 ? FD_CLOEXEC : 0);  // F_SETFD meanwhile
    ++taken;
  }
  return taken;
}

// Takes `fd` from the description whose word the caller owns (it was `word`), and gives the word back.
void TakeNumber(Description& description, int fd, std::uint64_t word);
inline void GiveWordBack(Description& description, std::uint64_t word) { description.word.store(word, std::memory_order_release); }
bool Names(int fd, const Description& description);

template <typename Replace>
int ReplaceNumber(int fd, Replace replace) {
  const raw::NoSignals no_signals;
  for (;;) {
    const Using use(fd);
    const std::uint64_t word = use ? Own(*use, State::kBusy) : 0;
    if (use && word == 0) continue;  // it is becoming something else
    if (!use) return replace();
    const int result = Names(fd, *use) ? replace() : -1;
    if (Names(fd, *use) && result >= 0) {
      TakeNumber(*use, fd, word);
      return result;
    }
    const bool again = !Names(fd, *use);
    GiveWordBack(*use, word);
    if (!again) return result;
  }
}

}  // namespace tierd::preload

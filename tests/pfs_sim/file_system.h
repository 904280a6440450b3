// The passthrough file system: turns FUSE requests into system calls on the backing directory, and into
// delayed, broken or counted answers.
//
// Metadata is read when a request arrives and answered when it is due; data is read when it is due. A
// hung request is kept as it came and runs when it is released.
// Thread rule: Receive is called by the one receiving thread; everything else by any thread. One mutex
// guards nodes, rules and settings.
#pragma once

#include <linux/fuse.h>
#include <sys/stat.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "tests/pfs_sim/counters.h"
#include "tests/pfs_sim/faults.h"
#include "tests/pfs_sim/nodes.h"
#include "tests/pfs_sim/reply.h"
#include "tests/pfs_sim/scheduler.h"

namespace pfs_sim {

struct FileSystemOptions {
  uint32_t timeout_ms = 1000;  // of entries and attributes in the kernel; fixed for the mount's life
  bool keep_cache = false;     // FOPEN_KEEP_CACHE: opens do not drop cached pages
  bool direct_io = false;      // FOPEN_DIRECT_IO: every read is a request; no shared mmap
  size_t dir_fd_limit = 1024;  // directories kept open
};

// "attr_shift": attributes of matching paths differ from those of the backing file.
struct AttrShift {
  std::string path = "*";
  uint64_t ino = 0;
  uint64_t ctime_ns = 0;
  bool each = false;    // the shift grows with every answer (unstable attributes)
  uint64_t answers = 0;
};

class FileSystem {
 public:
  // Takes over `root_fd`, the backing directory; `dev_fd` stays the caller's.
  FileSystem(int root_fd, int dev_fd, const FileSystemOptions& options);
  FileSystem(const FileSystem&) = delete;
  FileSystem& operator=(const FileSystem&) = delete;

  // One message from /dev/fuse, `size` bytes.
  void Receive(const char* message, size_t size);
  // True once the kernel has sent INIT; requests may follow as soon as that is answered.
  bool initialised() const { return initialised_; }

  // Settings, all usable while requests are in flight.
  void SetLatency(Op op, uint64_t usec);
  void SetLatencyAll(uint64_t usec);  // the costed operations
  void SetStampGranularity(uint64_t nsec);
  void AddAttrShift(AttrShift shift);
  void ClearAttrShifts();
  void Hide(std::string pattern);
  void ClearHidden();
  uint64_t AddFault(FaultRule rule);
  bool RemoveFault(uint64_t id);
  void ClearFaults();
  // Lets hung requests go on (error 0) or fail; returns how many.
  size_t ReleaseHung(int error);
  Scheduler& scheduler() { return scheduler_; }

  // One JSON object on one line.
  std::string CountersJson();
  std::string PathsJson(const std::string& prefix);
  std::string StatusJson();
  void ResetCounters();

 private:
  struct Request {
    const fuse_in_header* header = nullptr;
    const char* body = nullptr;
    size_t body_size = 0;
    const FaultRule* fault = nullptr;  // the rule that changes this answer
    bool released = false;             // was hung: no rule applies again, no latency is due

    // The operation's arguments; null when the message is too short for them.
    template <typename T>
    const T* In() const {
      return body_size >= sizeof(T) ? reinterpret_cast<const T*>(body) : nullptr;
    }
    // The NUL-terminated string at body + skip; null when there is none.
    const char* Name(size_t skip) const;
  };
  // What to send, and when; no reply: nothing is sent now.
  struct Answer {
    std::unique_ptr<Reply> reply;
    std::chrono::microseconds latency{0};
    uint64_t link_bytes = 0;
  };

  Answer Dispatch(Request& request);
  bool DispatchUnanswered(const Request& request);
  const FaultRule* MatchFault(Op op, const Request& request);
  int Execute(Op op, const Request& request, Reply* reply);
  uint64_t LinkBytes(const Reply& reply);
  Node* NodeOf(const Request& request) { return nodes_.Get(request.header->nodeid); }
  void Send(Answer answer, ReplyWriter& writer);

  int Init(const Request& request, Reply* reply);
  void Forget(const Request& request);
  // Each returns 0 or an errno and fills *reply.
  int Lookup(const Request& request, Reply* reply);
  int Getattr(const Request& request, Reply* reply);
  int OpenFile(const Request& request, Reply* reply);
  int Read(const Request& request, Reply* reply);
  int Close(const Request& request);
  int Statfs(Reply* reply);
  int Lseek(const Request& request, Reply* reply);
  // file_system_dir.cc
  int Opendir(const Request& request, Reply* reply);
  int Readdir(const Request& request, Reply* reply);
  int Readlink(const Request& request, Reply* reply);
  // file_system_write.cc
  int Setattr(const Request& request, Reply* reply);
  int Create(const Request& request, Reply* reply);
  int Write(const Request& request, Reply* reply);
  int Fsync(const Request& request);
  int Fallocate(const Request& request);
  int Remove(const Request& request, int flags);
  int Mkdir(const Request& request, Reply* reply);
  int Rename(const Request& request);
  int Link(const Request& request, Reply* reply);
  int Symlink(const Request& request, Reply* reply);

  int ChangeAttributes(Node* node, const fuse_setattr_in& in);
  int Truncate(Node* node, const fuse_setattr_in& in);
  void GiveToCaller(int dir_fd, const char* name, const fuse_in_header& caller);
  int AnswerEntry(Node* parent, const std::string& name, bool frozen, fuse_entry_out* out);
  void FillAttr(Node* node, const struct stat& st, bool frozen, fuse_attr* out);
  void ShiftAttr(Node* node, fuse_attr* out);
  bool Hidden(const std::string& path) const;
  uint32_t OpenReplyFlags() const;
  int FillListing(Handle* handle, const fuse_read_in& in, std::vector<char>* out);
  bool HoldsStale() const;

  const FileSystemOptions options_;
  const int dev_fd_;
  Counters counters_;
  Scheduler scheduler_;
  ReplyWriter receiver_writer_;
  std::atomic<bool> initialised_ = false;

  std::mutex mutex_;
  // Guarded by mutex_.
  uint32_t init_flags_ = 0;  // as the kernel was answered
  NodeTable nodes_;
  FaultTable faults_;
  std::array<uint64_t, kOpCount> latency_us_{};
  uint64_t stamp_granularity_ns_ = 1;
  std::vector<AttrShift> attr_shifts_;
  std::vector<std::string> hidden_;
  std::vector<std::vector<char>> hung_;              // whole messages
  std::unordered_map<uint64_t, fuse_attr> frozen_;  // by inode: what stale_attr rules hold on to
};

}  // namespace pfs_sim

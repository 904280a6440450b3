#include "tests/pfs_sim/file_system.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <utility>

namespace pfs_sim {
namespace {

constexpr uint32_t kMaxBytes = 1 << 20;  // of one read or write request
constexpr uint32_t kPageSize = 4096;
// Background requests are read-ahead and releases: the kernel's default of 12 would be the bottleneck.
constexpr uint16_t kMaxBackground = 4096;

Op OpOf(uint32_t opcode) {
  switch (opcode) {
    case FUSE_LOOKUP: return Op::kLookup;
    case FUSE_GETATTR: return Op::kGetattr;
    case FUSE_OPEN: return Op::kOpen;
    case FUSE_READ: return Op::kRead;
    case FUSE_READDIR: return Op::kReaddir;
    case FUSE_READLINK: return Op::kReadlink;
    case FUSE_SETATTR: return Op::kSetattr;
    case FUSE_CREATE: return Op::kCreate;
    case FUSE_WRITE: return Op::kWrite;
    case FUSE_FSYNC:
    case FUSE_FSYNCDIR: return Op::kFsync;
    case FUSE_FALLOCATE: return Op::kFallocate;
    case FUSE_UNLINK: return Op::kUnlink;
    case FUSE_RMDIR: return Op::kRmdir;
    case FUSE_MKDIR:
    case FUSE_MKNOD: return Op::kMkdir;
    case FUSE_RENAME:
    case FUSE_RENAME2: return Op::kRename;
    case FUSE_LINK: return Op::kLink;
    case FUSE_SYMLINK: return Op::kSymlink;
    case FUSE_OPENDIR: return Op::kOpendir;
    case FUSE_STATFS: return Op::kStatfs;
    case FUSE_LSEEK: return Op::kLseek;
    case FUSE_RELEASE:
    case FUSE_RELEASEDIR: return Op::kRelease;
    default: return Op::kOther;
  }
}

// Where the (new) name stands in the body of requests that carry one below header.nodeid; -1: none.
int NameAt(uint32_t opcode) {
  switch (opcode) {
    case FUSE_LOOKUP:
    case FUSE_UNLINK:
    case FUSE_RMDIR:
    case FUSE_SYMLINK: return 0;
    case FUSE_CREATE: return sizeof(fuse_create_in);
    case FUSE_MKDIR: return sizeof(fuse_mkdir_in);
    case FUSE_MKNOD: return sizeof(fuse_mknod_in);
    case FUSE_LINK: return sizeof(fuse_link_in);
    case FUSE_RENAME: return sizeof(fuse_rename_in);
    case FUSE_RENAME2: return sizeof(fuse_rename2_in);
    default: return -1;
  }
}

}  // namespace

const char* FileSystem::Request::Name(size_t skip) const {
  if (skip >= body_size || memchr(body + skip, 0, body_size - skip) == nullptr) return nullptr;
  return body + skip;
}

FileSystem::FileSystem(int root_fd, int dev_fd, const FileSystemOptions& options)
    : options_(options),
      dev_fd_(dev_fd),
      scheduler_(dev_fd, counters_),
      receiver_writer_(dev_fd, counters_),
      nodes_(root_fd, options.dir_fd_limit) {}

void FileSystem::Receive(const char* message, size_t size) {
  Request request;
  if (size < sizeof(fuse_in_header)) return;
  request.header = reinterpret_cast<const fuse_in_header*>(message);
  request.body = message + sizeof(fuse_in_header);
  request.body_size = size - sizeof(fuse_in_header);
  if (DispatchUnanswered(request)) return;
  Answer answer;
  {
    const std::lock_guard lock(mutex_);
    answer = Dispatch(request);
  }
  Send(std::move(answer), receiver_writer_);
}

void FileSystem::Send(Answer answer, ReplyWriter& writer) {
  if (answer.reply == nullptr) return;
  scheduler_.Submit(std::move(answer.reply), answer.latency, answer.link_bytes, writer);
}

// The messages that the kernel expects no reply to.
bool FileSystem::DispatchUnanswered(const Request& request) {
  switch (request.header->opcode) {
    case FUSE_FORGET:
    case FUSE_BATCH_FORGET:
      Forget(request);
      return true;
    case FUSE_INTERRUPT:
      ++counters_.interrupts;
      return true;
    default:
      return false;
  }
}

// mutex_ is held. The request's outcome; without a reply when it hangs.
FileSystem::Answer FileSystem::Dispatch(Request& request) {
  const Op op = OpOf(request.header->opcode);
  if (!request.released) {
    counters_.Begin(op);
    request.fault = MatchFault(op, request);
  }
  Answer answer;
  if (request.fault != nullptr && request.fault->kind == FaultKind::kHang) {
    const auto* message = reinterpret_cast<const char*>(request.header);
    hung_.emplace_back(message, message + sizeof(fuse_in_header) + request.body_size);
    return answer;
  }
  answer.reply = std::make_unique<Reply>();
  answer.reply->unique = request.header->unique;
  answer.reply->op = op;
  if (request.fault != nullptr && request.fault->kind == FaultKind::kErrno) {
    answer.reply->error = request.fault->error;
  } else {
    answer.reply->error = Execute(op, request, answer.reply.get());
  }
  if (!request.released) answer.latency = std::chrono::microseconds(latency_us_[Index(op)]);
  if (request.fault != nullptr && request.fault->kind == FaultKind::kDelay) {
    answer.latency += std::chrono::microseconds(request.fault->delay_us);
  }
  answer.link_bytes = LinkBytes(*answer.reply);
  return answer;
}

const FaultRule* FileSystem::MatchFault(Op op, const Request& request) {
  if (faults_.empty() || op == Op::kOther) return nullptr;
  const int name_at = NameAt(request.header->opcode);
  const char* name = name_at < 0 ? nullptr : request.Name(static_cast<size_t>(name_at));
  Node* node = NodeOf(request);
  const std::string path = name == nullptr ? nodes_.PathOf(node) : nodes_.PathOf(node, name);
  const FaultRule* rule = faults_.Match(op, path);
  if (rule != nullptr) ++counters_.faults;
  return rule;
}

// What a read will bring, for the bandwidth limit; asked of the backing file only when one is set.
uint64_t FileSystem::LinkBytes(const Reply& reply) {
  if (!reply.is_read || reply.error != 0 || scheduler_.bandwidth() == 0) return 0;
  struct stat st {};
  if (fstat(reply.read.fd, &st) != 0) return 0;
  const auto size = static_cast<uint64_t>(st.st_size);
  if (reply.read.offset >= size) return 0;
  return std::min<uint64_t>(reply.read.size, size - reply.read.offset);
}

int FileSystem::Execute(Op op, const Request& request, Reply* reply) {
  switch (op) {
    case Op::kLookup: return Lookup(request, reply);
    case Op::kGetattr: return Getattr(request, reply);
    case Op::kOpen: return OpenFile(request, reply);
    case Op::kRead: return Read(request, reply);
    case Op::kReaddir: return Readdir(request, reply);
    case Op::kReadlink: return Readlink(request, reply);
    case Op::kSetattr: return Setattr(request, reply);
    case Op::kCreate: return Create(request, reply);
    case Op::kWrite: return Write(request, reply);
    case Op::kFsync: return Fsync(request);
    case Op::kFallocate: return Fallocate(request);
    case Op::kUnlink: return Remove(request, 0);
    case Op::kRmdir: return Remove(request, AT_REMOVEDIR);
    case Op::kMkdir: return Mkdir(request, reply);
    case Op::kRename: return Rename(request);
    case Op::kLink: return Link(request, reply);
    case Op::kSymlink: return Symlink(request, reply);
    case Op::kOpendir: return Opendir(request, reply);
    case Op::kStatfs: return Statfs(reply);
    case Op::kLseek: return Lseek(request, reply);
    case Op::kRelease: return Close(request);
    case Op::kOther:
    case Op::kCount: break;
  }
  return request.header->opcode == FUSE_INIT ? Init(request, reply) : ENOSYS;
}

int FileSystem::Init(const Request& request, Reply* reply) {
  // Kernels before 7.36 send a shorter message.
  if (request.body_size < offsetof(fuse_init_in, flags2)) return EPROTO;
  fuse_init_in in{};
  memcpy(&in, request.body, std::min(sizeof(in), request.body_size));
  if (in.major != FUSE_KERNEL_VERSION) return EPROTO;
  auto& out = reply->SetOut<fuse_init_out>();
  out.major = FUSE_KERNEL_VERSION;
  out.minor = std::min<uint32_t>(in.minor, FUSE_KERNEL_MINOR_VERSION);
  out.max_readahead = std::max(in.max_readahead, kMaxBytes);
  out.flags = in.flags & (FUSE_ASYNC_READ | FUSE_BIG_WRITES | FUSE_PARALLEL_DIROPS | FUSE_ASYNC_DIO |
                          FUSE_AUTO_INVAL_DATA | FUSE_MAX_PAGES);
  out.max_background = kMaxBackground;
  out.congestion_threshold = kMaxBackground / 4 * 3;
  out.max_write = kMaxBytes;
  out.max_pages = kMaxBytes / kPageSize;
  out.time_gran = 1;
  init_flags_ = out.flags;
  initialised_ = true;
  return 0;
}

void FileSystem::Forget(const Request& request) {
  const std::lock_guard lock(mutex_);
  if (request.header->opcode == FUSE_FORGET) {
    const auto* in = request.In<fuse_forget_in>();
    if (in != nullptr) nodes_.Forget(NodeOf(request), in->nlookup);
    ++counters_.forgets;
    return;
  }
  const auto* in = request.In<fuse_batch_forget_in>();
  if (in == nullptr) return;
  const auto* one = reinterpret_cast<const fuse_forget_one*>(in + 1);
  const size_t fits = (request.body_size - sizeof(*in)) / sizeof(*one);
  for (size_t i = 0; i < std::min<size_t>(in->count, fits); ++i) {
    nodes_.Forget(nodes_.Get(one[i].nodeid), one[i].nlookup);
    ++counters_.forgets;
  }
}

int FileSystem::Lookup(const Request& request, Reply* reply) {
  const char* name = request.Name(0);
  if (name == nullptr) return EINVAL;
  const bool frozen = request.fault != nullptr && request.fault->kind == FaultKind::kStaleAttr;
  return AnswerEntry(NodeOf(request), name, frozen, &reply->SetOut<fuse_entry_out>());
}

int FileSystem::AnswerEntry(Node* parent, const std::string& name, bool frozen,
                            fuse_entry_out* out) {
  if (!hidden_.empty() && Hidden(nodes_.PathOf(parent, name))) return ENOENT;
  const int dir_fd = nodes_.DirFd(parent);
  if (dir_fd < 0) return -dir_fd;
  struct stat st {};
  if (fstatat(dir_fd, name.c_str(), &st, AT_SYMLINK_NOFOLLOW) != 0) return errno;
  Node* node = nodes_.Remember(parent, name, st);
  out->nodeid = NodeTable::IdOf(node);
  out->entry_valid = out->attr_valid = options_.timeout_ms / 1000;
  out->entry_valid_nsec = out->attr_valid_nsec = options_.timeout_ms % 1000 * 1000000;
  FillAttr(node, st, frozen, &out->attr);
  return 0;
}

int FileSystem::Getattr(const Request& request, Reply* reply) {
  Node* node = NodeOf(request);
  struct stat st {};
  const int result = nodes_.Stat(node, &st);
  if (result != 0) return -result;
  auto& out = reply->SetOut<fuse_attr_out>();
  out.attr_valid = options_.timeout_ms / 1000;
  out.attr_valid_nsec = options_.timeout_ms % 1000 * 1000000;
  const bool frozen = request.fault != nullptr && request.fault->kind == FaultKind::kStaleAttr;
  FillAttr(node, st, frozen, &out.attr);
  return 0;
}

int FileSystem::OpenFile(const Request& request, Reply* reply) {
  const auto* in = request.In<fuse_open_in>();
  if (in == nullptr) return EINVAL;
  Node* node = NodeOf(request);
  ++node->counters.opens;
  // The kernel turns O_APPEND into offsets and O_TRUNC into SETATTR; our buffer is not for O_DIRECT.
  const int fd = nodes_.Open(node, static_cast<int>(in->flags) & (O_ACCMODE | O_SYNC));
  if (fd < 0) return -fd;
  auto* handle = new pfs_sim::Handle;
  handle->node = node;
  handle->fd = fd;
  nodes_.AddHandle(handle);
  auto& out = reply->SetOut<fuse_open_out>();
  out.fh = reinterpret_cast<uint64_t>(handle);
  out.open_flags = OpenReplyFlags();
  return 0;
}

uint32_t FileSystem::OpenReplyFlags() const {
  return (options_.keep_cache ? FOPEN_KEEP_CACHE : 0) | (options_.direct_io ? FOPEN_DIRECT_IO : 0);
}

int FileSystem::Read(const Request& request, Reply* reply) {
  const auto* in = request.In<fuse_read_in>();
  if (in == nullptr) return EINVAL;
  Handle* handle = HandleOf(in->fh);
  reply->is_read = true;
  reply->read.fd = handle->fd;
  reply->read.size = std::min(in->size, kMaxBytes);
  reply->read.offset = in->offset;
  reply->read.path = &handle->node->counters;
  if (request.fault == nullptr) return 0;
  reply->read.flip = request.fault->kind == FaultKind::kFlip;
  reply->read.flip_bit = request.fault->bit;
  reply->read.cut = request.fault->kind == FaultKind::kShort;
  reply->read.cut_bytes = request.fault->bytes;
  return 0;
}

int FileSystem::Close(const Request& request) {
  const auto* in = request.In<fuse_release_in>();
  if (in == nullptr) return EINVAL;
  nodes_.RemoveHandle(HandleOf(in->fh));
  return 0;
}

int FileSystem::Statfs(Reply* reply) {
  struct statvfs st {};
  if (fstatvfs(nodes_.DirFd(nodes_.root()), &st) != 0) return errno;
  fuse_kstatfs& out = reply->SetOut<fuse_statfs_out>().st;
  out.blocks = st.f_blocks;
  out.bfree = st.f_bfree;
  out.bavail = st.f_bavail;
  out.files = st.f_files;
  out.ffree = st.f_ffree;
  out.bsize = static_cast<uint32_t>(st.f_bsize);
  out.frsize = static_cast<uint32_t>(st.f_frsize);
  out.namelen = static_cast<uint32_t>(st.f_namemax);
  return 0;
}

int FileSystem::Lseek(const Request& request, Reply* reply) {
  const auto* in = request.In<fuse_lseek_in>();
  if (in == nullptr) return EINVAL;
  const off_t at = lseek(HandleOf(in->fh)->fd, static_cast<off_t>(in->offset),
                         static_cast<int>(in->whence));
  if (at < 0) return errno;
  reply->SetOut<fuse_lseek_out>().offset = static_cast<uint64_t>(at);
  return 0;
}

}  // namespace pfs_sim

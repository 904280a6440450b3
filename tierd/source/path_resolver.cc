#include "tierd/source/path_resolver.h"

#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <limits>
#include <map>
#include <new>
#include <unordered_map>
#include <utility>

#include "tierd/source/blocking_pool.h"
#include "tierd/source/open_beneath.h"

namespace tierd::source {
namespace {

using ResolveCallback = std::function<void(const Result<ResolvedPath>&)>;

Status Leaves(std::string_view path) {
  return Status(Code::kPermission, "path " + std::string(path) + " leaves the source", EXDEV);
}

// Neither ".", ".." nor an empty component: a name the kernel would give back as it is if no link is on the way.
bool IsCanonicalText(std::string_view path) {
  if (path.empty()) return true;
  while (true) {
    const std::size_t slash = path.find('/');
    const std::string_view part = path.substr(0, slash);
    if (part.empty() || part == "." || part == "..") return false;
    if (slash == std::string_view::npos) return true;
    path.remove_prefix(slash + 1);
  }
}

std::string NameOf(int fd) {
  char link[32];
  std::snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  std::array<char, PATH_MAX> name;
  const ssize_t length = ::readlink(link, name.data(), name.size());
  return length <= 0 ? std::string() : std::string(name.data(), static_cast<std::size_t>(length));
}

// Absolute links below the root, and ".." through the root's parents, cannot be followed beneath the root; by the absolute
// name they can. Where that leads is judged by the caller.
OpenedFile OpenAbsolute(const std::string& path) {
  struct open_how how {};
  how.flags = O_PATH | O_CLOEXEC;
  how.resolve = RESOLVE_NO_MAGICLINKS;
  OpenedFile opened;
  long fd = ::syscall(SYS_openat2, AT_FDCWD, path.c_str(), &how, sizeof how);
  if (fd < 0 && (errno == ENOSYS || errno == EPERM)) fd = ::open(path.c_str(), O_PATH | O_CLOEXEC);
  opened.error = fd < 0 ? errno : 0;
  opened.fd.Reset(static_cast<int>(fd));
  return opened;
}

OpenedFile OpenAlias(const Source& source, const std::string& relative) {
  OpenedFile opened = OpenBeneathFollowing(source.root_fd(), relative, O_PATH);
  if (opened.error != EXDEV && opened.error != ENOSYS && opened.error != EPERM) return opened;
  return OpenAbsolute(source.canonical_root() + "/" + relative);
}

// The path relative to the root, from what a client gave.
Result<std::string> Relative(const Source& source, std::string_view path) {
  if (path.size() >= PATH_MAX) return Status(Code::kInvalid, "path of " + std::to_string(path.size()) + " bytes is too long", ENAMETOOLONG);
  if (path.find('\0') != std::string_view::npos) return Status(Code::kInvalid, "path contains a NUL byte", EINVAL);
  if (!path.starts_with('/')) return std::string(path);
  std::string_view relative;
  if (RelativeTo(source.root(), path, &relative) || RelativeTo(source.canonical_root(), path, &relative)) {
    return std::string(relative);
  }
  return Status(Code::kInvalid, "path " + std::string(path) + " is not below the source " + source.root(), EINVAL);
}

Result<ResolvedPath> ResolveAlias(const Source& source, const std::string& relative) {
  const OpenedFile opened = OpenAlias(source, relative);
  if (opened.error == EXDEV) return Leaves(relative);
  if (opened.error != 0) return Status::FromErrno(opened.error, "resolve " + relative);
  // The root is asked again: it may have been renamed since it was opened.
  const std::string root = NameOf(source.root_fd());
  const std::string target = NameOf(opened.fd.get());
  if (root.empty() || target.empty()) return Status(Code::kUnsupported, "/proc is not mounted", ENOENT);
  std::string_view below;
  if (!RelativeTo(root, target, &below)) return Leaves(relative);
  ResolvedPath resolved;
  resolved.canonical = std::string(below);
  resolved.was_alias = true;
  io::FileStat through_alias;
  if (const int error = StatAt(opened.fd.get(), "", false, &through_alias); error != 0) {
    return Status::FromErrno(error, "stat " + relative);
  }
  // The name may have changed since, or be one that the kernel made up ("... (deleted)"): it counts only if it leads to
  // the same file without any link.
  const OpenedFile again = OpenBeneath(source.root_fd(), resolved.canonical, O_PATH);
  if (again.error == EXDEV) return Leaves(relative);
  if (again.error != 0) return Status::FromErrno(again.error, "resolve " + relative);
  resolved.stat_sent_ns = SystemClock().PreciseNs();
  if (const int error = StatAt(again.fd.get(), "", false, &resolved.stat); error != 0) {
    return Status::FromErrno(error, "stat " + relative);
  }
  if (resolved.stat.dev != through_alias.dev || resolved.stat.ino != through_alias.ino) {
    return Status::FromErrno(ENOENT, "resolve " + relative);
  }
  return resolved;
}

}  // namespace

Result<ResolvedPath> ResolvePath(const Source& source, std::string_view path) {
  Result<std::string> relative = Relative(source, path);
  if (!relative.ok()) return relative.status();
  if (!IsCanonicalText(*relative)) return ResolveAlias(source, *relative);
  const OpenedFile opened = OpenBeneath(source.root_fd(), *relative, O_PATH);
  if (opened.error == ELOOP) return ResolveAlias(source, *relative);
  if (opened.error == EXDEV) return Leaves(*relative);
  if (opened.error != 0) return Status::FromErrno(opened.error, "resolve " + *relative);
  ResolvedPath resolved;
  resolved.canonical = *relative;
  resolved.stat_sent_ns = SystemClock().PreciseNs();
  if (const int error = StatAt(opened.fd.get(), "", false, &resolved.stat); error != 0) {
    return Status::FromErrno(error, "stat " + *relative);
  }
  return resolved;
}

struct PathResolver::State {
  struct Waiter {
    ResolveCallback done;
    std::int64_t deadline_ns = 0;
    std::shared_ptr<std::atomic<bool>> gone;  // shared with the task, which need not ask then
  };
  State(std::shared_ptr<const Source> resolver_source, const Clock& resolver_clock, const ResolverOptions& resolver_options)
      : source(std::move(resolver_source)),
        clock(resolver_clock),
        options(resolver_options),
        pool(resolver_clock, PoolOptions{resolver_options.threads, resolver_options.max_replacements,
                                         resolver_options.hung_after_ns, resolver_options.queue_max, false}) {}

  void Finish(std::uint64_t id, const Result<ResolvedPath>& result) {
    const auto found = waiters.find(id);
    if (found == waiters.end()) return;  // timed out before
    const Waiter waiter = std::move(found->second);
    waiters.erase(found);
    *waiter.gone = true;
    if (waiter.deadline_ns != 0) RemoveDeadline(waiter.deadline_ns, id);
    waiter.done(result);
  }
  void RemoveDeadline(std::int64_t deadline_ns, std::uint64_t id) {
    auto [begin, end] = deadlines.equal_range(deadline_ns);
    const auto it = std::find_if(begin, end, [id](const auto& d) { return d.second == id; });
    if (it != end) deadlines.erase(it);
  }

  std::shared_ptr<const Source> source;  // shared with the workers
  const Clock& clock;
  const ResolverOptions options;
  std::unordered_map<std::uint64_t, Waiter> waiters;
  std::multimap<std::int64_t, std::uint64_t> deadlines;
  std::uint64_t last_id = 0;
  BlockingPool pool;  // last: its closures refer to the rest
};

PathResolver::PathResolver(std::shared_ptr<const Source> source, const Clock& clock, const ResolverOptions& options)
    : state_(std::make_unique<State>(std::move(source), clock, options)) {}

PathResolver::~PathResolver() = default;

void PathResolver::Resolve(std::string path, std::int64_t deadline_ns, ResolveCallback done) {
  State* state = state_.get();
  const std::uint64_t id = ++state->last_id;
  const bool full = state->waiters.size() >= state->options.queue_max;
  auto gone = std::make_shared<std::atomic<bool>>(false);
  state->waiters.emplace(id, State::Waiter{std::move(done), deadline_ns, gone});
  if (deadline_ns != 0) state->deadlines.emplace(deadline_ns, id);
  Status refused = full ? Status(Code::kBusy, "too many paths wait to be resolved") : Status::Ok();
  if (refused.ok()) {
    refused = state->pool.Submit(0, [state, id, gone, source = state->source, budget = state->options.budget, path = std::move(path)](TaskContext& context) {
      while (!*gone && !context.stopping() && !context.Draw(*budget, false)) {
      }
      if (*gone || context.stopping()) return;
      try {
        auto result = std::make_shared<const Result<ResolvedPath>>(ResolvePath(*source, path));
        context.Post([state, id, result] { state->Finish(id, *result); });
      } catch (const std::bad_alloc&) {
        context.PostSurely([state, id] { state->Finish(id, Status(Code::kNoSpace, "out of memory", ENOMEM)); });
      }
    });
  }
  if (!refused.ok()) state->pool.Post([state, id, refused] { state->Finish(id, refused); });
}

std::size_t PathResolver::Poll(std::size_t budget) { return state_->pool.Poll(budget); }

void PathResolver::Tick(std::int64_t now_ns) {
  state_->pool.Tick(now_ns);
  while (!state_->deadlines.empty() && state_->deadlines.begin()->first <= now_ns) {
    state_->Finish(state_->deadlines.begin()->second, Status(Code::kTimeout, "resolving the path took too long"));
  }
}

std::int64_t PathResolver::next_tick_ns() const {
  return state_->deadlines.empty() ? std::numeric_limits<std::int64_t>::max() : state_->deadlines.begin()->first;
}

int PathResolver::event_fd() const { return state_->pool.event_fd(); }
std::size_t PathResolver::pending() const { return state_->waiters.size(); }
std::size_t PathResolver::hung_workers() const { return state_->pool.hung(); }

}  // namespace tierd::source

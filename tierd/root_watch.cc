#include "tierd/root_watch.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <boost/asio/post.hpp>

#include <algorithm>
#include <chrono>
#include <thread>

#include "tierd/base/unique_fd.h"
#include "tierd/engine/out_of_memory.h"

namespace tierd {
namespace {

constexpr std::chrono::seconds kSettle{1};

// The first that names another directory or nothing, or "". A root that cannot be reached is no proof of anything. Asks no file server.
std::string MovedRoot(const std::vector<RootWatch::Root>& roots) {
  for (const RootWatch::Root& root : roots) {
    struct statx st {};
    if (::statx(AT_FDCWD, root.path.c_str(), AT_STATX_DONT_SYNC | AT_NO_AUTOMOUNT, STATX_INO, &st) != 0) {
      if (errno == ENOENT || errno == ENOTDIR) return root.path;
      continue;
    }
    if (::makedev(st.stx_dev_major, st.stx_dev_minor) != root.dev || st.stx_ino != root.ino) return root.path;
  }
  return "";
}

}  // namespace

void RootWatch::Watch(std::vector<Root> roots, std::chrono::milliseconds bound, std::function<void(const std::string&)> moved) {
  roots_ = std::move(roots);
  every_ = std::max<std::chrono::milliseconds>(bound - 2 * kSettle, kSettle);  // before the look, and before the one that confirms it
  moved_ = std::move(moved);
  UniqueFd fd(::open("/proc/self/mountinfo", O_RDONLY | O_CLOEXEC));
  boost::system::error_code unusable;
  if (fd.valid() && !mounts_.assign(fd.get(), unusable)) (void)fd.Release();
  AwaitChange();
  AwaitPeriod();
  LookSoon();  // it may have changed between the opening of the sources and now
}

void RootWatch::AwaitChange() {
  if (!mounts_.is_open()) return;
  mounts_.async_wait(boost::asio::posix::stream_descriptor::wait_error, [this](const boost::system::error_code& error) {
    if (error) return;
    again_ = true;
    LookSoon();
    AwaitChange();
  });
}

void RootWatch::AwaitPeriod() {
  period_.expires_after(every_);
  period_.async_wait([this](const boost::system::error_code& error) {
    if (error) return;
    LookSoon();
    AwaitPeriod();
  });
}

void RootWatch::LookSoon() {
  if (due_) return;
  due_ = true;
  timer_.expires_after(kSettle);
  timer_.async_wait([this](const boost::system::error_code& error) {
    if (!error) Look();
  });
}

void RootWatch::Look() {
  again_ = false;
  const bool begun = engine::Survives([this] {
    std::thread([this, roots = roots_, alive = alive_, &loop = loop_] {
      (void)engine::Survives([&] {
        std::string path = MovedRoot(roots);
        boost::asio::post(loop, [this, alive, path = std::move(path)] {
          if (*alive) Seen(path);
        });
      });
    }).detach();
  });
  due_ = begun;
  if (!begun) LookSoon();
}

void RootWatch::Seen(const std::string& path) {
  due_ = false;
  if (!path.empty() && path == suspect_) return moved_(path);
  suspect_ = path;
  if (again_ || !path.empty()) LookSoon();
}

}  // namespace tierd

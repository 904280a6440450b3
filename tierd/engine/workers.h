// A few threads for what may block or touch fresh memory (HAZARDS 5): making segments and index tables, resolving paths, statvfs.
// A job runs on a worker; its second half runs on the loop with what the first half returned.
//
// Owner: Engine. Run() is called on the loop thread. Destruction waits for the jobs that run; a job that can hang for ever (source
// I/O) does not belong here.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/thread_pool.hpp>

#include <memory>
#include <utility>

namespace tierd::engine {

class Workers {
 public:
  Workers(boost::asio::io_context& loop, unsigned threads) : loop_(loop), pool_(threads), alive_(std::make_shared<bool>(true)) {}
  ~Workers() { Stop(); }
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;

  // Drops what has not begun and waits for the jobs that run. Idempotent.
  void Stop() {
    *alive_ = false;
    pool_.stop();
    pool_.join();
  }

  // `work` returns a value (move-only is fine); `then` gets it on the loop thread, unless this object is gone by then.
  template <typename Work, typename Then>
  void Run(Work work, Then then) {
    boost::asio::post(pool_, [this, alive = alive_, work = std::move(work), then = std::move(then)]() mutable {
      // One allocation carries the value over; handlers must be movable, values need not be copyable.
      auto value = std::make_unique<decltype(work())>(work());
      boost::asio::post(loop_, [alive = std::move(alive), value = std::move(value), then = std::move(then)]() mutable {
        if (*alive) then(std::move(*value));
      });
    });
  }

 private:
  boost::asio::io_context& loop_;
  boost::asio::thread_pool pool_;
  std::shared_ptr<bool> alive_;  // shared with jobs under way: written and read on the loop thread only
};

}  // namespace tierd::engine

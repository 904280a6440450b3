// A few threads for what may block or touch fresh memory (HAZARDS 5): making segments and index tables, resolving paths, statvfs.
// A job runs on a worker; its second half runs on the loop with what the first half returned.
//
// Owner: Engine. Run() is called on the loop thread. Destruction waits for the jobs that run; a job that can hang for ever (source
// I/O) does not belong here.
#pragma once

#include <boost/asio/bind_allocator.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>

#include <functional>
#include <memory>
#include <optional>
#include <system_error>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "tierd/base/status.h"
#include "tierd/engine/loop_lag.h"
#include "tierd/engine/out_of_memory.h"

namespace tierd::engine {

class Workers {
 public:
  // `lag`, which outlives this, counts what second halves keep the loop for.
  Workers(boost::asio::io_context& loop, unsigned threads, LoopLag* lag = nullptr) : loop_(loop), lag_(lag), wanted_(threads), alive_(std::make_shared<bool>(true)) {}
  ~Workers() { Stop(); }
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;

  // Once; jobs given before wait for it. kNoSpace if not all threads can be had. (asio::thread_pool waits for ever for those that it got.)
  Status Start() {
    try {
      while (threads_.size() < wanted_) threads_.emplace_back([this] { pool_.run(); });
    } catch (const std::system_error& error) {
      return Status(Code::kNoSpace, "no thread for the workers: " + error.code().message() + "; raise the limit of processes (ulimit -u)");
    }
    return Status::Ok();
  }
  // Drops what has not begun and waits for the jobs that run. Idempotent.
  void Stop() {
    *alive_ = false;
    pool_.stop();
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
  }

  // `work` returns a value (move-only is fine); `then` gets it on the loop thread, unless this object is gone by then. Where memory runs out in `work`,
  // `then` gets a failure (kNoSpace) if the value can say so, else an empty one; where it runs out in `then`, on_lost is called.
  // False: there was no memory to begin with, neither will run. So what says "under way" is set behind this call, before which `then` cannot come.
  template <typename Work, typename Then>
  [[nodiscard]] bool Run(Work work, Then then) noexcept {
    return Survives([&] {
      auto task = std::make_unique<Task<Work, Then>>(std::move(work), std::move(then), alive_);
      boost::asio::post(pool_, [this, task = std::move(task)]() mutable {
        if (!Survives([&] { task->value.emplace(task->work()); })) task->value.emplace(Failure<decltype(task->work())>());
        const auto memory = task->memory.allocator();
        boost::asio::post(loop_, boost::asio::bind_allocator(memory, [this, task = std::move(task)]() mutable {
          if (!*task->alive) return;
          std::optional<LoopLag::Handler> handler;
          if (lag_ != nullptr) handler.emplace(*lag_, "worker_answer");
          if (!Survives([&] { task->then(std::move(*task->value)); }) && on_lost) on_lost();
        }));
      });
    });
  }

  // Nobody hears of its end on the loop, and what `work` throws ends the process.
  template <typename Work>
  [[nodiscard]] bool Run(Work work) noexcept {
    return Survives([&] { boost::asio::post(pool_, [work = std::move(work)]() mutable { (void)work(); }); });
  }

  std::function<void()> on_lost;

 private:
  // All that the way to the worker and back needs is there before it begins.
  template <typename Work, typename Then>
  struct Task {
    Task(Work the_work, Then the_then, std::shared_ptr<bool> is_alive) : work(std::move(the_work)), then(std::move(the_then)), alive(std::move(is_alive)) {}
    Work work;
    Then then;
    std::optional<decltype(std::declval<Work&>()())> value;
    std::shared_ptr<bool> alive;
    HandlerMemory memory;
  };
  template <typename Value>
  static Value Failure() {
    if constexpr (std::is_constructible_v<Value, Status>) return Value(Status(Code::kNoSpace, "out of memory"));
    else return Value{};
  }

  boost::asio::io_context& loop_;
  LoopLag* const lag_;
  const unsigned wanted_;
  boost::asio::io_context pool_;
  const boost::asio::executor_work_guard<boost::asio::io_context::executor_type> open_{pool_.get_executor()};
  std::vector<std::thread> threads_;
  std::shared_ptr<bool> alive_;  // shared with jobs under way: written and read on the loop thread only
};

}  // namespace tierd::engine

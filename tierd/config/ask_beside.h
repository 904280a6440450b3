// Asks what may hang (a directory of a dead mount) on a thread of its own, so that whoever asks can stop waiting. That thread ends when the file system lets
// it; `question` owns what it needs. Any thread. Where there is no thread to be had the question is asked in the call.
#pragma once

#include <signal.h>

#include <future>
#include <memory>
#include <system_error>
#include <thread>
#include <utility>

namespace tierd::config {

template <typename Question>
auto AskBeside(Question question) -> std::future<decltype(question())> {
  // Owners: this call and the thread.
  const auto task = std::make_shared<std::packaged_task<decltype(question())()>>(std::move(question));
  auto answer = task->get_future();
  try {
    std::thread([task] {
      sigset_t all;  // signals are for the loop thread, which may come later
      ::sigfillset(&all);
      ::pthread_sigmask(SIG_SETMASK, &all, nullptr);
      (*task)();
    }).detach();
  } catch (const std::system_error&) {
    (*task)();
  }
  return answer;
}

}  // namespace tierd::config

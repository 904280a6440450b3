#include "tierd/base/mailbox.h"

#include <sys/eventfd.h>

#include <memory>
#include <thread>
#include <utility>

#include "tierd/base/check.h"

namespace tierd {

Mailbox::Mailbox() : fd_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) { TIERD_CHECK(fd_.valid()); }

bool Mailbox::Post(Job job) {
  std::unique_ptr<Letter> letter(new Letter{std::move(job)});
  ++posting_;
  const bool open = !closed_;
  if (open) {
    ++count_;
    handed_.Push(letter.release());
    Signal();
  }
  --posting_;
  return open;
}

bool Mailbox::PostBounded(Job job, std::size_t limit) {
  for (;;) {
    const std::uint32_t turn = turn_;
    if (closed_) return false;
    if (count_ < limit) return Post(std::move(job));
    ++waiting_;
    if (count_ >= limit && !closed_) turn_.wait(turn);
    --waiting_;
  }
}

std::size_t Mailbox::Run(std::size_t budget) {
  struct AtEnd {
    ~AtEnd() { box.Rest(); }
    Mailbox& box;
  } const at_end{*this};
  std::size_t ran = 0;
  for (; ran < budget; ++ran) {
    if (first_ == nullptr) first_ = handed_.TakeAll();
    if (first_ == nullptr) break;
    const std::unique_ptr<Letter> letter(std::exchange(first_, first_->next));
    --count_;
    MakeRoom();
    letter->job();
  }
  return ran;
}

void Mailbox::Close() {
  closed_ = true;
  MakeRoom();
  // Who was inside before that has a job for us yet.
  while (posting_ != 0) std::this_thread::yield();
  for (;;) {
    if (first_ == nullptr) first_ = handed_.TakeAll();
    if (first_ == nullptr) break;
    const std::unique_ptr<Letter> letter(std::exchange(first_, first_->next));
    --count_;
  }
  Rest();
}

void Mailbox::Signal() {
  if (signalled_.exchange(true)) return;
  ::eventfd_write(fd_.get(), 1);
}

// What waits keeps the descriptor readable.
void Mailbox::Rest() {
  if (!empty() || !signalled_) return;
  eventfd_t ignored;
  if (::eventfd_read(fd_.get(), &ignored) != 0) return;  // the job was there before its signal, which is on its way
  signalled_ = false;
  if (!handed_.empty()) Signal();  // came in between, and took the descriptor for readable
}

void Mailbox::MakeRoom() {
  if (waiting_ == 0) return;
  ++turn_;
  turn_.notify_all();
}

}  // namespace tierd

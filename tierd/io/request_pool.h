// Where an engine keeps its requests: a slab that hands out and takes back objects without touching the heap once it has
// grown, and a queue threaded through them. Objects never move. Owned and used by one thread.
#pragma once

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

namespace tierd::io {

template <typename T>
class RequestPool {
 public:
  // An object in whatever state its last user left it.
  T* Take() {
    if (free_.empty()) Grow();
    T* request = free_.back();
    free_.pop_back();
    return request;
  }
  void Give(T* request) { free_.push_back(request); }

  // All objects, those given back included.
  template <typename Visitor>
  void ForEach(Visitor visit) const {
    for (const auto& block : blocks_) {
      for (std::size_t i = 0; i < kBlock; ++i) visit(block[i]);
    }
  }

 private:
  static constexpr std::size_t kBlock = 64;
  void Grow() {
    blocks_.push_back(std::make_unique<T[]>(kBlock));
    free_.reserve(blocks_.size() * kBlock);  // Give() never allocates
    for (std::size_t i = kBlock; i-- > 0;) free_.push_back(&blocks_.back()[i]);
  }

  std::vector<std::unique_ptr<T[]>> blocks_;
  std::vector<T*> free_;
};

// First in, first out, through the member `T* next`.
template <typename T>
class RequestQueue {
 public:
  bool empty() const { return head_ == nullptr; }
  std::size_t size() const { return size_; }
  T* front() const { return head_; }
  void Push(T* request) {
    request->next = nullptr;
    (head_ == nullptr ? head_ : tail_->next) = request;
    tail_ = request;
    ++size_;
  }
  T* Pop() {
    T* request = head_;
    head_ = std::exchange(request->next, nullptr);
    --size_;
    return request;
  }
  // Moves everything of `other` behind what is here.
  void Append(RequestQueue* other) {
    if (other->empty()) return;
    (head_ == nullptr ? head_ : tail_->next) = other->head_;
    tail_ = other->tail_;
    size_ += other->size_;
    *other = RequestQueue();
  }

 private:
  T* head_ = nullptr;
  T* tail_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace tierd::io

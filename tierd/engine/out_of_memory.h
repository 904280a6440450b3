// What keeps the daemon alive when memory runs out (FAULTS F16): work that throws is given up for whoever asked for it, and the loop's own handlers
// are armed again without asking for memory.
//
// The only throws there are come from allocation and from libraries; this is where they end. One that says neither that memory nor that something else of the
// kernel's has run out is a defect: it ends here too, and the log says so.
#pragma once

#include <boost/system/system_error.hpp>

#include <cstddef>
#include <exception>
#include <memory>
#include <new>
#include <system_error>
#include <utility>

namespace tierd::engine {

// One line on stderr; a defect that shows all the time is named a hundred times.
void TellOfDefect(const std::exception& thrown) noexcept;

// Runs `work`. False when memory ran out (or a library threw) on the way: the caller gives up what the work was for.
template <typename Work>
[[nodiscard]] bool Survives(Work&& work) noexcept {
  try {
    work();
    return true;
  } catch (const std::bad_alloc&) {
    return false;
  } catch (const std::system_error&) {  // no thread, no descriptor, no watch
    return false;
  } catch (const boost::system::system_error&) {
    return false;
  } catch (const std::exception& thrown) {
    TellOfDefect(thrown);
    return false;
  }
}

// Keeps a megabyte for the first allocation that fails, and those right behind it: libraries allocate where nothing may be thrown (the destructor of a JSON
// value). Called once by whoever starts the process, then once a second: it is had again by and by. False when it was not whole.
bool KeepMemoryReserve();

// Room for one pending handler of an object that always has the same one pending: what Asio would allocate for it. The library gives the room
// back before it calls the handler, which may arm itself again. A second handler at a time, or a larger one, comes from the heap.
class HandlerRoom {
 public:
  void* Take(std::size_t bytes) {
    if (taken_ || bytes > sizeof room_) return ::operator new(bytes);
    taken_ = true;
    return room_;
  }
  void Give(void* memory) noexcept {
    if (memory == room_) taken_ = false;
    else ::operator delete(memory);
  }

 private:
  alignas(std::max_align_t) std::byte room_[384];
  bool taken_ = false;
};

// For boost::asio::bind_allocator.
template <typename T>
class HandlerAllocator {
 public:
  using value_type = T;
  explicit HandlerAllocator(std::shared_ptr<HandlerRoom> room) noexcept : room_(std::move(room)) {}
  template <typename Other>
  HandlerAllocator(const HandlerAllocator<Other>& other) noexcept : room_(other.room_) {}  // NOLINT: allocators convert

  T* allocate(std::size_t count) { return static_cast<T*>(room_->Take(count * sizeof(T))); }
  void deallocate(T* memory, std::size_t) noexcept { room_->Give(memory); }
  friend bool operator==(const HandlerAllocator& a, const HandlerAllocator& b) noexcept { return a.room_ == b.room_; }

 private:
  template <typename>
  friend class HandlerAllocator;
  std::shared_ptr<HandlerRoom> room_;  // shared with the object it is for: a cancelled handler lies in the loop's queue after that is gone
};

class HandlerMemory {
 public:
  HandlerAllocator<void> allocator() const { return HandlerAllocator<void>(room_); }

 private:
  const std::shared_ptr<HandlerRoom> room_ = std::make_shared<HandlerRoom>();  // shared with pending handlers
};

}  // namespace tierd::engine

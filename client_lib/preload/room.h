// Memory for the wrappers' slow paths, which may run where there is hardly any: in a signal handler on a stack of its own, in a thread with the smallest stack there is.
//
// Any thread, signal handlers too.
#pragma once

#include <cstdint>

#include "client_lib/src/target.h"

namespace tierd::preload {

// Room for a path, taken when it is asked for: from a fixed number of them, else from the core's heap.
class Room {
 public:
  Room() = default;
  ~Room() {
    if (text_ != nullptr) Release();
  }
  Room(const Room&) = delete;
  Room& operator=(const Room&) = delete;

  // Null when there is no memory.
  client::PathText* Get() { return text_ != nullptr ? text_ : Take(); }

 private:
  client::PathText* Take();
  void Release();
  client::PathText* text_ = nullptr;
};

// In a forked child: what other threads had taken is free.
void ForgetRooms();

// Whether the core, which wants a few paths on its stack, does not fit on this one.
bool StackIsSmall();
void NoteMainStack(char** argv);  // at the start; the vector that the kernel laid there

}  // namespace tierd::preload

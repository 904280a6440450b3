// The core's slow path as the wrappers enter it: with signals held off. open, stat and read may be left by siglongjmp from a handler, and the core's locks must not stay
// behind; nor does a handler find itself on top of a call that holds them.
#pragma once

#include "client_lib/preload/raw.h"
#include "client_lib/src/thread_state.h"

namespace tierd::preload {

class SlowPath {
 public:
  bool entered() const { return slow_.entered(); }

 private:
  const raw::NoSignals no_signals_;
  const client::SlowPath slow_;
};

}  // namespace tierd::preload

#include "tierd/base/read_capability.h"

#include <linux/capability.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace tierd {

bool ReadsDespiteModes(pid_t pid) {
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, pid};
  __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3] = {};
  if (::syscall(SYS_capget, &header, data) != 0) return false;
  constexpr unsigned kEither = 1u << CAP_DAC_OVERRIDE | 1u << CAP_DAC_READ_SEARCH;
  return (data[0].effective & kEither) != 0;
}

}  // namespace tierd

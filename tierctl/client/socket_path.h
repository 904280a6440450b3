// Where the daemon's control socket is, found as libtier finds its own: option, $TIERD_SOCKET, $XDG_RUNTIME_DIR/tierd, /tmp/tierd-UID.
#pragma once

#include <cstdint>
#include <string>

#include "tierd/base/status.h"
#include "tierd/config/config.h"

namespace tierctl {

// `option`: what --socket said, "" if it was not given: the path of the daemon's socket, of its control socket or of the directory of both. Both it and $TIERD_SOCKET may name the
// clients' socket (of SOCK_SEQPACKET): the control socket is then control.sock beside it.
// kInvalid: $TIERD_SOCKET names a directory, which libtier does not take. kPermission: the directory in /tmp is not ours alone (planted).
tierd::Result<std::string> FindControlSocket(const std::string& option, const tierd::config::GetEnvironment& environment, std::uint32_t uid);

// Where clients connect to the daemon that answers at `control`: what `option` or $TIERD_SOCKET names if that is a clients' socket, else the usual name beside it.
std::string ClientSocketOf(const std::string& control, const std::string& option, const tierd::config::GetEnvironment& environment);

}  // namespace tierctl

#include "tierd/server/control.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <utility>

#include "tierd/server/seqpacket.h"

namespace tierd::server {

using local = boost::asio::local::stream_protocol;

Control::Control(boost::asio::io_context& loop, ControlApi& api, const HttpLimits& limits)
    : loop_(loop), api_(api), door_(loop, limits, [this](int descriptor) { return Admit(descriptor); }) {}

// The user's own processes, root's not.
Control::Door::Handler Control::Admit(int descriptor) {
  ucred peer{};
  socklen_t length = sizeof peer;
  const bool known = ::getsockopt(descriptor, SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0;
  if (!known || peer.uid != ::geteuid()) return {};
  return [&api = api_, caller = ControlApi::Caller{peer.pid}](const HttpRequest& request, Door::Reply reply) {
    api.Handle(request.method, request.target, request.body, caller, std::move(reply));
  };
}

Status Control::Listen(const std::string& path) {
  boost::system::error_code error;
  const local::endpoint endpoint(path);
  local::acceptor acceptor(loop_);
  acceptor.open(endpoint.protocol(), error);
  if (!error) acceptor.bind(endpoint, error);
  if (error == boost::asio::error::address_in_use) {
    local::socket probe(loop_);
    boost::system::error_code refused;
    probe.connect(endpoint, refused);
    if (!refused) return Status(Code::kBusy, "another tierd listens on " + path);
    ::unlink(path.c_str());
    error.clear();
    acceptor.bind(endpoint, error);
  }
  // No request carries descriptors, and this thread would close them. Older kernels do that.
  if (!error) (void)RefuseDescriptors(acceptor.native_handle());
  if (!error) error = door_.Open(std::move(acceptor));
  if (error) return Status(Code::kIo, "listen on " + path + ": " + error.message());
  ::chmod(path.c_str(), 0600);
  path_ = path;
  return Status::Ok();
}

void Control::Close() {
  if (door_.Close()) ::unlink(path_.c_str());
}

}  // namespace tierd::server

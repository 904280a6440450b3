# /etc/profile.d/tierd.sh: programs of a login find the daemon that runs for them (tierd@USER.service). A daemon of one's own (user unit) is found without this.
if [ -z "${TIERD_SOCKET:-}" ] && [ -S "/run/tierd/$(id -un)/tierd.sock" ]; then
  TIERD_SOCKET="/run/tierd/$(id -un)/tierd.sock"
  export TIERD_SOCKET
fi

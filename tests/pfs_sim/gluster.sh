#!/bin/bash
# A real parallel file system on loopback: GlusterFS with two bricks, files distributed over them.
#
#   gluster.sh start DIR [--delay-us N] [--owner PID]   mounts on DIR/mnt; bricks in DIR/brick1, DIR/brick2
#   gluster.sh stop DIR                                 unmounts, ends the daemons; the bricks' files stay
#   gluster.sh pause DIR N | resume DIR N               stops (SIGSTOP) or continues brick N: a hung server
#   gluster.sh kill DIR N                               ends brick N for good: a dead server
#
# --delay-us delays lookup, stat, open, read and readdir in the bricks; with --owner everything is torn
# down when that process ends. Raw volume files, no glusterd; ports on 127.0.0.1 only; root only.
# Exit codes: 0 done, 1 failed, 64 usage, 77 not possible here (with the reason on stderr).
set -u

fail() { echo "gluster.sh: $1" >&2; exit "${2:-1}"; }

usage() { fail "usage: gluster.sh start DIR [--delay-us N] [--owner PID] | stop DIR | pause|resume|kill DIR N" 64; }

# The first port from $1 on that nobody listens on.
free_port() {
  local port=$1
  while (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; do port=$((port + 1)); done
  echo "$port"
}

write_brick_volume() {  # FILE DIRECTORY PORT DELAY_US
  local below=locks
  {
    printf 'volume posix\n  type storage/posix\n  option directory %s\nend-volume\n' "$2"
    printf 'volume locks\n  type features/locks\n  subvolumes posix\nend-volume\n'
    if [ "$4" -gt 0 ]; then
      below=delay
      printf 'volume delay\n  type debug/delay-gen\n  option delay-duration %s\n' "$4"
      printf '  option delay-percentage 100\n  option enable lookup,stat,fstat,open,read,readdir,readdirp\n'
      printf '  subvolumes locks\nend-volume\n'
    fi
    printf 'volume iot\n  type performance/io-threads\n  option thread-count 32\n  subvolumes %s\nend-volume\n' $below
    printf 'volume server\n  type protocol/server\n  option transport-type socket\n'
    printf '  option transport.socket.listen-port %s\n  option transport.socket.bind-address 127.0.0.1\n' "$3"
    printf '  option auth.addr.iot.allow *\n  subvolumes iot\nend-volume\n'
  } > "$1"
}

write_client_volume() {  # FILE PORT1 PORT2
  local number=0 port
  for port in "$2" "$3"; do
    number=$((number + 1))
    printf 'volume c%s\n  type protocol/client\n  option transport-type socket\n' $number
    printf '  option remote-host 127.0.0.1\n  option remote-port %s\n' "$port"
    printf '  option remote-subvolume iot\n  option ping-timeout 3\nend-volume\n'
  done > "$1"
  # Files go where their names say on a disk that is nearly full, too: by default not below a tenth free.
  printf 'volume dht\n  type cluster/distribute\n  option min-free-disk 1%%\n  subvolumes c1 c2\nend-volume\n' >> "$1"
}

wait_for_port() {  # PORT
  for _ in $(seq 200); do
    (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null && return 0
    sleep 0.02
  done
  return 1
}

is_mounted() { awk -v dir="$1" '$5 == dir { found = 1 } END { exit !found }' /proc/self/mountinfo; }

# Ends the process of a pid file: politely, then for certain (a stopped one hears only SIGKILL).
end_process() {  # PID_FILE
  local pid
  pid=$(cat "$1" 2>/dev/null) || return 0
  if [ -n "$pid" ] && [ -d "/proc/$pid" ] && grep -qE 'gluster|tail' "/proc/$pid/comm"; then
    kill -TERM "$pid" 2>/dev/null
    for _ in $(seq 50); do
      grep -qsE '^State:\s+[^Z]' "/proc/$pid/status" || break
      sleep 0.02
    done
    kill -KILL "$pid" 2>/dev/null
  fi
  rm -f "$1"
}

stop() {  # DIR
  local name
  [ -d "$1/run" ] || return 0
  end_process "$1/run/watch.pid"
  # The bricks first: a client that still waits for one would make the unmount wait too.
  for name in brick1 brick2; do end_process "$1/run/$name.pid"; done
  is_mounted "$1/mnt" && umount -l "$1/mnt"
  end_process "$1/run/client.pid"
  if is_mounted "$1/mnt"; then return 1; fi
  rm -rf "$1/run"
}

check_possible() {
  [ "$(id -u)" -eq 0 ] || fail "GlusterFS bricks need root" 77
  for name in glusterfsd glusterfs; do
    command -v $name > /dev/null || fail "$name is not installed (apt-get install glusterfs-server glusterfs-client)" 77
  done
  [ -c /dev/fuse ] || fail "/dev/fuse is missing" 77
}

launch() {  # DIR DELAY_US
  local port1 port2 number
  port1=$(free_port $((17771 + RANDOM % 8000)))
  port2=$(free_port $((port1 + 1)))
  write_brick_volume "$1/run/brick1.vol" "$1/brick1" "$port1" "$2"
  write_brick_volume "$1/run/brick2.vol" "$1/brick2" "$port2" "$2"
  write_client_volume "$1/run/client.vol" "$port1" "$port2"
  for number in 1 2; do
    glusterfsd -f "$1/run/brick$number.vol" -p "$1/run/brick$number.pid" -l "$1/run/brick$number.log" || return 1
  done
  # A brick that is down at the client's first lookup would be missing from the layout.
  wait_for_port "$port1" && wait_for_port "$port2" || return 1
  glusterfs -f "$1/run/client.vol" -p "$1/run/client.pid" -l "$1/run/client.log" "$1/mnt" || return 1
  for _ in $(seq 250); do
    is_mounted "$1/mnt" && timeout 2 stat "$1/mnt" > /dev/null 2>&1 && return 0
    sleep 0.02
  done
  return 1
}

start() {  # DIR DELAY_US OWNER
  check_possible
  [ -d "$1/run" ] && fail "$1 is already started (gluster.sh stop $1)"
  mkdir -p "$1/brick1" "$1/brick2" "$1/mnt" "$1/run" || exit 1
  if ! launch "$1" "$2"; then
    tail -n 3 "$1"/run/*.log >&2
    stop "$1"
    fail "GlusterFS did not start"
  fi
  if [ "$3" -gt 0 ]; then
    ( tail --pid="$3" -f /dev/null & echo $! > "$1/run/watch.pid"
      wait $! && "$0" stop "$1" ) < /dev/null > /dev/null 2>&1 &
  fi
}

[ $# -ge 2 ] || usage
verb=$1
mkdir -p "$2" || exit 1
dir=$(realpath "$2")
shift 2
case $verb in
  start)
    delay=0 owner=0
    while [ $# -gt 0 ]; do
      [ $# -ge 2 ] || usage
      case $1 in
        --delay-us) delay=$2 ;;
        --owner) owner=$2 ;;
        *) usage ;;
      esac
      shift 2
    done
    start "$dir" "$delay" "$owner"
    ;;
  stop) stop "$dir" || fail "$dir/mnt could not be unmounted" ;;
  pause | resume | kill)
    [ $# -eq 1 ] || usage
    pid=$(cat "$dir/run/brick$1.pid" 2>/dev/null) || fail "no running brick $1 in $dir"
    case $verb in pause) signal=STOP ;; resume) signal=CONT ;; kill) signal=KILL ;; esac
    kill -$signal "$pid" || fail "brick $1 (pid $pid) is gone"
    if [ $verb = kill ]; then rm -f "$dir/run/brick$1.pid"; fi
    ;;
  *) usage ;;
esac

// Calls that look at what a name of /proc leads to.
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "client_lib/preload/calls.h"
#include "client_lib/preload/reopened.h"

using namespace tierd::preload;

TIERD_NEXT(ssize_t, readlink, const char*, char*, size_t)
TIERD_NEXT(ssize_t, readlinkat, int, const char*, char*, size_t)
TIERD_NEXT(ssize_t, __readlink_chk, const char*, char*, size_t, size_t)
TIERD_NEXT(ssize_t, __readlinkat_chk, int, const char*, char*, size_t, size_t)
TIERD_NEXT(char*, realpath, const char*, char*)
TIERD_NEXT(char*, __realpath_chk, const char*, char*, size_t)
TIERD_NEXT(char*, canonicalize_file_name, const char*)

TIERD_EXPORT(ssize_t, readlink, const char* path, char* text, size_t room) {
  RealIfNamed(path);
  return Next_readlink()(path, text, room);
}
TIERD_EXPORT(ssize_t, readlinkat, int directory, const char* path, char* text, size_t room) {
  RealIfNamed(path);
  return Next_readlinkat()(directory, path, text, room);
}
TIERD_EXPORT(ssize_t, __readlink_chk, const char* path, char* text, size_t wanted, size_t room) {
  RealIfNamed(path);
  return Next___readlink_chk()(path, text, wanted, room);
}
TIERD_EXPORT(ssize_t, __readlinkat_chk, int directory, const char* path, char* text, size_t wanted, size_t room) {
  RealIfNamed(path);
  return Next___readlinkat_chk()(directory, path, text, wanted, room);
}
TIERD_EXPORT(char*, realpath, const char* path, char* resolved) {
  RealIfNamed(path);
  return Next_realpath()(path, resolved);
}
TIERD_EXPORT(char*, __realpath_chk, const char* path, char* resolved, size_t room) {
  RealIfNamed(path);
  return Next___realpath_chk()(path, resolved, room);
}
TIERD_EXPORT(char*, canonicalize_file_name, const char* path) {
  RealIfNamed(path);
  return Next_canonicalize_file_name()(path);
}

#include "client_lib/preload/takes_library.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <link.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <cstring>

#include "client_lib/preload/raw.h"
#include "client_lib/preload/room.h"
#include "client_lib/src/process.h"

namespace tierd::preload {
namespace {

constexpr int kMostInterpreters = 4;  // of scripts that name scripts, as the kernel has it
constexpr std::size_t kHeadBytes = 1024;
constexpr char kGoNote[] = {4, 0, 0, 0};  // type of the note that Go's linker leaves

#if defined(__x86_64__)
constexpr ElfW(Half) kMachine = EM_X86_64;
#else
constexpr ElfW(Half) kMachine = EM_AARCH64;
#endif

const char* LastName(const char* path) {
  const char* const slash = std::strrchr(path, '/');
  return slash == nullptr ? path : slash + 1;
}

// The name that the dynamic linker has loaded this library by.
int FindOwnName(dl_phdr_info* info, size_t, void* name) {
  const auto here = reinterpret_cast<ElfW(Addr)>(&FindOwnName);
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const ElfW(Phdr)& part = info->dlpi_phdr[i];
    if (part.p_type != PT_LOAD || here - info->dlpi_addr < part.p_vaddr || here - info->dlpi_addr - part.p_vaddr >= part.p_memsz) continue;
    *static_cast<const char**>(name) = LastName(info->dlpi_name);
    return 1;
  }
  return 0;
}

const char* ValueOf(char* const* environment, const char* name) {
  const std::size_t bytes = std::strlen(name);
  for (; environment != nullptr && *environment != nullptr; ++environment) {
    if (std::strncmp(*environment, name, bytes) == 0 && (*environment)[bytes] == '=') return *environment + bytes + 1;
  }
  return nullptr;
}

bool NamesLibrary(char* const* environment) {
  static const char* own = nullptr;  // the same whoever finds it
  if (own == nullptr) ::dl_iterate_phdr(&FindOwnName, &own);
  const char* const preloads = ValueOf(environment, "LD_PRELOAD");
  const char* const disable = ValueOf(environment, "TIERD_DISABLE");
  const bool disabled = disable != nullptr && disable[0] != '\0' && std::strcmp(disable, "0") != 0;
  return own != nullptr && *own != '\0' && preloads != nullptr && !disabled && std::strstr(preloads, own) != nullptr;
}

bool GivesRights(int fd, const struct stat& st) {
  if ((st.st_mode & S_ISUID) != 0 && st.st_uid != static_cast<uid_t>(raw::Call(SYS_getuid))) return true;
  if ((st.st_mode & S_ISGID) != 0 && st.st_gid != static_cast<gid_t>(raw::Call(SYS_getgid))) return true;
  return raw::Call(SYS_fgetxattr, fd, raw::Address("security.capability"), 0, 0) >= 0;
}

bool HasGoNote(int fd, const ElfW(Phdr)& part) {
  char notes[256];
  const ssize_t got = raw::Pread(fd, notes, part.p_filesz < sizeof notes ? part.p_filesz : sizeof notes, static_cast<std::int64_t>(part.p_offset));
  for (ssize_t at = 0; at + 16 <= got; at += 4) {
    if (std::memcmp(notes + at + 8, kGoNote, 4) == 0 && std::memcmp(notes + at + 12, "Go\0", 4) == 0) return true;
  }
  return false;
}

bool IsGlibcsLinker(int fd, const ElfW(Phdr)& part) {
  char name[256];
  const ssize_t got = raw::Pread(fd, name, part.p_filesz < sizeof name ? part.p_filesz : sizeof name, static_cast<std::int64_t>(part.p_offset));
  if (got <= 0) return false;
  name[got - 1] = '\0';
  return std::strncmp(LastName(name), "ld-linux", 8) == 0;
}

bool ElfTakesLibrary(int fd, const char* head, std::size_t bytes) {
  ElfW(Ehdr) header;
  if (bytes < sizeof header) return false;
  std::memcpy(&header, head, sizeof header);
  if (header.e_ident[EI_CLASS] != (sizeof(void*) == 8 ? ELFCLASS64 : ELFCLASS32) || header.e_machine != kMachine || header.e_phentsize != sizeof(ElfW(Phdr))) return false;
  bool found = false;
  for (int i = 0; i < header.e_phnum; ++i) {
    const std::uint64_t at = header.e_phoff + static_cast<std::uint64_t>(i) * sizeof(ElfW(Phdr));
    ElfW(Phdr) part;
    if (at + sizeof part <= bytes) std::memcpy(&part, head + at, sizeof part);
    else if (raw::Pread(fd, &part, sizeof part, static_cast<std::int64_t>(at)) != sizeof part) return false;
    if (part.p_type == PT_INTERP) found = IsGlibcsLinker(fd, part);
    if (part.p_type == PT_NOTE && HasGoNote(fd, part)) return false;
  }
  return found;
}

bool FileTakesLibrary(int directory, const char* path, int depth);

// "#! INTERPRETER": that one is executed.
bool ScriptTakesLibrary(char* head, int depth) {
  char* name = head + 2;
  while (*name == ' ' || *name == '\t') ++name;
  char* end = name;
  while (*end != '\0' && *end != ' ' && *end != '\t' && *end != '\n') ++end;
  *end = '\0';
  return end != name && FileTakesLibrary(AT_FDCWD, name, depth + 1);
}

bool FileTakesLibrary(int directory, const char* path, int depth) {
  if (depth > kMostInterpreters) return false;
  char head[kHeadBytes + 1];
  struct stat st;
  const int fd = raw::Open(directory, path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (fd < 0) return false;
  ssize_t got = -1;
  if (raw::Stat(fd, st) == 0 && S_ISREG(st.st_mode) && !GivesRights(fd, st)) got = raw::Pread(fd, head, kHeadBytes, 0);
  const bool is_elf = got > SELFMAG && std::memcmp(head, ELFMAG, SELFMAG) == 0;
  const bool takes = is_elf && ElfTakesLibrary(fd, head, static_cast<std::size_t>(got));
  raw::Close(fd);
  if (got < 2 || is_elf || head[0] != '#' || head[1] != '!') return takes;
  head[got] = '\0';
  return ScriptTakesLibrary(head, depth);
}

}  // namespace

bool TakesLibrary(int directory, const char* path, char* const* environment) {
  return path != nullptr && !StackIsSmall() && NamesLibrary(environment) && FileTakesLibrary(directory, path, 0);
}

bool FoundTakesLibrary(const char* file, char* const* environment) {
  if (file == nullptr || std::strchr(file, '/') != nullptr) return TakesLibrary(AT_FDCWD, file, environment);
  if (StackIsSmall() || !NamesLibrary(environment)) return false;
  const char* directory = ::getenv("PATH");
  if (directory == nullptr) directory = "/bin:/usr/bin";
  char path[PATH_MAX];
  const std::size_t file_bytes = std::strlen(file);
  for (;;) {
    const char* const end = std::strchr(directory, ':');
    const std::size_t bytes = end == nullptr ? std::strlen(directory) : static_cast<std::size_t>(end - directory);
    if (bytes + file_bytes + 2 <= sizeof path) {
      std::memcpy(path, directory, bytes);
      if (bytes != 0) path[bytes] = '/';
      std::strcpy(path + bytes + (bytes != 0 ? 1 : 0), file);
      if (raw::Call(SYS_faccessat, AT_FDCWD, raw::Address(path), 1 /* X_OK */) == 0) return FileTakesLibrary(AT_FDCWD, path, 0);
    }
    if (end == nullptr) return false;
    directory = end + 1;
  }
}

}  // namespace tierd::preload

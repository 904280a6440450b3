"""Every name that libtier_preload.so exports is called by some program of this folder, by that very name: the linker resolves it there, or the program looks it up as a string
(exports.c, aliases.c). And what preload.map names is exported, and nothing else. That the calls do what they should is for the tests that run these programs.

usage: exports_test.py LIBRARY PRELOAD_MAP SOURCE,... PROGRAM...: sources of programs that look names up"""

import pathlib
import re
import subprocess
import sys

library, map_file, looking, *programs = sys.argv[1:]


def symbols(path, which):
    lines = subprocess.run(["nm", "-D", which, path], capture_output=True, text=True, check=True).stdout.splitlines()
    return {line.split()[-1].split("@")[0] for line in lines}


words = pathlib.Path(map_file).read_text().split("global:")[1].split("local:")[0]
named = {name for name in re.split(r"[;\s]+", words) if name}
exported = symbols(library, "--defined-only")
called = set().union(*(symbols(program, "--undefined-only") for program in programs))
for source in looking.split(","):
    called |= {name for pair in re.findall(r'"(\w+)"|FUNCTION\((\w+),', pathlib.Path(source).read_text()) for name in pair}

# Of issue and manual: what has to be there under all these names.
FAMILIES = """open open64 openat openat64 __open_2 __open64_2 __openat_2 __openat64_2 openat2 creat creat64 fopen fopen64 freopen freopen64 fdopen
read __read_chk pread pread64 __pread_chk __pread64_chk readv preadv preadv64 preadv2 preadv64v2 lseek lseek64 close close_range closefrom
fstat fstat64 stat stat64 lstat lstat64 fstatat fstatat64 statx __xstat __xstat64 __lxstat __lxstat64 __fxstat __fxstat64 __fxstatat __fxstatat64 access faccessat
dup dup2 dup3 fcntl fcntl64 mmap mmap64 sendfile sendfile64 copy_file_range splice posix_fadvise posix_fadvise64 readahead
opendir readdir readdir64 scandir scandir64 vfork posix_spawn execve execv execvp execl execlp execle flock isatty ioctl poll __poll_chk ppoll select epoll_ctl system popen""".split()

complaints = [f"{name}: in preload.map, not exported" for name in sorted(named - exported)]
complaints += [f"{name}: exported, not in preload.map" for name in sorted(exported - named)]
complaints += [f"{name}: no program calls it by that name" for name in sorted(named - called)]
folder = pathlib.Path(map_file).parent
dispatch = set(re.findall(r"case (SYS_\w+|k[A-Z]\w+):", (folder / "calls_syscall.cc").read_text()))
doors = pathlib.Path(__file__).with_name("doors.c").read_text()
complaints += [f"{name}: doors.c does not call it" for name in sorted(dispatch) if not re.search(rf"\b{name}\b", doors)]
complaints += [f"{name}: not covered" for name in sorted(set(FAMILIES) - named)]
print("\n".join(complaints) or f"{len(named)} names")
sys.exit(1 if complaints else 0)

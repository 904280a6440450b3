"""Writes hooks.c: a library that hooks every name that libtier_preload.so exports, and hands each
call on by the door that the compiler is told (-DDOOR=...).

usage: hooks.py PRELOAD_MAP WRAPPERS_FOLDER OUTPUT

DOOR_NEXT      the next symbol of that name
DOOR_SYSCALL   `syscall`, if the name has a system call of the same arguments
DOOR_RAW       the same by the instruction
DOOR_OTHER     the name with 64 at its end: `open` is implemented by `open64`
DOOR_GOT       as DOOR_SYSCALL; nothing is exported, the slots of all loaded libraries are patched
The names and numbers come from the library's own sources, so none can be forgotten."""

import ctypes
import pathlib
import re
import sys

map_file, folder, output = sys.argv[1:]
names = re.split(r"[;\s]+", pathlib.Path(map_file).read_text().split("global:")[1].split("local:")[0])
# What asks for its caller, returns twice on one stack, or takes any number of arguments. And what
# stands for a library that is not there.
LEFT_OUT = {"", "dlopen", "dlmopen", "vfork", "execl", "execlp", "execle",
            "io_uring_queue_init", "io_uring_queue_init_params", "io_uring_queue_init_mem",
            "io_uring_setup", "io_setup", "io_queue_init", "cuFileDriverOpen", "cuFileHandleRegister"}
# What this libc does not have is not hooked; what begins with __ it has for old programs at least.
libc = ctypes.CDLL(None)
names = [name for name in names
         if name not in LEFT_OUT and (name.startswith("__") or hasattr(libc, name))]

numbers = {}
aliases = {}
for source in sorted(pathlib.Path(folder).glob("calls_*.cc")):
    text = source.read_text()
    for name, number in re.findall(r"TIERD_NEXT_CALL\([^,()]+, (\w+), ([\w()]+),", text):
        numbers[name] = re.sub(r"TIERD_OLD_CALL\((\w+)\)", r"SYS_\1", number)
    aliases |= dict(re.findall(r"TIERD_ALIAS\([^,()]+, (\w+), (\w+),", text))
for alias, name in aliases.items():
    if name in numbers and not alias.startswith("__"):
        numbers[alias] = numbers[name]

lines = ["#define HOOKS \\"]
for name in names:
    number = numbers.get(name, "NO_NUMBER")
    order = "SIX" if number == "SYS_preadv2" else "PLAIN"
    other = name + "64" if name + "64" in names else ""
    other = "preadv64v2" if name == "preadv2" else other
    kind = "HOOK_OTHER" if other else "HOOK"
    lines.append(f"  {kind}({name}, {number}, {order}, {other or name}) \\")
lines.append("")
lines.append('#include "tests/preload/hooks.h"')
pathlib.Path(output).write_text("\n".join(lines) + "\n")

"""The libraries that are loaded into other people's programs need nothing that a C library may lack: no symbol newer than glibc 2.17, no library but libc, no
strong reference that musl cannot resolve; and for each call that they stand in front of and that glibc 2.17 does not have, there is something to stand in for it.

usage: versions_test.py PRELOAD_SOURCES LIBRARY...: the folder of the preload library's sources, and the libraries, that one first"""

import glob
import pathlib
import re
import subprocess
import sys

NEWEST = (2, 17)
sources, *libraries = sys.argv[1:]
complaints = []


def readelf(*arguments):
    return subprocess.run(["readelf", "-W", *arguments], capture_output=True, text=True, check=True).stdout


def number(version):
    return tuple(int(part) for part in version.split("."))


def symbols(path, defined):
    """name -> versions, of the dynamic table."""
    found = {}
    for line in readelf("--dyn-syms", path).splitlines():
        part = line.split()
        if len(part) < 8 or not part[0].rstrip(":").isdigit() or (part[6] != "UND") != defined:
            continue
        name, _, version = part[7].partition("@")
        found.setdefault(name, []).append((part[4], version.lstrip("@")))
    return found


for library in libraries:
    name = pathlib.Path(library).name
    versions = set(re.findall(r"Name: (\S+)\s+Flags: \S+\s+Version:", readelf("--version-info", library)))
    if not versions:
        complaints.append(f"{name}: no versions at all; is that readelf's output?")
    for version in sorted(versions):
        match = re.fullmatch(r"GLIBC_(\d+(?:\.\d+)+)", version)
        if not match or number(match[1]) > NEWEST:
            used = [symbol for symbol, uses in symbols(library, False).items() if any(version == v.split(" ")[0] for _, v in uses)]
            complaints.append(f"{name}: needs {version} ({', '.join(used) or 'no symbol'})")
    needed = re.findall(r"\(NEEDED\).*\[(.*)\]", readelf("--dynamic", library))
    if needed != ["libc.so.6"]:
        complaints.append(f"{name}: needs {needed}, and a container may lack all but libc.so.6")

# musl resolves every strong reference when it loads a library, or the program does not start.
musl = glob.glob("/lib/ld-musl-*.so.1")
if musl:
    there = symbols(musl[0], True)
    for symbol, uses in symbols(libraries[0], False).items():
        if symbol and symbol not in there and any(bind != "WEAK" for bind, _ in uses):
            complaints.append(f"{pathlib.Path(libraries[0]).name}: musl has no {symbol}, which is no weak reference")
else:
    print("no musl here: its symbols are not compared")

# Every call that goes to the next library.
text = {path.name: path.read_text() for path in pathlib.Path(sources).glob("*.cc")}
CALL = r"TIERD_(?:(?:NEXT\(|REFUSED\w*\(\w+, )[\w*: ]+, |MADE\w*\()(\w+),"
nexts = {name for body in text.values() for name in re.findall(CALL, body)} - {"name"}
instead = set(re.findall(r"TIERD_INSTEAD\((\w+),", text["older_libc.cc"]))
libc = symbols(re.search(r"libc\.so\.6 .*=> (\S+)", subprocess.run(["ldconfig", "-p"], capture_output=True, text=True, check=True).stdout)[1], True)
first = {name: min(number(v[6:]) for _, v in versions if re.fullmatch(r"GLIBC_[\d.]+", v)) for name, versions in libc.items() if any(re.fullmatch(r"GLIBC_[\d.]+", v) for _, v in versions)}
if len(nexts) < 150 or "open" not in first:
    complaints.append(f"{len(nexts)} calls found in {sources}, {len(first)} names in libc: the test looks in the wrong place")
for name in sorted(nexts - instead):
    if name not in first or first[name] > NEWEST:
        complaints.append(f"{name}: glibc 2.17 does not have it, and older_libc.cc has nothing in its place")

print("\n".join(complaints) or f"{len(libraries)} libraries, {len(nexts)} calls")
sys.exit(1 if complaints else 0)

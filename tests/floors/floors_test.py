"""Checks the house plan (docs/architecture.md, "The folders"): a folder includes only lower floors, folders of one
floor (from floor 2 on) never include one another, and headers form no cycle. Boost stays above floor 2. LevelDB,
liburing and prometheus-cpp stay behind their folders. No call that waits for a file system stands where the loop
thread runs (HAZARDS 5). Every *_test.cc is built. Prints every violation."""

import pathlib
import re
import sys

ROOT = pathlib.Path(sys.argv[1])
FLOORS = {  # longest prefix wins
    "tierd/base": 0,
    "tierd/io": 1, "client_lib/abi": 1, "client_lib/include": 1, "policies/tierd_policy.h": 1,
    "tierd/ram": 2, "tierd/ssd": 2, "tierd/source": 2, "client_lib/src": 2,
    "policies/orders": 2, "policies": 2.1, "policies/sim": 2.2,
    # What all rooms of the engine use: its loop, its memory guards, its options and counters.
    "tierd/engine/counters": 2.9, "tierd/engine/heart": 2.9, "tierd/engine/loop_lag": 2.9, "tierd/engine/options": 2.9,
    "tierd/engine/out_of_memory": 2.9, "tierd/engine/segment_size": 2.9, "tierd/engine/workers": 2.9,
    "tierd/engine/catalogue": 3.0, "tierd/engine/sources": 3.1, "tierd/engine/residency": 3.2, "tierd/engine/fetch": 3.3,
    "tierd/engine/movers": 3.4, "tierd/engine/orders": 3.5, "tierd/engine": 3.9,
    "tierd/server": 4, "tierd/config": 4,
    "tierd/main.cc": 5, "tierd/config_service": 5, "tierd/end_guard": 5, "tierd/lifeline": 5, "tierd/root_watch": 5, "tierd/service_manager": 5, "client_lib/preload": 5,
    "tierctl/client": 5.0, "tierctl/terminal": 5.1, "tierctl/bench": 5.2, "tierctl/doctor": 5.2, "tierctl/run": 5.2,
    "tierctl/simulate": 5.2, "tierctl": 5.3,
}
# Files of one program, or of one room.
SAME_FLOOR_OK = {
    ("tierd/main.cc", "tierd/config_service"), ("tierd/main.cc", "tierd/end_guard"), ("tierd/main.cc", "tierd/lifeline"),
    ("tierd/main.cc", "tierd/root_watch"), ("tierd/main.cc", "tierd/service_manager"),
    ("tierd/engine/loop_lag", "tierd/engine/heart"), ("tierd/engine/segment_size", "tierd/engine/options"),
    ("tierd/engine/workers", "tierd/engine/loop_lag"), ("tierd/engine/workers", "tierd/engine/out_of_memory"),
}
ONLY_IN = {
    "leveldb/": ("tierd/ssd",),
    "liburing.h": ("tierd/io",),
    "prometheus/": ("tierd/server",),
    "boost/": ("tierd/engine", "tierd/server", "tierd/main.cc", "tierd/end_guard", "tierd/lifeline", "tierd/root_watch", "tierd/service_manager", "tierctl"),
}
# Files of the loop thread: what waits for a file system stands there only in these functions, which a worker runs or which touch nothing that can hang.
LOOP_FOLDERS = ("tierd/engine", "tierd/server")
OFF_THE_LOOP = {
    ("tierd/engine/orders/sample_map.cc", "SampleMap::MakeFromFile"): "a worker's",
    ("tierd/engine/engine.cc", "RemoveList"): "a worker's",
    ("tierd/engine/sources/access_watch.cc", "OpenTrace"): "a worker's",
    ("tierd/server/seqpacket.cc", "PrepareRuntimeDirectory"): "before the loop runs; the runtime directory is local",
    ("tierd/server/seqpacket.cc", "CheckRuntimeDirectory"): "before the loop runs; the runtime directory is local",
    ("tierd/server/seqpacket.cc", "IsOursAlone"): "before the loop runs; the runtime directory is local",
    ("tierd/server/seqpacket.cc", "ListenSeqpacket"): "before the loop runs; the runtime directory",
    ("tierd/server/seqpacket.cc", "AllMapped"): "/proc",
    ("tierd/server/seqpacket.cc", "OverflowGroup"): "/proc",
    ("tierd/server/seqpacket.cc", "IsInOurUserNamespace"): "/proc",
    ("tierd/server/namespace_watch.cc", "MountNamespaceOf"): "/proc",
    ("tierd/server/namespace_watch.cc", "NamespaceWatch::Add"): "/proc",
    ("tierd/server/plan_lists.cc", "RemoveForgottenLists"): "before the loop runs; the runtime directory",
    ("tierd/server/session_hub.cc", "SessionHub::Listen"): "before the loop runs; /dev/null",
    ("tierd/server/session_hub.cc", "SessionHub::AcceptSome"): "/dev/null",
    ("tierd/server/session_hub.cc", "SessionHub::Close"): "at the end; the runtime directory",
    ("tierd/server/control.cc", "Control::Listen"): "before the loop runs; the runtime directory",
    ("tierd/server/control.cc", "Control::Close"): "at the end; the runtime directory",
}
BLOCKING = re.compile(  # the system's functions are called with their namespace here
    r"(?<![\w.>])::(open|openat2?|creat|fopen|fdopen|l?stat|fstat|fstatat|statx|f?statfs|f?statvfs|opendir|fdopendir|readdir|scandir|glob|nftw|fts_open|fallocate|posix_fallocate|"
    r"f?truncate|rename|renameat2?|link|linkat|symlink|symlinkat|unlink|unlinkat|remove|mkdir|mkdirat|rmdir|mkstemp|mkdtemp|readlink|readlinkat|realpath|f?access|faccessat|f?chmod|fchmodat|f?chown|"
    r"fchownat|utimensat|futimens|fsync|fdatasync|syncfs|sync|sync_file_range|p?readv?2?|p?writev?2?|copy_file_range|sendfile|flock|lockf|mount|umount2?|getxattr|setxattr)\s*\("
    r"|(std::[io]?fstream|std::fopen|std::rename)\b|std::filesystem::(?!path\b)(\w+)")
FUNCTION = re.compile(r"^(?=\w)(?!namespace|using|template|#|//|struct|class|enum|constexpr|const |static |extern)[\w:<>,&*~\[\] ]*?((?:\w+::)*~?\w+)\(", re.M)
INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^">]+)[">]', re.M)


def home(path):
    best = max((p for p in FLOORS if path == p or path.startswith(p + "/") or path.startswith(p + ".")), key=len, default=None)
    return best, FLOORS.get(best)


def sources():
    for top in ("tierd", "policies", "client_lib", "tierctl"):
        for path in sorted((ROOT / top).rglob("*")):
            if path.suffix in (".h", ".cc", ".c", ".hpp") and "examples" not in path.parts and "example" not in path.parts:
                yield path.relative_to(ROOT).as_posix(), path.read_text(errors="replace")


def check_floors(problems, graph):
    for path, text in sources():
        where, floor = home(path)
        if where is None:
            problems.append(f"{path}: on no floor")
            continue
        for included in INCLUDE.findall(text):
            for prefix, homes in ONLY_IN.items():
                if included.startswith(prefix) and not any(where == home or where.startswith(home + "/") for home in homes):
                    problems.append(f"{path}: includes <{included}>, which belongs to {', '.join(homes)}")
            target = included if (ROOT / included).is_file() else f"client_lib/include/{included}"
            if not (ROOT / target).is_file():
                continue
            graph.setdefault(path, set()).add(target)
            there, lower = home(target)
            if there is None or there == where:
                continue
            if lower > floor or (lower == floor and lower >= 2 and (where, there) not in SAME_FLOOR_OK):
                problems.append(f"{path} (floor {floor}) includes {target} (floor {lower})")


def check_cycles(problems, graph):
    done, stack = set(), []

    def visit(node):
        if node in stack:
            problems.append("include cycle: " + " -> ".join(stack[stack.index(node):] + [node]))
            return
        if node in done:
            return
        stack.append(node)
        for child in sorted(graph.get(node, ())):
            visit(child)
        stack.pop()
        done.add(node)

    for node in sorted(graph):
        visit(node)


def check_loop_calls(problems):
    used = set()
    for path, text in sources():
        if not path.startswith(tuple(folder + "/" for folder in LOOP_FOLDERS)):
            continue
        # Names of calls in comments and texts are none; lengths stay, so that places do.
        text = re.sub(r'//[^\n]*|"(?:[^"\\\n]|\\.)*"', lambda m: " " * len(m.group()), text)
        functions = [(m.start(), m.group(1)) for m in FUNCTION.finditer(text)]
        for found in BLOCKING.finditer(text):
            call = next(name for name in found.groups() if name)
            function = next((name for at, name in reversed(functions) if at < found.start()), "")
            if (path, function) in OFF_THE_LOOP:
                used.add((path, function))
            else:
                line = text.count("\n", 0, found.start()) + 1
                problems.append(f"{path}:{line}: {call}() in {function or 'no function'} may wait for a file system on the loop thread: give it to a worker, or name the place in OFF_THE_LOOP")
    for path, function in sorted(set(OFF_THE_LOOP) - used):
        problems.append(f"OFF_THE_LOOP names {function} of {path}, which calls nothing that blocks")


def check_tests_are_built(problems):
    for path in sorted((ROOT / "tests").rglob("*_test.cc")):
        folder = next(folder for folder in path.parents if (folder / "CMakeLists.txt").is_file())
        named = path.relative_to(folder).as_posix()
        if named not in re.findall(r"[\w./]+", (folder / "CMakeLists.txt").read_text()):
            problems.append(f"{path.relative_to(ROOT)}: not in the CMakeLists.txt of {folder.relative_to(ROOT)}")


def main():
    problems, graph = [], {}
    check_floors(problems, graph)
    check_cycles(problems, graph)
    check_loop_calls(problems)
    check_tests_are_built(problems)
    print("\n".join(problems) or f"floors hold for {len(graph)} files")
    return 1 if problems else 0


sys.exit(main())

"""The house plan (DESIGN 9), checked: a folder includes only lower floors, floor-2 folders never include one another, headers form no cycle, Boost stays
above floor 2, LevelDB, liburing and prometheus-cpp behind their folders, and every *_test.cc is built. Prints every violation."""

import pathlib
import re
import sys

ROOT = pathlib.Path(sys.argv[1])
FLOORS = {  # longest prefix wins
    "tierd/base": 0,
    "tierd/io": 1, "client_lib/abi": 1, "client_lib/include": 1, "policies": 2, "policies/tierd_policy.h": 1,
    "tierd/ram": 2, "tierd/ssd": 2, "tierd/source": 2, "client_lib/src": 2,
    "tierd/engine": 3, "tierd/server": 4, "tierd/config": 4,
    "tierd/main.cc": 5, "tierd/config_service": 5, "tierd/lifeline": 5, "tierd/root_watch": 5, "tierd/service_manager": 5, "tierctl": 5, "client_lib/preload": 5,
}
# Files of the one program tierd.
SAME_FLOOR_OK = {("tierd/main.cc", "tierd/config_service"), ("tierd/main.cc", "tierd/lifeline"), ("tierd/main.cc", "tierd/root_watch"), ("tierd/main.cc", "tierd/service_manager")}
ONLY_IN = {
    "leveldb/": ("tierd/ssd",),
    "liburing.h": ("tierd/io",),
    "prometheus/": ("tierd/server",),
    "boost/": ("tierd/engine", "tierd/server", "tierd/main.cc", "tierd/lifeline", "tierd/root_watch", "tierd/service_manager", "tierctl"),
}
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
                if included.startswith(prefix) and where not in homes:
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


def check_tests_are_built(problems):
    lists = "\n".join(p.read_text() for p in (ROOT / "tests").rglob("CMakeLists.txt"))
    for path in (ROOT / "tests").rglob("*_test.cc"):
        if path.name not in lists:
            problems.append(f"{path.relative_to(ROOT)}: in no CMakeLists.txt")


def main():
    problems, graph = [], {}
    check_floors(problems, graph)
    check_cycles(problems, graph)
    check_tests_are_built(problems)
    print("\n".join(problems) or f"floors hold for {len(graph)} files")
    return 1 if problems else 0


sys.exit(main())

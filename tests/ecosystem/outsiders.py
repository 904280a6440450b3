"""Well-known libraries and programs that hook the calls that libtier_preload.so wraps. Each row runs
bare and under `tierctl run`; output and exit code must be equal, and the reads must come from the
cache where the row says so.

usage: outsiders.py TIERCTL [NAME...]     all rows, or those whose name contains a NAME

A row is added to ROWS: its name, the Debian packages that it needs, its command, and whether the
cache serves it. Missing packages are a failure: tools/test.sh ecosystem installs them."""

import dataclasses
import hashlib
import json
import os
import pathlib
import subprocess
import sys
import tempfile

LIB = f"/usr/lib/{os.uname().machine}-linux-gnu"
PYTHON = "/usr/bin/python3"
READ = """
import hashlib, mmap, os, sys
folder = sys.argv[1]
for name in sorted(os.listdir(folder)):
    path = os.path.join(folder, name)
    fd = os.open(path, os.O_RDONLY)
    with mmap.mmap(fd, 0, prot=mmap.PROT_READ) as view:
        mapped = hashlib.sha256(view).hexdigest()
    assert mapped == hashlib.sha256(os.read(fd, 1 << 24)).hexdigest()
    os.close(fd)
    print(name, os.stat(path).st_size, mapped)
"""
MPI_READ = "from mpi4py import MPI\nif MPI.COMM_WORLD.Get_rank() != 0: sys.exit()\n"
UCM = """
import ctypes, os
ctypes.CDLL("libucs.so.0", mode=ctypes.RTLD_GLOBAL)
ucm = ctypes.CDLL("libucm.so.0", mode=ctypes.RTLD_GLOBAL)
# Mapped and unmapped memory is told to a function that does nothing.
assert ucm.ucm_set_event_handler(3 << 16, 0, ctypes.CDLL(None).getpid, None) == 0
blocks = [bytearray(8 << 20) for _ in range(20)]
"""
C_READ = r"""
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#ifdef WITH_MPI
#include <mpi.h>
#endif
int main(int argc, char **argv) {
  int rank = 0;
#ifdef WITH_MPI
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
#endif
  for (int i = 0; i < 8 && rank == 0; ++i) {
    char path[4096], *block = malloc(9 << 20);
    snprintf(path, sizeof path, "%s/f%d", argv[1], i);
    int fd = open(path, O_RDONLY);
    long count = read(fd, block, 9 << 20);
    char *map = mmap(NULL, count, PROT_READ, MAP_PRIVATE, fd, 0);
    unsigned sum = memcmp(map, block, count) == 0;
    for (long at = 0; at < count; ++at) sum = sum * 31 + (unsigned char)block[at];
    printf("%d %ld %08x\n", i, count, sum);
    munmap(map, count), close(fd), free(block);
  }
#ifdef WITH_MPI
  MPI_Finalize();
#endif
  return 0;
}
"""
# Every name is missing: the daemon and the source are asked each time.
STAT = """
import os, sys
for i in range(2000):
    try: os.stat(f"{sys.argv[1]}/missing{i}")
    except FileNotFoundError: pass
print("asked")
"""


@dataclasses.dataclass
class Row:
    name: str
    packages: list
    command: list  # {data}: a folder of files; {bin}: where programs are built
    served: bool = True
    environment: dict = dataclasses.field(default_factory=dict)
    build: list = dataclasses.field(default_factory=list)
    calls: bool = False  # compares the number of system calls with the one at the usual time, too


def python(text, *more):
    return [PYTHON, "-c", text, "{data}", *more]


def mpirun(pml, devices):
    return ["mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "-np", "2", "--mca", "pml", pml, *devices]


def compiled(name, compiler, *more):
    return [compiler, "-O1", "-w", "-x", "c", "{bin}/read.c", "-x", "none", "-o", f"{{bin}}/{name}", *more]


ANY = ["--mca", "pml_ucx_tls", "any", "--mca", "pml_ucx_devices", "any"]
MPI_PACKAGES = ["openmpi-bin", "python3-mpi4py", "libucx0"]
GPERFTOOLS = ["libgoogle-perftools-dev", "gcc"]
ROWS = [
    Row("Open MPI, pml ucx, start", MPI_PACKAGES, mpirun("ucx", ANY) + [PYTHON, "-c", "from mpi4py import MPI"], False),
    Row("Open MPI, pml ucx", MPI_PACKAGES, mpirun("ucx", ANY) + python("import sys\n" + MPI_READ + READ)),
    Row("Open MPI, pml ob1", MPI_PACKAGES, mpirun("ob1", []) + python("import sys\n" + MPI_READ + READ)),
    Row("MPICH", ["mpich", "libmpich-dev", "gcc"], ["mpirun.mpich", "-np", "2", "{bin}/mpich", "{data}"],
        build=compiled("mpich", "mpicc.mpich", "-DWITH_MPI")),
    Row("UCX memory hooks, bistro", ["libucx0"], python(UCM + READ), environment={"UCX_MEM_MMAP_HOOK_MODE": "bistro"}),
    Row("UCX memory hooks, reloc", ["libucx0"], python(UCM + READ), environment={"UCX_MEM_MMAP_HOOK_MODE": "reloc"}),
    Row("tcmalloc, linked", GPERFTOOLS, ["{bin}/tcmalloc", "{data}"], build=compiled("tcmalloc", "gcc", "-ltcmalloc")),
    Row("tcmalloc, preloaded", GPERFTOOLS, python(READ), environment={"LD_PRELOAD": f"{LIB}/libtcmalloc.so.4"}),
    Row("tcmalloc minimal, preloaded", GPERFTOOLS, python(READ), environment={"LD_PRELOAD": f"{LIB}/libtcmalloc_minimal.so.4"}),
    Row("jemalloc, preloaded", ["libjemalloc2"], python(READ), environment={"LD_PRELOAD": f"{LIB}/libjemalloc.so.2"}),
    Row("mimalloc, preloaded", ["libmimalloc2.0"], python(READ), environment={"LD_PRELOAD": f"{LIB}/libmimalloc.so.2"}),
    Row("libfaketime", ["faketime"], ["faketime", "-f", "2001-01-01 00:00:00"] + python(READ)),
    Row("libfaketime, 1000 times as fast", ["faketime"], ["faketime", "-f", "+0 x1000"] + python(READ)),
    Row("libfaketime, 1000 times as fast, names that are missing", ["faketime", "strace"],
        ["faketime", "-f", "+0 x1000"] + python(STAT), False, calls=True),
    Row("fakeroot", ["fakeroot"], ["fakeroot"] + python(READ + "print(os.stat(path).st_uid)\n")),
]
# Darshan's runtime is in no archive of Debian 12's; PyPI has the reader of its logs alone.


def installed(package):
    found = subprocess.run(["dpkg-query", "-W", "-f=${Status}", package], capture_output=True, text=True, check=False)
    return "ok installed" in found.stdout


class Outsiders:
    def __init__(self, tierctl, work):
        self.tierctl = tierctl
        self.work = work
        self.data = work / "data"
        self.bin = work / "bin"
        self.data.mkdir()
        self.bin.mkdir()
        (self.bin / "read.c").write_text(C_READ)
        for i in range(8):
            block = hashlib.sha256(str(i).encode()).digest()
            (self.data / f"f{i}").write_bytes(block * (1 + (i * 200_003) // len(block)))

    def filled(self, words):
        return [str(word).replace("{data}", str(self.data)).replace("{bin}", str(self.bin)) for word in words]

    def run(self, command, environment):
        return subprocess.run(command, env=dict(os.environ, **environment), capture_output=True, text=True, timeout=120,
                              cwd=self.work, check=False)

    # What is wrong with a row; "": nothing.
    def judge(self, row):
        missing = [package for package in row.packages if not installed(package)]
        if missing:
            return f"not installed: {' '.join(missing)}"
        if row.build:
            built = self.run(self.filled(row.build), {})
            if built.returncode != 0:
                return f"does not build: {built.stderr[-300:]}"
        report = self.work / "report"
        report.unlink(missing_ok=True)
        command = self.filled(row.command)
        served = [self.tierctl, "run", "--source", str(self.data), "--ram", "128 MiB", "--ssd", "off", "-q", "--",
                  "env", f"TIERD_REPORT={report}"] + command
        bare = self.run(command, row.environment)
        if bare.returncode != 0:
            return f"bare ends with {bare.returncode}: {bare.stderr[-300:]}"
        under = self.run(served, row.environment)
        if (under.returncode, under.stdout) != (bare.returncode, bare.stdout):
            return f"ends with {under.returncode}, bare {bare.returncode}: {under.stdout[-200:]} {under.stderr[-300:]}"
        lines = [json.loads(line) for line in report.read_text().splitlines()] if report.exists() else []
        cached = sum(count for line in lines for tier, count in line.get("bytes", {}).items() if tier in ("ram", "ssd", "source"))
        if row.served and cached == 0:
            return f"nothing came from the cache: {lines}"
        if row.calls:
            return self.compare_calls(row, command)
        return ""

    # Both under tierctl run: faketime's own three words lead the command.
    def compare_calls(self, row, command):
        counts = []
        for traced in (command[3:], command):
            trace = self.work / "trace"
            done = self.run([self.tierctl, "run", "--source", str(self.data), "--ram", "128 MiB", "--ssd", "off", "-q", "--",
                             "strace", "-f", "-qq", "-o", str(trace)] + traced, row.environment)
            if done.returncode != 0:
                return f"strace ends with {done.returncode}: {done.stderr[-300:]}"
            counts.append(len(trace.read_text().splitlines()))
        print(f"   system calls: {counts[0]} at the usual time, {counts[1]} at this one", flush=True)
        return "" if counts[1] <= counts[0] + 500 else "a faster clock costs system calls"


def main():
    tierctl, *names = sys.argv[1:]
    failed = 0
    with tempfile.TemporaryDirectory(prefix="tierd-ecosystem-") as work:
        outsiders = Outsiders(os.path.abspath(tierctl), pathlib.Path(work))
        for row in ROWS:
            if names and not any(name in row.name for name in names):
                continue
            try:
                wrong = outsiders.judge(row)
            except subprocess.TimeoutExpired:
                wrong = "does not end"
            failed += wrong != ""
            print(f"{'FAILED' if wrong else 'ok    '} {row.name}{': ' + wrong if wrong else ''}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    if sys.argv[1:] == ["--packages"]:
        print(" ".join(sorted({package for row in ROWS for package in row.packages})))
        sys.exit(0)
    sys.exit(main())

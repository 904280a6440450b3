"""Programs of an older system than the one that tierd was built on: a Debian 11 root (glibc 2.31), made by debootstrap from the mirror that apt uses. They run
bare and under `tierctl run`: same output, same exit code, and what is read twice comes from the cache. The last case is a root that has nothing but libc, as
containers have that are put together from what ldd lists: there is no libdl and no libpthread, which are libraries of their own in that glibc.

usage: old_glibc_test.py BUILD; needs root and debootstrap. tools/test.sh platforms runs it."""

import json
import os
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile
import unittest

BUILD = pathlib.Path(sys.argv.pop(1)).resolve()
MIRROR = os.environ.get("TIERD_DEBIAN_MIRROR", "http://deb.debian.org/debian")
TIERCTL = BUILD / "tierctl" / "tierctl"
PRELOAD = BUILD / "client_lib" / "preload" / "libtier_preload.so"
LIBTIER = BUILD / "client_lib" / "src"
# In a mount namespace of its own, so that nothing stays mounted however this ends. $1: the root, $2...: directories that are the same outside and inside, "--".
ENTER = """
root=$1; shift
mount -t proc proc "$root/proc" && mount --rbind /dev "$root/dev" || exit 90
while [ "$1" != -- ]; do mkdir -p "$root$1" && mount --bind "$1" "$root$1" || exit 91; shift; done
shift
exec "$@"
"""

PYTHON = r"""
import ctypes, hashlib, mmap, os, subprocess, sys, threading
names = sorted(os.path.join(d, n) for d, _, ns in os.walk(DATA) for n in ns)
def digest(name):
    with open(name, 'rb') as f: return hashlib.sha256(f.read()).hexdigest()
print([digest(n) for n in names], [os.stat(n).st_size for n in names])
found = {}
threads = [threading.Thread(target=lambda n=n: found.update({n: digest(n)})) for n in names]
[t.start() for t in threads]; [t.join() for t in threads]
print(sorted(found.values()))
with open(names[0], 'rb') as f:
    m = mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ); print(hashlib.sha256(m).hexdigest())
    f.seek(10); sys.stdout.flush()
    child = os.fork()
    if child == 0:
        print(f.read(20)); sys.stdout.flush(); os._exit(3)
    print(os.waitpid(child, 0)[1], f.seek(0, 1))
print(subprocess.run(['cat', names[1]], stdout=subprocess.PIPE).stdout == open(names[1], 'rb').read())
print(subprocess.run('sha256sum < ' + names[1], shell=True, stdout=subprocess.PIPE).stdout)
new = os.path.join(DATA, 'new')
open(new, 'w').write('one'); print(open(new).read()); open(new, 'a').write('two'); print(open(new).read()); os.rename(new, new + '2')
os.mkfifo(new); print(os.stat(new).st_mode); os.unlink(new); print(os.listdir(DATA)); os.unlink(new + '2'); print(os.path.exists(new + '2'))
libc = ctypes.CDLL(None, use_errno=True)
for name in 'close_range', 'copy_file_range', 'statx', '_Fork', 'stat':   # found or not, a call must come back
    try: function = getattr(libc, name)
    except AttributeError: continue
    if name == 'close_range': function(ctypes.c_uint(900), ctypes.c_uint(901), 0)
    elif name == 'stat': function(names[0].encode(), ctypes.create_string_buffer(256))
    elif name == 'statx': function(-100, names[0].encode(), 0, 0x7ff, ctypes.create_string_buffer(512))
    elif name == 'copy_file_range': function(-1, None, -1, None, ctypes.c_size_t(1), 0)
    else:
        child = function()
        if child == 0: os._exit(0)
        os.waitpid(child, 0)
sys.exit(7)
"""


def run(*command, **more):
    return subprocess.run([str(c) for c in command], capture_output=True, text=True, errors="surrogateescape", check=False, **more)


class OldGlibc(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.work = pathlib.Path(tempfile.mkdtemp(prefix="tierd-platforms-", dir="/var/tmp"))
        cls.addClassCleanup(shutil.rmtree, cls.work, ignore_errors=True)
        cls.root, cls.tmp, cls.data = cls.work / "root", cls.work / "tmp", cls.work / "data"
        cls.tmp.mkdir()
        cache = BUILD / "debootstrap-cache"  # of packages, for the next time
        cache.mkdir(exist_ok=True)
        environment = {**os.environ, "PATH": os.environ["PATH"] + ":/usr/sbin:/sbin"}
        made = run("debootstrap", "--variant=minbase", "--include=python3", f"--cache-dir={cache}", "bullseye", cls.root, MIRROR, env=environment)
        assert made.returncode == 0, made.stdout[-1000:] + made.stderr[-1000:]
        rng = random.Random(5)
        for i in range(12):
            path = cls.data / f"d{i % 3}" / f"f{i:02}"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(rng.randbytes(3000 + 9_000_000 * (i == 5) + 7000 * i))

    def run_in(self, root, command, cached):
        """What the command, started inside the root, did, and the report of `tierctl run` if it went through the cache."""
        report = self.work / "report.json"
        report.unlink(missing_ok=True)
        words = ["chroot", root, *command]
        if cached:
            words = [TIERCTL, "run", "--source", self.data, "--ram", "128 MiB", "--report", report, "--", *words]
        environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root", "LC_ALL": "C.UTF-8", "TMPDIR": str(self.tmp)}
        done = run("unshare", "--mount", "--propagation", "private", "sh", "-c", ENTER, "sh", root, self.tmp, self.data, PRELOAD.parent, LIBTIER, "--", *words,
                   env=environment, timeout=120)
        return done, json.loads(report.read_text()) if cached and report.exists() else {}

    def same(self, root, *command):
        bare, _ = self.run_in(root, command, cached=False)
        served, report = self.run_in(root, command, cached=True)
        self.assertEqual((bare.returncode, bare.stdout, bare.stderr), (served.returncode, served.stdout, served.stderr), command)
        self.assertNotIn(bare.returncode, (90, 91, 126, 127), bare.stderr)
        self.assertGreater(report["opened"] + report["stats"], 0, report)
        self.assertEqual(report["fallback"].get("no_daemon", 0), 0, report)
        return report

    def test_it_is_an_old_one(self):
        done, _ = self.run_in(self.root, ["ldd", "--version"], cached=False)
        self.assertIn("2.31", done.stdout)

    def test_programs(self):
        for line in ("cat $(find D -type f | sort) | sha256sum; cat $(find D -type f | sort) | sha256sum; exit 3",
                     "cp -a D /tmp/copy && find /tmp/copy -type f | sort | xargs sha256sum; rm -rf /tmp/copy",
                     "tar cf - D 2>/dev/null | sha256sum; head -c 20 D/d0/f00 | od -c; tail -c 5 D/d2/f05 | od -c",
                     "while read -r x; do echo \"$x\" | cksum; (read -r y; echo \"$y\" | cksum); done < D/d1/f01 2>&1",
                     "perl -e 'for (@ARGV) { open my $f, q(<), $_; local $/; my $t = <$f>; print length $t, qq(\\n); print -s $f, qq(\\n) }' D/d0/* D/d0/*",
                     "perl -MCwd=realpath -e 'print realpath(q(D/d0/../d1)), qq(\\n)'; realpath D/d0/../d1/f01; readlink -f D/d2",
                     "find D -type f -newer D/d0/f00 | wc -l; stat -c '%s %a %h %i' D/d0/*; ls -lR D | wc -l"):
            with self.subTest(line):
                report = self.same(self.root, "sh", "-c", line.replace("D", str(self.data)))
                self.assertGreater(report["processes"], 0, report)

    def test_what_is_read_twice_comes_from_the_cache(self):
        report = self.same(self.root, "sh", "-c", f"cat {self.data}/d0/*; cat {self.data}/d0/*; cat {self.data}/d0/*")
        self.assertGreaterEqual(report["reads"]["ram"]["count"], 8, report["reads"])
        self.assertEqual(report["reads"]["bypass"]["count"], 0, report["reads"])

    def test_python_threads_forks_and_changes(self):
        code = PYTHON.replace("DATA", repr(str(self.data)))
        report = self.same(self.root, "python3", "-c", code)
        self.assertGreater(report["reads"]["ram"]["count"], 10, report["reads"])
        self.assertGreater(report["invalidations"], 3, report)

    def test_libtier_loads(self):
        code = f"import ctypes; t = ctypes.CDLL('{LIBTIER}/libtier.so.1'); b = ctypes.create_string_buffer(10 << 20); t.tier_read_file.restype = ctypes.c_ssize_t\n" \
               f"print([t.tier_read_file(None, b'{self.data}/d2/f05', b, ctypes.c_size_t(len(b)), None, 0) for i in range(3)], hash(b.raw[:1000]) != 0)"
        bare, _ = self.run_in(self.root, ["python3", "-c", code], cached=False)
        self.assertEqual((bare.returncode, bare.stderr), (0, ""))
        self.assertIn("[9038000, 9038000, 9038000]", bare.stdout)

    def test_a_root_with_nothing_but_libc(self):
        small = self.work / "small"
        libraries = pathlib.Path("lib/x86_64-linux-gnu")
        for name in ("bin", "lib64", "proc", "dev", str(libraries)):
            (small / name).mkdir(parents=True)
        for name in ("bin/cat", libraries / "libc.so.6"):
            shutil.copy(self.root / name, small / name)
        shutil.copy(next((self.root / libraries).glob("ld-2.*.so")), small / "lib64" / "ld-linux-x86-64.so.2")
        report = self.same(small, "cat", *(self.data / "d0" / f"f{i:02}" for i in (0, 3, 0, 3)))
        self.assertEqual(report["opened"], 4)
        self.assertGreaterEqual(report["reads"]["ram"]["count"], 2)


unittest.main(verbosity=2)

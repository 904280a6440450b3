"""Ordinary programs, bare and under `tierctl run`: same output, same exit code. In five states of the cache: cold, warm, from the SSD tier, under eviction
pressure, and with the daemon killed while the program has a session. On hits, the usual readers convert no descriptor and get their bytes from the cache. Each state is looked for in what was
reported, so that none of them is there by name only. A program or module that is missing (tools/deps.sh has them all) is a failure, unless TIERD_COMPAT_MAY_LACK=1 allows it.

usage: compat_test.py TIERCTL TIERD LIBTIER_PRELOAD C_PROGRAMS [only these programs...]: the last one a directory"""

import difflib
import json
import os
import pathlib
import random
import shutil
import signal
import socket as sockets
import subprocess
import sys
import tempfile
import threading
import time

TIERCTL, TIERD, PRELOAD, C_PROGRAMS = sys.argv[1:5]
ONLY = set(sys.argv[5:])
PYTHON = "/usr/bin/python3"
failures = []


PROFILER = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <unistd.h>
static long calls;
int open64(const char *p, int f, ...) {
  va_list a; va_start(a, f); unsigned m = va_arg(a, unsigned); va_end(a);
  ++calls;
  return ((int (*)(const char *, int, ...))dlsym(RTLD_NEXT, "open64"))(p, f, m);
}
ssize_t read(int fd, void *b, size_t n) { ++calls; return ((ssize_t (*)(int, void *, size_t))dlsym(RTLD_NEXT, "read"))(fd, b, n); }
int close(int fd) { ++calls; return ((int (*)(int))dlsym(RTLD_NEXT, "close"))(fd); }
"""

# Opens a file of the source before the library's own start: a library that is named behind it is initialised first.
EARLY = r"""
#include <stdio.h>
__attribute__((constructor)) static void Begin(void) {
  char line[80] = "nothing\n";
  FILE *f = fopen("text", "r");
  if (f) { fgets(line, sizeof line, f); fclose(f); }
  fputs(line, stderr);
}
"""


def fail(what, details=""):
    failures.append(what)
    print(f"FAILED {what}: {details}", flush=True)


def lacks(what):
    if os.environ.get("TIERD_COMPAT_MAY_LACK") == "1":
        print(f"not here: {what}", flush=True)
    else:
        fail(f"no {what}", "tools/deps.sh installs it")


def have(module):
    found = subprocess.run([PYTHON, "-c", f"import {module}"], capture_output=True).returncode == 0
    if not found:
        lacks(f"Python module {module}")
    return found


def make_files(root):
    rng = random.Random(7)
    root.mkdir(parents=True)
    (root / "text").write_text("".join(f"line {i} {rng.random()}\n" for i in range(20000)))
    (root / "blob").write_bytes(rng.randbytes(9_500_000))
    (root / "empty").write_bytes(b"")
    (root / "numbers").write_bytes(b"".join(i.to_bytes(4, "little") for i in range(25000)))
    (root / "numbers.words").write_text("12 34\n")
    for name, size in (("words", 100_000), ("large_words", 9_000_000)):  # with twins outside, which the C programs compare them with
        (root / name).write_bytes(rng.randbytes(size))
        (root.parent / "plain").mkdir(exist_ok=True)
        shutil.copy(root / name, root.parent / "plain" / name)
    (root / "names").mkdir()
    for i in range(20):
        (root / "names" / f"n{i:02}").write_text("x")
    for i in range(60):
        d = root / "many" / f"d{i % 4}"
        d.mkdir(parents=True, exist_ok=True)
        (d / f"f{i:03}").write_text(f"needle {i}\n" * (i * 37))
    (root / "link").symlink_to("text")
    shutil.copy(root / "text", root / "packed")
    for tool, name in (("xz", "packed.xz"), ("zstd", "packed.zst")):
        if not shutil.which(tool):
            continue
        with open(root / name, "wb") as out:
            subprocess.run([tool, "-c", "-q", str(root / "packed")], stdout=out, check=True)
    script = f"""
import os, pickle, sqlite3, zipfile, random
os.chdir({str(root)!r})
rng = random.Random(3)
with zipfile.ZipFile('z.zip', 'w') as z:
    for i in range(20): z.writestr(f'm{{i}}', rng.randbytes(50000))
pickle.dump({{'a': list(range(50000))}}, open('p.pickle', 'wb'))
db = sqlite3.connect('q.db'); db.execute('create table t(a,b)')
db.executemany('insert into t values(?,?)', ((i, i * i) for i in range(20000))); db.commit(); db.close()
try:
    import numpy as np
    np.save('a.npy', np.arange(700000, dtype='f8')); np.savez('a.npz', x=np.arange(99999), y=np.ones(5000))
except ImportError: pass
try:
    from PIL import Image
    Image.frombytes('RGB', (300, 200), rng.randbytes(180000)).save('i.png'); Image.frombytes('RGB', (300, 200), rng.randbytes(180000)).save('i.jpg', quality=90)
    Image.frombytes('RGB', (300, 200), rng.randbytes(180000)).save('i.bmp')
except ImportError: pass
try:
    import h5py
    with h5py.File('h.h5', 'w') as f: f['x'] = np.arange(400000); f.create_dataset('y', data=np.ones((300, 300)), chunks=(50, 50), compression='gzip')
except ImportError: pass
try:
    import lmdb
    env = lmdb.open('l.lmdb', subdir=False, map_size=1 << 24)
    with env.begin(write=True) as t:
        for i in range(2000): t.put(b'%06d' % i, rng.randbytes(500))
    env.close(); os.unlink('l.lmdb-lock')  # it has a hole: st_blocks of a cached file is what its size takes
except ImportError: pass
try:
    import torch
    torch.save({{'w': torch.arange(200000.)}}, 't.pt')
except ImportError: pass
"""
    subprocess.run([PYTHON, "-c", script], check=True)


def python(code):
    return [PYTHON, "-c", "import hashlib,os,sys\ndef h(b): print(hashlib.sha256(b).hexdigest())\n" + code]


def sh(line):
    return ["/bin/bash", "-c", line]


def c_symbols(program, work):
    return sh(f"for f in words large_words words large_words; do {C_PROGRAMS}/{program} $PWD/$f {work}/plain/$f $PWD/names; done")


def programs(work):
    out = str(work / "out")
    p = {
        "cat": ["cat", "text", "blob", "empty", "link"],
        "cp": sh(f"cp blob {out} && sha256sum < {out}"),
        "cp_reflink": sh(f"cp --reflink=auto text {out} && sha256sum < {out}; cp -a many {out}.d && find {out}.d -type f | sort | xargs sha256sum | sed s,{out},,; rm -rf {out}.d"),
        "dd": sh("dd if=blob bs=100k skip=3 count=40 status=none | sha256sum; dd if=blob iflag=direct bs=1M count=1 status=none | sha256sum"),
        "head_tail": sh("head -c 1000 text; tail -c 1000 text; tail -n 3 link; head -n 2 many/d1/f001"),
        "sha256sum": ["sha256sum", "text", "blob", "many/d0/f004"],
        "grep": sh("grep -r 'needle 5[0-9]' many | sort; grep -c line text; grep nothing text"),
        "find": sh("find . -ls | sort -k11"),
        "ls": sh("ls -l; ls -lR many; ls -i text; ls missing"),
        "stat": sh("stat -c '%n %s %b %B %o %i %d %a %h %u %g %t %T %Y %Z %y %z %F' text blob many link empty missing"),
        "tar": sh("tar c --sort=name many text link | sha256sum"),
        "redirect": sh("wc -c < text; { read a; (read b; echo $b); read c; echo $a $c; } < text; exec 5< text; read -u5 x; head -c 20 <&5; cat text | sort | tail -n 1"),
        "file": ["file", "text", "blob", "z.zip", "i.png", "many"],
        "xz": sh("xz -dc packed.xz | sha256sum; xz -t packed.xz"),
        "zstd": sh("zstd -dcq packed.zst | sha256sum"),
        "chdir": sh("cd many/d2 && cat f002 f006 ./f010 ../d1/f001 && ls"),
        "perl": ["perl", "-e", 'open F,"<","text"; my $n=0; while(<F>){$n+=length} print "$n\\n"; opendir D,"many/d1"; print join(",",sort readdir D),"\\n"; print -s "blob","\\n"; sysopen(G,"blob",0); sysseek(G,1000,0); sysread(G,$b,20); print unpack("H*",$b),"\\n"'],
        "node": ["node", "-e", 'const fs=require("fs"),c=require("crypto");for(const f of ["text","blob"]){console.log(c.createHash("sha256").update(fs.readFileSync(f)).digest("hex"),fs.statSync(f).size)};fs.createReadStream("blob").on("data",b=>{s=(global.s||0)+b.length;global.s=s}).on("end",()=>console.log(global.s));console.log(fs.readdirSync("many/d1").sort().join())'],
        # libuv's own system calls; streams, narrow and wide; a descriptor named through /proc.
        "node_fd": ["node", "-e", 'const fs=require("fs");const d=fs.openSync("blob"),a=Buffer.alloc(40),b=Buffer.alloc(50);console.log(fs.fstatSync(d).size,fs.fstatSync(d).ino,fs.readvSync(d,[a,b]),fs.readSync(d,a,0,40,1000),a.toString("hex"),b.toString("hex"));fs.closeSync(d);fs.copyFileSync("text",process.argv[1]);console.log(fs.statSync(process.argv[1]).size);fs.unlinkSync(process.argv[1])', out + ".n"],
        "streams": sh("od -A d -t x1 -j 5000000 -N 100 blob; rev text | sha256sum; column -t packed | tail -n 1; cut -c1-9 text | sort | uniq -c | wc -l; cmp text packed; comm -12 text link | wc -l"),
        "dev_fd": sh("exec 7< text; head -c 40 /dev/fd/7; cat /proc/self/fd/7 | sha256sum; diff <(sort text) <(sort packed) && echo same"),
        # Every symbol that is interposed, by each of its names; some processes each, so that the daemon may go in the middle.
        "c_symbols": c_symbols("preload_symbols", work),
        "c_symbols_fortified": c_symbols("preload_symbols_fortified", work),
        "c_names": sh(f"for i in 1 2 3 4; do {C_PROGRAMS}/preload_aliases $PWD/numbers $PWD/names | grep -v '^[0-9]* names$'; {C_PROGRAMS}/preload_exports $PWD/numbers $PWD/names listed wide loaded entered viewed; done"),
        "static": [str(work / "static"), "text"],
        "ifstream": [str(work / "ifstream"), "text"],
        # A sanitizer's runtime, and a library that counts calls as a profiler does: before us and behind us.
        "asan": sh(f"LD_PRELOAD=$(gcc -print-file-name=libasan.so):$LD_PRELOAD ASAN_OPTIONS=detect_leaks=0 {work}/asan text"),
        "profiler": sh(f"LD_PRELOAD={work}/profiler.so:$LD_PRELOAD {work}/ifstream text; LD_PRELOAD=$LD_PRELOAD:{work}/profiler.so {PYTHON} -c 'print(len(open(\"blob\",\"rb\").read()))'"),
        "early": sh(f"LD_PRELOAD=$LD_PRELOAD:{work}/early.so cat text blob"),
        "py_open": python("for f in ('text','blob','empty','link'): h(open(f,'rb').read())\nprint(sum(len(l) for l in open('text')))\nb=bytearray(5000)\nwith open('blob','rb',buffering=0) as f:\n  f.seek(77); print(f.readinto(b)); h(b); print(f.tell())"),
        "py_os": python("fd=os.open('blob',os.O_RDONLY); h(os.pread(fd,9000,123)); h(os.read(fd,77)); os.lseek(fd,-5,2); h(os.read(fd,100)); print(os.read(fd,1)); s=os.fstat(fd); print(s.st_size,s.st_ino,s.st_mtime_ns); os.close(fd)\nprint(sorted(os.listdir('many'))); print(sorted((e.name,e.is_file(),e.stat().st_size) for e in os.scandir('many/d1')))\nprint(sum(len(f) for _,_,f in os.walk('.')))\ntry: open('missing')\nexcept OSError as e: print(e.errno)\ntry: open('many')\nexcept OSError as e: print(e.errno)"),
        "py_mmap": python("import mmap\nfor n in ('text','blob'):\n  with open(n,'rb') as f:\n    m=mmap.mmap(f.fileno(),0,access=mmap.ACCESS_READ); h(m[:]); h(m[-4100:]); m.close()\n    c=mmap.mmap(f.fileno(),0,access=mmap.ACCESS_COPY); c[5]=7; h(c[:]); c.close()"),
        "py_zip": python("import zipfile\nz=zipfile.ZipFile('z.zip')\nfor n in sorted(z.namelist()): h(z.read(n))"),
        "py_pickle": python("import pickle; print(sum(pickle.load(open('p.pickle','rb'))['a']))"),
        "py_sqlite": python("import sqlite3; d=sqlite3.connect('file:q.db?mode=ro',uri=True); print(d.execute('select sum(a),sum(b) from t').fetchone())"),
        "py_subprocess": python("import subprocess\nwith open('text','rb') as f:\n  f.read(0); print(subprocess.run(['head','-c','9'],stdin=f,capture_output=True).stdout)\nr=os.open('text',os.O_RDONLY); os.set_inheritable(r,True); os.lseek(r,10,0)\nprint(subprocess.run(['sh','-c','head -c 5 <&9'],capture_output=True,pass_fds=(),preexec_fn=lambda:os.dup2(r,9),close_fds=False).stdout)\nprint(os.popen('tail -c 4 text').read())"),
        "py_shutil": python(f"import shutil; shutil.copy('blob',{out!r}); h(open({out!r},'rb').read()); shutil.copytree('many',{out!r}+'.t'); print(sum(os.path.getsize(os.path.join(d,x)) for d,_,n in os.walk({out!r}+'.t') for x in n)); shutil.rmtree({out!r}+'.t')"),
        "py_threads": python("from concurrent.futures import ThreadPoolExecutor as T\ndef r(i):\n  with open('blob','rb') as f: f.seek(i*1000); return hashlib.sha256(f.read(50000)).hexdigest()\nwith T(8) as t: print(hashlib.sha256(''.join(t.map(r,range(200))).encode()).hexdigest())"),
        "py_fork": python("import multiprocessing as m\ndef r(i): return hashlib.sha256(open('many/d%d/f%03d'%(i%4,i),'rb').read()).hexdigest()\nwith m.Pool(3) as p: print(p.map(r,range(60))[-1], len(set(p.map(r,range(60)))))"),
    }
    if have("numpy"):
        p["np_load"] = python("import numpy as n; a=n.load('a.npy'); print(a.sum(),a[-1]); z=n.load('a.npz'); print(z['x'].sum(),z['y'].sum())")
        p["np_memmap"] = python("import numpy as n; a=n.memmap('blob',dtype='u1',mode='r'); print(int(a.sum())); print(n.load('a.npy',mmap_mode='r')[::1000].sum())")
        p["np_fromfile"] = python("import numpy as n; print(int(n.fromfile('blob',dtype='u1',count=100000,offset=50).sum()))\nwith open('blob','rb') as f: f.seek(10); print(n.fromfile(f,dtype='u1',count=5).tolist(), f.tell())")
    if have("PIL"):
        p["pil"] = python("from PIL import Image\nfor n in ('i.png','i.jpg','i.bmp'): i=Image.open(n); h(i.convert('RGB').tobytes())")
    if have("h5py"):
        p["h5py"] = python("import h5py\nwith h5py.File('h.h5','r') as f: print(f['x'][:].sum(), f['y'][10:200,5:60].sum())")
    if have("lmdb"):
        p["lmdb"] = python("import lmdb\ne=lmdb.open('l.lmdb',subdir=False,readonly=True,lock=False)\nwith e.begin() as t: h(b''.join(v for _,v in t.cursor()))")
    if have("torch"):
        p["torch"] = python("import torch; print(torch.load('t.pt')['w'].sum().item())")
    p["rsync"] = sh(f"rsync -a many text link {out}.r/ && (cd {out}.r && find . -type f | sort | xargs sha256sum); rm -rf {out}.r")
    for name, tool in {"rsync": "rsync", "node": "node", "node_fd": "node", "perl": "perl", "file": "file", "xz": "xz", "zstd": "zstd"}.items():
        if not shutil.which(tool):
            lacks(f"{tool}, for {name}")
            del p[name]
    return {name: argv for name, argv in p.items() if not ONLY or name in ONLY}


# Readers that must not convert anything on hits, nor open the source, and get 95 % of their bytes from the cache; what they have mapped of it counts. lmdb
# gets none from there, and is told so. Not dd: it moves what it opens to its standard input, where a descriptor is real (PRELOAD.md, dup2), and its iflag=direct is the source's.
ON_HITS = ("cat", "cp", "head_tail", "sha256sum", "file", "xz", "zstd", "perl", "node", "node_fd", "ifstream", "py_open", "py_os", "py_zip", "py_pickle", "py_sqlite", "py_mmap", "py_threads",
           "py_shutil", "pil", "np_load", "h5py", "torch", "lmdb", "np_memmap", "np_fromfile")
# Mappings of the cache at least.
MAPS = {"py_mmap": 3, "np_memmap": 2}
# Uses of the source at most, of others none: a private mapping of a large file that may be written to; one of more than the file has; locks, of SQLite some for a transaction,
# not for each of its pages; cp asks for a clone.
SOURCE_USES = {"py_mmap": {"mmap": 1}, "lmdb": {"mmap": 1, "attributes": 1}, "h5py": {"lock": 1}, "py_sqlite": {"lock": 20}, "cp": {"ioctl": 1}}


CODES = {"grep": 1, "ls": 2, "stat": 1}  # of the others 0


class Daemon:
    def __init__(self, work, source, ram, ssd, policy="freeze"):
        self.work, self.source, self.ram, self.ssd, self.policy = work, source, ram, ssd, policy
        self.process = None
        self.socket = str(work / "run" / "tierd.sock")

    def start(self):
        log = open(self.work / "tierd.log", "wb")
        ssd = ["--ssd", str(self.work / "ssd"), "--ssd-capacity", "512 MiB", "--set", "ssd.min_free=1 MiB"] if self.ssd else ["--ssd", "off"]
        self.process = subprocess.Popen(
            [*os.environ.get("TIERD_UNDER", "").split(), TIERD, "--config", "none", "--socket", self.socket, "--metrics", "off", "--ram", self.ram, "--policy", self.policy, "--source", str(self.source),
             "--set", "source.racy_window=0s", *ssd], stdout=log, stderr=log, start_new_session=True)
        for _ in range(2000):
            if b"tierd ready" in (self.work / "tierd.log").read_bytes():
                return
            time.sleep(0.01)
        raise SystemExit("no tierd: " + (self.work / "tierd.log").read_text())

    def end(self, how=signal.SIGTERM):
        if self.process is not None:
            self.process.send_signal(how)
            self.process.wait()
            self.process = None

    def status(self):
        """{} where nobody answers. Asked without a process of its own: what is looked for may be over in milliseconds."""
        answer = b""
        try:
            with sockets.socket(sockets.AF_UNIX) as control:
                control.connect(str(self.work / "run" / "control.sock"))
                control.sendall(b"GET /v1/status HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n")
                while part := control.recv(65536):
                    answer += part
            return json.loads(answer.partition(b"\r\n\r\n")[2])
        except (OSError, ValueError):
            return {}

    def has_session(self):
        """Whether some program is connected."""
        return self.status().get("sessions", 0) > 0

    def await_records(self):
        """Until what the SSD tier has is known again."""
        for _ in range(2000):
            if self.status().get("state") == "ok":
                return
            time.sleep(0.01)
        fail("recovery", json.dumps(self.status()))

    def tierctl(self, *arguments):
        return subprocess.run([TIERCTL, "--socket", self.socket, *arguments], capture_output=True, text=True)


def run(argv, source, socket=None, report=None, during=None):
    """Exit code and output, or None where there was no end to it. `during` is called with the process, beside it."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("TIERD_")}
    environment.update(LC_ALL="C", TIERD_PRELOAD=PRELOAD, PYTHONDONTWRITEBYTECODE="1")
    if socket:
        environment["TIERD_SOCKET"] = socket
        argv = [TIERCTL, "run", "--source", str(source), "--report", str(report), "--", *argv]
    with subprocess.Popen(argv, cwd=source, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        helper = threading.Thread(target=during, args=(process,)) if during else None
        if helper:
            helper.start()
        try:
            output = process.communicate(timeout=120)
        except subprocess.TimeoutExpired:
            process.kill()
            output = None
        if helper:
            helper.join()
    return output and (process.returncode, *output)


def compare(state, name, expected, got):
    if got == expected:
        return
    fail(f"{state} {name}", f"exit code {expected[0]}, got {got and got[0]}")
    for stream in (1, 2) if got else ():
        before, after = (text[stream].decode(errors="replace").splitlines() for text in (expected, got))
        print("\n".join(list(difflib.unified_diff(before, after, "bare", "run", lineterm="", n=0))[:12]), flush=True)


def check_hits(name, document):
    bytes_read = {tier: part["bytes"] for tier, part in document.get("reads", {}).items()}
    total = sum(bytes_read.values())
    served = total > 0 and bytes_read["bypass"] <= 0.05 * total
    used, most = document["source_uses"], SOURCE_USES.get(name, {})
    if name == "lmdb":
        served = used.get("mmap", 0) == 1 and document["maps"] == 0 and "1 of 1 mapping showed the source's own file" in document["advice"]
    served = served and document["maps"] >= MAPS.get(name, 0) and all(count <= most.get(what, 0) for what, count in used.items())
    if not served or document["conversions"] or document["real_opens"]:
        fail(f"hits {name}", json.dumps(document))


def go_through(state, daemon, suite, expected, work, before=lambda: None, during=None):
    report, documents = work / "report.json", {}
    for name, argv in suite.items():
        before()
        report.unlink(missing_ok=True)
        before_ssd = metric(daemon, "tierd_ssd_device_read_bytes_total") if during is None else 0
        beside = (lambda process: during(name, process)) if during else None
        compare(state, name, expected[name], run(argv, daemon.source, daemon.socket, report, beside))
        documents[name] = json.loads(report.read_text()) if report.exists() else {}
        documents[name]["device_bytes"] = metric(daemon, "tierd_ssd_device_read_bytes_total") - before_ssd if during is None else 0
    return documents


def served_from(tier, document):
    return document.get("reads", {}).get(tier, {}).get("bytes", 0)


def metric(daemon, start):
    """The sum of the daemon's metrics that begin so."""
    return sum(float(line.split()[-1]) for line in daemon.tierctl("metrics").stdout.splitlines() if line.startswith(start))


def check_ssd(name, warm, document):
    """What came from the cache when it was warm came from there; the first read may be by a child with a real descriptor, or of a chunk that an open has brought."""
    if served_from("ram", warm) and document["device_bytes"] == 0:
        fail(f"ssd {name}", f"nothing came from there: {json.dumps(document)}")


def compile_programs(work):
    (work / "s.c").write_text('#include <stdio.h>\nint main(int c,char**v){FILE*f=fopen(v[1],"r");long n=0;int b;while((b=getc(f))!=EOF)n=n*31+b;printf("%ld\\n",n);return 0;}')
    (work / "i.cc").write_text('#include <fstream>\n#include <iostream>\n#include <string>\nint main(int,char**v){std::ifstream f(v[1]);std::string l;long n=0;while(std::getline(f,l))n+=l.size();f.clear();f.seekg(100);std::getline(f,l);std::cout<<n<<l<<"\\n";}')
    subprocess.run(["cc", "-O1", "-static", "-o", str(work / "static"), str(work / "s.c")], check=True)
    subprocess.run(["c++", "-O1", "-o", str(work / "ifstream"), str(work / "i.cc")], check=True)
    subprocess.run(["c++", "-O1", "-fsanitize=address", "-o", str(work / "asan"), str(work / "i.cc")], check=True)
    for name, text in (("profiler", PROFILER), ("early", EARLY)):
        (work / f"{name}.c").write_text(text)
        subprocess.run(["cc", "-O1", "-shared", "-fPIC", "-o", str(work / f"{name}.so"), str(work / f"{name}.c")], check=True)


def main():
    work = pathlib.Path(tempfile.mkdtemp(prefix="tierd-compat-", dir=os.environ.get("TMPDIR", "/var/tmp")))
    daemon = None
    try:
        source = work / "source"
        make_files(source)
        compile_programs(work)
        # Reads through a ring, whose descriptors nobody can follow.
        rings = ["cc", "-O1", "-w", "-DLINKED", f"-I{pathlib.Path(__file__).resolve().parents[2]}", "-o", str(work / "rings"), str(pathlib.Path(__file__).with_name("rings.c")), "-luring"]
        suite = programs(work)
        if subprocess.run(rings, capture_output=True).returncode != 0:
            lacks("liburing-dev")
        elif not ONLY or "io_uring" in ONLY:
            suite = {"io_uring": [str(work / "rings"), "numbers", "now"], **suite}
        expected = {name: run(argv, source) for name, argv in suite.items()}
        for name, bare in expected.items():
            if bare is None or bare[0] != CODES.get(name, 0):
                fail(f"bare {name}", bare)

        daemon = Daemon(work, source, "256 MiB", True)  # a quarter of it may be held, by descriptors and mappings
        daemon.start()

        def evict():
            done = daemon.tierctl("evict", "--invalidate", str(source))
            if done.returncode != 0:
                fail("evict", done.stderr)

        cold = go_through("cold", daemon, suite, expected, work, before=evict)
        for name, document in cold.items():
            if name in ON_HITS and not document["source_read_bytes"]:
                fail(f"cold {name}", f"the source was not read: {json.dumps(document)}")
        daemon.tierctl("prefetch", "--wait", str(source))
        warm = go_through("warm", daemon, suite, expected, work)
        for name in ON_HITS:
            if name in warm:
                check_hits(name, warm[name])

        def restart():  # a clean stop writes everything to the SSD tier; RAM is empty afterwards
            daemon.end()
            daemon.start()
            daemon.await_records()

        ssd = go_through("ssd", daemon, suite, expected, work, before=restart)
        for name, document in ssd.items():
            check_ssd(name, warm[name], document)
        told = [name for name, document in ssd.items() if served_from("ssd", document)]
        if not ONLY and len(told) < 10:
            fail("ssd", f"only {told} were told that bytes came from there")

        hit, alone = set(), set()

        def kill_and_restart(name, process):
            while process.poll() is None and not daemon.has_session():
                pass
            time.sleep(random.choice((0, random.uniform(0, 0.1))))
            if daemon.has_session():
                hit.add(name)
            daemon.end(signal.SIGKILL)
            time.sleep(0.1)
            daemon.start()

        wanted = {name for name, document in warm.items() if document["opened"] or document["stats"] or document["listings"]}
        for _ in range(8):  # a session may be over before it is seen; whether a program reads just then is a matter of luck
            left = wanted - hit or wanted
            killed = go_through("killed", daemon, {name: suite[name] for name in suite if name in left}, expected, work, during=kill_and_restart)
            alone |= {name for name, document in killed.items() if document.get("fallback", {}).get("no_daemon")}
            enough = ONLY or (len(alone) >= 3 and any(name.startswith("c_") for name in alone))
            if enough and wanted <= hit:
                break
        print(f"had a session when the daemon was killed: {' '.join(sorted(hit))}; read without one: {' '.join(sorted(alone))}")
        if wanted - hit:
            fail("killed", f"never while these had a session: {sorted(wanted - hit)}")
        if not enough:
            fail("killed", f"only {sorted(alone)} met no daemon")
        daemon.end()
        daemon = Daemon(work, source, "16 MiB", False, "lru")
        daemon.start()
        go_through("pressure", daemon, suite, expected, work)
        if not ONLY and metric(daemon, 'tierd_evictions_total{tier="ram",cause="capacity"}') == 0:
            fail("pressure", "nothing was evicted")
        print(f"{len(suite)} programs, {len(failures)} failures")
    finally:
        if daemon:
            daemon.end()
        shutil.rmtree(work, ignore_errors=True)
    return 1 if failures else 0


sys.exit(main())

#!/usr/bin/env python3
"""Writes the man pages. What a page lists has one source: options and verbs are what --help of the built programs says, keys are config/tierd.toml, functions are tier.h,
metrics are docs/metrics.md; only the prose is here. A test compares what this writes with docs/man.

    tools/man_pages.py BUILD docs/man
"""

import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
DATE = "2026-11-28"  # of the last change to the prose


# ---- roff -----------------------------------------------------------------------------------------------------------------------

def esc(text):
    """Text that roff takes as it is."""
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return re.sub(r"^([.'])", r"\\&\1", text, flags=re.M)


def prose(text):
    """Paragraphs: `code` is bold, blank lines part them, indented lines are shown as they are."""
    out = []
    for block in re.split(r"\n\s*\n", text.strip("\n")):
        if block.startswith("    "):
            out += [".PP", ".in +4n", ".EX", *(esc(line[4:]) for line in block.splitlines()), ".EE", ".in"]
            continue
        words = " ".join(line.strip() for line in block.splitlines())
        out += [".PP", re.sub(r"`([^`]+)`", lambda m: "\\fB" + m[1] + "\\fR", esc(words))]
    return "\n".join(out)


def tagged(term, text):
    return f".TP\n\\fB{esc(term)}\\fR\n{esc(text)}"


def page(name, section, what, parts):
    title = f'.TH {name.upper()} {section} {DATE} tierd tierd'
    head = f'.\\" Written by tools/man_pages.py from what is listed here; do not edit.\n{title}\n.SH NAME\n{name} \\- {esc(what)}\n'
    body = "\n".join(f".SH {heading}\n{text}" for heading, text in parts)
    return head + re.sub(r"^(\.S[HS] .*)\n\.PP$", r"\1", body, flags=re.M) + "\n"


# ---- what programs say ----------------------------------------------------------------------------------------------------------

def helped(*command):
    return subprocess.run([str(c) for c in command], capture_output=True, text=True, check=True, env={"PATH": "/usr/bin:/bin", "COLUMNS": "1000"}).stdout


def listed(text, heading):
    """(term, meaning) of a block of --help such as "Options:"."""
    block = re.search(rf"^{heading}:[^\n]*\n((?:  .*\n|\n(?=  ))*)", text, re.M)
    rows = []
    for line in block[1].splitlines() if block else []:
        row = re.match(r"  (\S.*?)(?:  +(\S.*))?$", line)
        if row and not re.match(r" {8}", line):
            rows.append([row[1], row[2] or ""])
        elif line.strip():
            rows[-1][1] = (rows[-1][1] + " " + line.strip()).strip()
    return rows


RANGE = r":(?:FLOAT|U?INT) in \[(\S+) - (\S+)\]"


def limited(term, about):
    """What an option means, with the range that CLI11 puts into its name."""
    limits = re.search(RANGE, term)
    return f"{about}; {limits[1]} to {limits[2]}" if limits else about


def shape(term):
    """CLI11's way to write an option, in that of a man page."""
    term = re.sub(RANGE, "", term)
    term = re.sub(r"\bTEXT:\{([^}]*)\}", lambda m: m[1].replace(",", "|"), term)
    return re.sub(r"^(-\w),(--)", r"\1, \2", term).replace(" TEXT", " VALUE").replace(" UINT", " NUMBER")


def arguments(text):
    """Those that have no name on the command line: "path TEXT ... REQUIRED" is `path ...`."""
    return "\n".join(tagged(term.split()[0] + (" ..." if " ... " in term + " " else ""), about) for term, about in listed(text, "Positionals"))


def options(text, skip=()):
    return "\n".join(tagged(shape(term), limited(term, about)) for term, about in listed(text, "Options") if not any(s in term for s in skip))


# ---- the pages ------------------------------------------------------------------------------------------------------------------

EXIT = ".TP\n.B 0\ndone\n.TP\n.B 1\nan error, said in one line on stderr\n.TP\n.B 2\ndone in part\n.TP\n.B 3\nthe daemon cannot be reached\n.TP\n.B 64\nwrong usage"


def tierd_8(build):
    text = helped(build / "tierd/tierd", "--help")
    return page("tierd", 8, "cache training data of a slow file system in RAM and on SSD", [
        ("SYNOPSIS", prose("`tierd` [OPTIONS]")),
        ("DESCRIPTION", prose("""
tierd serves the files of directory trees (sources) on a parallel file system from the memory and the SSD of this node, to all processes of one user. It reads a source and never
writes to it. Programs read through libtier(3), the preload library (`tierctl run`, see tierctl(1)) or the Python package; a hit in memory costs them no system call. When the daemon
is not there they read the source themselves: it may be started, ended and killed at any time.

Without options and without a configuration file the sources are all mounted network file systems, the RAM tier takes a quarter of the memory, and the SSD tier goes to a local
directory that it finds. Once it is ready it says in one line on stdout where its sockets, metrics and tiers are.""")),
        ("OPTIONS", options(text)),
        ("CONFIGURATION", prose("""
The first of: the file of `--config`, ~/.config/tierd/tierd.toml (where XDG_CONFIG_HOME is set, that directory in place of ~/.config), /etc/tierd/tierd.toml; then the environment; then the options. See tierd.toml(5). A file with a mistake is
refused with its line and a suggestion, at the start and at a reload; a refused reload changes nothing.""")),
        ("SIGNALS", ".TP\n.B SIGTERM, SIGINT\nEnds: what is on its way to the SSD is written, within 1.5 s.\n.TP\n.B SIGHUP\nReads the configuration again, as tierctl config reload."),
        ("ENVIRONMENT", "\n".join(tagged(*row) for row in [
            ("TIERD_SOCKET", "Path of the socket, as --socket."),
            ("TIERD_PRIVATE_TMPFS", "WRITABLE:READ_ONLY, two mounts of one tmpfs that no other process may reach: the memory that clients map. The system units set it. Without it tierd mounts one in a user namespace."),
            ("XDG_RUNTIME_DIR", "Sockets are in its directory tierd, else in /tmp/tierd-UID."),
            ("XDG_CONFIG_HOME", "In place of ~/.config: tierd/tierd.toml and tierd/policies are looked for in it, if it is an absolute path."),
            ("CACHE_DIRECTORY, XDG_CACHE_HOME, HOME", "Where a place for the SSD tier is looked for, in this order, then /var/tmp/tierd-UID."),
            ("NOTIFY_SOCKET, WATCHDOG_USEC, WATCHDOG_PID", "Set by systemd(1): ready, reloading and stopping are told to it, and signs of life from the loop, four in the time that it allows."),
        ])),
        ("EXIT STATUS", ".TP\n.B 0\nended by a signal that asks for it, or as the other end of \\-\\-lifeline was closed\n.TP\n.B 1\ncannot start, for the reason said in one line\n.TP\n.B 64\nwrong option or configuration, or no file where \\-\\-config says\n.TP\n.B 75\nanother directory is where a source was, or none (renamed, replaced, mounted over): start it again"),
        ("FILES", "\n".join(tagged(*row) for row in [
            ("tierd.sock, control.sock", "In the runtime directory (0700): clients, and tierctl(1) or curl --unix-socket."),
            ("SSD directory", "Region files and an index; ours alone (0700). May be removed while tierd does not run."),
        ])),
        ("SEE ALSO", prose("tierctl(1), tierd.toml(5), tierd\\-metrics(7), libtier(3)".replace("\\-", "-"))),
    ])


def verbs_of(program):
    """(names, one line, help) of every verb, those of a verb of verbs too."""
    found = []
    for names, about in listed(helped(program, "--help"), "Subcommands"):
        name = names.split(",")[0]
        text = helped(program, name, "--help")
        below = listed(text, "Subcommands")
        if not below:
            found.append((names, about, text))
        for word, meaning in below:
            found.append((f"{name} {word}", meaning, helped(program, name, word.split(",")[0], "--help")))
    return found


# Those that screens of tierctl show, in docs/glossary.md.
SCREEN_WORDS = ("admission", "bypass", "conversion", "eviction", "hit", "job", "look-ahead", "miss", "no room", "pin", "plan", "policy", "read-ahead", "regret",
                "source", "staleness bound", "turned away", "warm-up")


def words():
    """The words of the screens, a sentence each."""
    meanings = dict(re.findall(r"^\| (?!word)([^|]+?) \| ([^|]+?) \|$", (ROOT / "docs/glossary.md").read_text(), re.M))
    return "\n".join(tagged(word, meanings[word][:1].upper() + meanings[word][1:] + ".") for word in SCREEN_WORDS)


def tierctl_1(build):
    program = build / "tierctl/tierctl"
    verbs = []
    for names, about, text in verbs_of(program):
        usage = re.search(r"^Usage: (.*)$", text, re.M)[1]
        usage = re.sub(r"^\S*tierctl ", "", usage).replace("SUBCOMMAND", "").strip()
        verbs.append(f".SS {esc(names)}\n{esc(about[:1].upper() + about[1:])}.\n.PP\n.B tierctl {esc(usage)}")
        verbs.append(arguments(text))
        verbs.append(options(text, skip=("--help",)))
        for example in re.findall(r"^(?:Example: |  +)(tierctl .*)$", text, re.M):
            verbs.append(f".PP\nExample:\n.in +4n\n.EX\n{esc(example)}\n.EE\n.in")
    return page("tierctl", 1, "ask and direct tierd, the cache of training data on this node", [
        ("SYNOPSIS", prose("`tierctl` [`--socket` PATH] [`--json`] VERB [ARGUMENT ...]")),
        ("DESCRIPTION", prose("""
tierctl speaks to the tierd of the calling user on this node. Data goes to stdout, messages to stderr; progress and colours are for terminals: red is wrong, yellow wants attention, green is well. Paths are those of the source; they may be
relative.""")),
        ("OPTIONS", options(helped(program, "--help"))),
        ("VERBS", "\n".join(v for v in verbs if v)),
        ("WORDS", words() + "\n" + prose("""
Documents (`--json`, `--report`) and metrics count the reasons of bypasses under `fallback` (tierd_fallback_total) and, of opens under the preload library, under `real_opens`
(tierd_real_opens_total). Screens show both as one list, with blanks in the names. `no_frame` is "no room" there. `not_cached` is an open whose reason is in `fallback`, so screens leave it out.""")),
        ("ENVIRONMENT", "\n".join(tagged(*row) for row in [
            ("TIERD_SOCKET", "The daemon's socket, or its control socket; no directory."),
            ("NO_COLOR, TERM", "With any value of NO_COLOR, or with TERM unset or dumb, there are no colours; --color always or never goes before."),
            ("LC_ALL, LC_CTYPE, LANG", "The first that is set says whether tierctl top draws its history with blocks (UTF-8) or in ASCII."),
            ("TIERD_DISABLE", "1: tierctl run runs the command as if tierd were not there."),
            ("XDG_RUNTIME_DIR", "Without TIERD_SOCKET and --socket the control socket is in its directory tierd, else in /tmp/tierd-UID."),
            ("TIERD_PREFIX", "Directories, parted by colons: where it is set tierctl run leaves it to the command, which is served below them only."),
            ("TIERD_BINARY, TIERD_PRELOAD", "The daemon that tierctl run starts and the library that it preloads, in place of those beside tierctl."),
            ("SLURM_JOB_ID, PBS_JOBID, LSB_JOBID", "Runs with the same one share a daemon (tierctl run)."),
            ("TIERD_LEDGER", "The directory by which the runs of a user know of each other on a node; default /tmp."),
            ("SLURM_TMPDIR, TMPDIR", "Where tierctl run puts the SSD tier, before /var/tmp and /tmp; the first that can be used, those on a network file system last. Where that is in memory (tmpfs) or on a network file system there is no SSD tier: name one with --ssd. A directory of --ssd that cannot be used is replaced by that one, with a line that says so. tierctl gc looks there for what runs left."),
            ("XDG_CONFIG_HOME, HOME", "Where the configuration and the policies of a daemon that tierctl run starts are looked for, and those by which tierctl doctor judges: see tierd(8)."),
        ])),
        ("EXIT STATUS", EXIT + "\n.PP\nrun ends as its command does, with 127 where the command is not found and 126 where it cannot be executed. version says its own version without a daemon, too, and ends with 0."),
        ("SEE ALSO", prose("tierd(8), tierd.toml(5), tierd-metrics(7)")),
    ])


def wanted(build, key):
    """What the daemon says that a key takes, if that has limits."""
    told = subprocess.run([str(build / "tierd/tierd"), "--config", "none", "--set", f"{key}=?", "--check-config"], capture_output=True, text=True, check=False, env={"PATH": "/usr/bin:/bin"}).stderr
    kind = re.search(r" wants ((?:an?|text) .*(?:\d|with a unit).*), not \"", told)
    return kind[1] if kind else ""


def tierd_toml_5(build):
    """Keys are the lines `#key = default   # text` of config/tierd.toml below their [section]; ranges are what the daemon says of a wrong value."""
    sections, section, notes = {}, "", []
    for line in (ROOT / "config/tierd.toml").read_text().splitlines():
        table = re.match(r"#?(\[+\w+\]+) *(?:# (.*))?$", line)
        key = re.match(r"#(\w+) = (\"[^\"]*\"|\S+) *# (.*)$", line)
        if table:
            section = table[1]
            sections[section] = [table[2] or ""]
        elif key:
            sections.setdefault(section, [""]).append(key.groups())
        elif re.match(r"#(\w+) = ", line):
            sections.setdefault(section, [""]).append((*re.match(r"#(\w+) = (\S+)", line).groups(), notes[-1] if notes else ""))
        elif line.startswith("# "):
            notes.append(line[2:])
    body = []
    for name, (about, *keys) in sections.items():
        body.append(f".SS {esc(name) or 'Before all tables'}\n{esc(about)}")
        for key, default, text in keys:
            reload = text.startswith("(r) ")
            text = text[4:] if reload else text
            kind = wanted(build, ".".join(filter(None, [name.strip("[]"), key])))
            text = text[:1].upper() + text[1:].rstrip(".") + "." + (f" {kind[:1].upper() + kind[1:]}." if kind else "")
            body.append(tagged(f"{key} = {default}", text + (" Takes effect at a reload." if reload else "")))
    return page("tierd.toml", 5, "configuration of tierd", [
        ("SYNOPSIS", prose("$XDG_CONFIG_HOME/tierd/tierd.toml (~/.config/tierd/tierd.toml where that is not set), /etc/tierd/tierd.toml")),
        ("DESCRIPTION", prose("""
TOML. Every key is optional; what follows shows the defaults. Sizes are text such as "800 GB" (kB, MB, GB, TB: powers of 1000) or "4 MiB" (KiB, MiB, GiB, TiB, and K, M, G, T as in Slurm's --mem: powers of 1024), times such as "60s", "500ms", "2h". An unknown key is an error that names
the line and the key that was probably meant. `tierd --check-config` looks for mistakes, `tierd --print-config` shows what is in effect and where it came from,
`tierctl config get` what the running daemon uses, `tierctl config set` changes what can change at run time until the next reload.""")),
        ("KEYS", "\n".join(body)),
        ("NOTES", prose("""
There may be 64 sources. On the command line `--set source.KEY=VALUE` sets a key of all of them, `--set source.NAME.KEY=VALUE` that of one.

Programs look for the socket in the default runtime_dir: with another runtime_dir or socket they need `TIERD_SOCKET`. tierctl(1) looks for control.sock beside that socket: a control_socket elsewhere needs `tierctl --socket`.

The metrics page can be read by every user of the node: see tierd-metrics(7).""")),
        ("EXAMPLE", prose('    [[source]]\n    path = "/pfs/imagenet"\n    staleness = "immutable"\n\n    [ssd]\n    directory = "/nvme/tierd"\n    capacity = "800 GB"'.replace("\n\n", "\n    \n"))),
        ("SEE ALSO", prose("tierd(8), tierctl(1)")),
    ])


def comment_lines(comment):
    comment = re.sub(r"\s*\*+/\s*$", "", comment.strip())
    return [re.sub(r"^\s*/?\*+ ?", "", line) for line in comment.splitlines()]


def comment_prose(comment):
    """Running text; lines that are set in (tables) stay lines."""
    out = []
    for line in comment_lines(comment):
        if line.startswith("  "):
            out += [".br", esc(line.strip())]
        elif line:
            out.append(esc(line))
    return ".PP\n" + "\n".join(out)


def libtier_3(_build):
    header = (ROOT / "client_lib/include/tier/tier.h").read_text()
    top = "\n".join(comment_lines(re.match(r"/\*.*?\*/", header, re.S)[0]))
    conventions = re.findall(r"^ *(\d+)\. (.*?)(?=^ *\d+\. |^\s*$)", top.split("Conventions")[1] + "\n\n", re.M | re.S)
    environment = re.search(r"Environment, .*", top, re.S)[0]
    functions = []
    for heading, part in re.findall(r"^/\* ---- (.*?) -+ \*/\n(.*?)(?=^/\* ---- |\Z)", header, re.M | re.S):
        functions.append(f".SS {esc(heading.capitalize())}")
        for block in re.split(r"\n\s*\n", part.split("\n#ifdef __cplusplus")[0].strip()):
            comment, body = re.match(r"(/\*.*?\*/\n)?(.*)", block, re.S).groups()
            shown = re.sub(r"TIER_API |\s*TIER_NOEXCEPT", "", body).rstrip()
            functions.append(".PP\n.EX\n" + "\n".join(esc(line) for line in shown.splitlines()) + "\n.EE")
            if comment:
                functions.append(comment_prose(comment))
    flags = re.search(r"/\* Flags of the calls.*?(?=/\* Where)", header, re.S)[0]
    return page("libtier", 3, "read files through tierd", [
        ("SYNOPSIS", ".EX\n#include <tier/tier.h>\n.EE\n.PP\nLink with \\-ltier, or with what pkg\\-config \\-\\-cflags \\-\\-libs tier says; needs libc alone. C++: <tier/tier.hpp>."),
        ("EXAMPLE", ".EX\ntier_view view;\nint error = tier_get(NULL, \"/pfs/train/img_0001.jpg\", &view, 0);\nif (error == 0) {\n  decode(view.data, view.size);\n  tier_release(&view);\n}\n.EE"),
        ("CONVENTIONS", "\n".join(f".IP {number}. 4\n{esc(' '.join(text.split()))}" for number, text in conventions)),
        ("FLAGS", ".EX\n" + "\n".join(esc(line) for line in flags.rstrip().splitlines()) + "\n.EE"),
        ("FUNCTIONS", "\n".join(functions)),
        ("ENVIRONMENT", prose(environment)),
        ("SEE ALSO", prose("tierctl(1), tierd(8)")),
    ])


def tierd_metrics_7(_build):
    text = (ROOT / "docs/metrics.md").read_text()
    body = []
    for heading, part in re.findall(r"^## (.*?)\n(.*?)(?=^## |\Z)", text, re.M | re.S):
        body.append(f".SS {esc(heading)}")
        for name, kind, labels, meaning in re.findall(r"^\| `(tierd_[a-z_]+)` \| (\w+) \| ([^|]*) \| ([^|\n]*) \|", part, re.M):
            names = ", ".join(re.findall(r"`([a-z_]+)`", labels))
            body.append(tagged(name + (f"{{{names}}}" if names else ""), f"({kind}) " + meaning.replace("`", "")))
    return page("tierd-metrics", 7, "metrics of tierd for Prometheus", [
        ("DESCRIPTION", prose("""
tierd serves `/metrics` on loopback (daemon.metrics_address, default 127.0.0.1:9469, or a free port where another daemon of the node has that one and no address was named: `tierctl status`
says which); `tierctl metrics` gives the same page over the control socket, to stdout or for the textfile
collector of a node exporter. Base units; counters end in _total and start from nought with the daemon; label sets are closed: never a path, a user or a pid. A source
without `name` is named by the last component of its path, so with `tierctl run --source`, too. Every user of the node may read the page on loopback: where that tells too much, `name` the sources,
or set daemon.metrics_address to \"off\" and use `tierctl metrics`; the daemon of `tierctl run` has a port in any case. A daemon with two
sources gives at most 320 series; each further source gives 15 more, each policy that is tried 3. Rules, alerts and a dashboard are in share/tierd/prometheus and share/tierd/grafana.""")),
        ("METRICS", "\n".join(body)),
        ("SEE ALSO", prose("tierd(8), tierctl(1)")),
    ])


def libtier_preload_7(_build):
    """What is covered is the table of PRELOAD.md, what converts that of counters.h."""
    folder = ROOT / "client_lib/preload"
    calls = re.search(r"^## Calls\n.*?\n\|-.*?\n(.*?)\n\n", (folder / "PRELOAD.md").read_text(), re.M | re.S)[1]
    covered = []
    for names, about in re.findall(r"^\| (.*?) \| (.*) \|$", calls, re.M):
        about = re.sub(r" ?\(`[a-z_]+\.h`(: |\))", lambda m: " (" if m[1] == ": " else "", about)  # where the code is
        covered.append(tagged(names.replace("`", ""), re.sub(r"`|\*\*", "", about)))
    reasons = re.findall(r'"(\w+)"', re.search(r"kConversionNames\[\] = \{(.*?)\}", (folder / "counters.h").read_text(), re.S)[1])
    return page("libtier_preload", 7, "unmodified programs read through tierd", [
        ("SYNOPSIS", prose("`tierctl run` [OPTIONS] `--` COMMAND [ARGUMENT ...]\n\n`LD_PRELOAD=libtier_preload.so TIERD_PREFIX=`DIR COMMAND [ARGUMENT ...]")),
        ("DESCRIPTION", prose("""
libtier_preload.so serves what a dynamically linked program reads of regular files below a source from the cache of tierd(8), without a change to the program. Everything else goes to
libc untouched. `tierctl run` (tierctl(1)) sets it up, starts a daemon if there is none, and says at the end what it did.

A file that is served has a descriptor that the library emulates: a hit costs no access to the source and hardly a system call. What cannot be emulated turns such a descriptor, in place
and at its offset, into a real one of the source's file, or into a sealed copy in memory of its bytes when that file is gone or another by now (a conversion): the program is then slower
and never wrong. When the daemon is not there, or does not answer, the source is read.

Changes that the program makes below a source (writing, truncating, renaming, removing, linking, attributes) are told to the daemon before the call that makes them returns. Those of
other nodes are seen within the staleness bound of the data set.""")),
        ("ENVIRONMENT", "\n".join(tagged(*row) for row in [
            ("TIERD_SOCKET", "Path of the daemon's socket; default $XDG_RUNTIME_DIR/tierd/tierd.sock, else /tmp/tierd-UID/tierd.sock."),
            ("TIERD_PREFIX", "Directories, parted by colons: only paths below them are served. Without it the daemon is asked for its sources at the first open outside the system's own directories."),
            ("TIERD_DISABLE", "1: the library does nothing at all."),
            ("TIERD_REAL_FDS", "1: every descriptor is a real one (tierctl run --real-fds); what stat, access and opendir answer still comes from the cache."),
            ("TIERD_LOWEST_FD", "1: the same, for programs that rely on open giving the lowest number that is free: descriptors of served files have high numbers otherwise."),
            ("TIERD_REPORT", "Absolute path of a file to which each process that came near a source appends, when it ends or executes another program, one line of JSON: reads and bytes by tier; bypasses, conversions and uses of the source's own file by reason. A program whose C library is not glibc appends one line when it starts, with other_libc."),
            ("TIERD_CHILDREN", "Absolute path of a file of 4096 zero bytes that belongs to the user (tierctl run makes one). By it the processes of a job know of those that change files without the library: what these have changed is seen once their parent has waited for them."),
            ("TIERD_LOG", "1: libtier tells on stderr when it finds or loses its daemon."),
        ]) + "\n" + prose("None of them counts in a program that runs with more rights than its caller (set-user-ID, capabilities): there the library does nothing.")),
        ("COVERED", "\n".join(covered)),
        ("CONVERSIONS", prose("Counted in the report by reason: " + ", ".join(f"`{reason}`" for reason in reasons) + ".")),
        ("NOTES", prose("""
These opens bypass the cache: files opened with other flags than those listed; all files of a process that has loaded liburing, libaio or a library with Go's runtime, or entered cuFile, whose
descriptors leave the library's sight; what is opened while 0, 1 or 2 is free; files that the process has open for writing.

A name that goes through symbolic links is served, too: below a source, and from outside (~/data -> /pfs/data), where the library learns a link from one of the first files or directories
that are opened through it. A link that is changed is seen at once; another one that it leads through, changed by another process, within the staleness bound of the data set. Calls that
mean the link itself (lstat, readlink, O_NOFOLLOW) are the kernel's. Read from the source are: names with "..", links out of a source, and most of a directory of links to single
files from outside.

Programs need glibc 2.17 or later, whichever tierd was built with. Under another C library (musl) the library is loaded and does nothing.

Not covered are static programs, Go, and system calls made by hand other than by syscall(2): a name reads the source there, a number of a served file gives EBADF, never other bytes.

A served file's descriptor is 768 or more (from three quarters of the limit where that is lower), /proc/self/fd shows a socket behind it, st_blocks is what the size takes and st_atime
what it was when tierd last asked the source.

A mapping of a served file is a snapshot of its open as regards what other processes write. What the program itself writes is seen in it. LMDB with locks is read from the source, by which
it is right and slower: readers of a database that nobody writes to pass lock=False.""")),
        ("EXAMPLE", prose("    tierctl run --source /pfs/imagenet -- python3 train.py\n    TIERD_PREFIX=/pfs/imagenet LD_PRELOAD=libtier_preload.so python3 train.py")),
        ("SEE ALSO", prose("tierctl(1), tierd(8), libtier(3), ld.so(8)")),
    ])


PAGES = {"tierd.8": tierd_8, "tierctl.1": tierctl_1, "tierd.toml.5": tierd_toml_5, "libtier.3": libtier_3, "tierd-metrics.7": tierd_metrics_7, "libtier_preload.7": libtier_preload_7}


def main():
    if len(sys.argv) != 3:
        sys.exit("usage: tools/man_pages.py BUILD OUTPUT")
    build, output = (pathlib.Path(a).resolve() for a in sys.argv[1:])
    for name, make in PAGES.items():
        folder = output / f"man{name[-1]}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(make(build))


if __name__ == "__main__":
    main()

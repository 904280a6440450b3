"""Every example of the documents is run: blocks of sh, C, C++ and Python of README.md, CONTROL.md, docs/*.md and the READMEs of folders, against a daemon of the test's with a source at /pfs/train (a directory of
the test's stands in for it). A block that cannot be run here says why in a comment above it: <!-- not run here: REASON -->. Output and figures are blocks of text. Blocks by indentation are not allowed: nobody
knows what they are."""

import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ["TIERD_BUILD"])
sys.path.insert(0, str(ROOT / "tests/monitoring"))
from rig import Daemon  # noqa: E402

FOLDERS = ("bench", "systemd", "client_lib/python", "client_lib/examples/python", "policies", "policies/orders", "tests/pfs_sim", "tests/fuzz")
DOCUMENTS = [ROOT / "README.md", ROOT / "tierd/server/CONTROL.md", *(ROOT / folder / "README.md" for folder in FOLDERS), *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^(?:<!-- not run here: (?P<reason>.+?) -->\n)?```(?P<kind>\w*)\n(?P<text>.*?)^```$", re.M | re.S)
C_MAIN = "static void decode(const void* data, size_t size) {{ (void)data; if (size != 3000) exit(9); }}\nint main(void) {{\n{body}\nreturn error;\n}}\n"
CPP_MAIN = "static std::size_t decoded;\nstatic void Decode(const void*, std::size_t size) {{ decoded = size; }}\nint main(int, char** argv) {{\nconst char* const path = argv[1];\n{body}\nreturn decoded == 3000 ? 0 : 9;\n}}\n"
PYTHON = "import sys\nimport numpy as np\npath = sys.argv[1]\n"


def blocks():
    """(document, line, kind, text, reason why it is not run)."""
    for document in DOCUMENTS:
        text = document.read_text()
        for found in BLOCK.finditer(text):
            line = text[: found.start("kind")].count("\n") + 1
            yield document, line, found["kind"], found["text"], found["reason"]


class Examples(unittest.TestCase):
    def setUp(self):
        self.work = pathlib.Path(tempfile.mkdtemp(prefix="tierd-docs-"))
        self.addCleanup(shutil.rmtree, self.work, ignore_errors=True)
        self.train = self.work / "pfs/train"
        self.train.mkdir(parents=True)
        for i in range(40):
            (self.train / f"img_{i:04}.jpg").write_bytes(os.urandom(3000))
        self.home = self.work / "home"
        (self.home / "bin").mkdir(parents=True)
        for program in ("tierd/tierd", "tierctl/tierctl"):
            (self.home / "bin" / pathlib.Path(program).name).symlink_to(BUILD / program)
        (self.home / "train.py").write_text(f"import pathlib\nassert sum(len(p.read_bytes()) for p in pathlib.Path('{self.train}').iterdir()) == 120000\n")
        (self.home / ".config/tierd").mkdir(parents=True)
        (self.home / ".config/tierd/tierd.toml").write_text(f'[[source]]\npath = "{self.train}"\n')  # without one tierd looks at the mounts of the machine
        self.daemon = Daemon(self.work, "daemon", self.train)
        self.addCleanup(self.daemon.stop, signal.SIGKILL)
        self.environment = {"PATH": f"{self.home}/bin:/usr/sbin:/usr/bin:/bin", "HOME": str(self.home), "USER": "alice", "TIERD_SOCKET": str(self.daemon.socket), "TMPDIR": str(self.work),
                            "TIERD_LIBTIER": str(BUILD / "client_lib/src/libtier.so"), "TIERD_BINARY": str(BUILD / "tierd/tierd"), "TIERD_PRELOAD": str(BUILD / "client_lib/preload/libtier_preload.so"),
                            "PYTHONPATH": str(BUILD / "client_lib/python"), "LC_ALL": "C.UTF-8", "PYTHONDONTWRITEBYTECODE": "1"}

    def placed(self, text):
        """The example with its places on this machine."""
        text = text.replace("/var/lib/prometheus/node-exporter", str(self.home)).replace("127.0.0.1:9469", f"127.0.0.1:{self.daemon.port}")
        return re.sub(r"/pfs/\w+", str(self.train), text)

    def run_in_place(self, *command):
        return subprocess.run([str(c) for c in command], cwd=self.home, env=self.environment, capture_output=True, text=True, check=False, timeout=240)

    def compiled(self, compiler, suffix, main, text):
        lines = self.placed(text).splitlines()
        includes = "\n".join(line for line in lines if line.startswith("#include"))
        body = "\n".join(line for line in lines if not line.startswith("#include"))
        source = self.home / f"example{suffix}"
        source.write_text(f"#include <stdlib.h>\n{includes}\n" + main.format(body=body))
        library = BUILD / "client_lib/src"
        made = self.run_in_place(*compiler, "-Wall", "-Wextra", "-Werror", "-I", ROOT / "client_lib/include", source, "-o", self.home / "example", f"-L{library}", "-ltier", f"-Wl,-rpath,{library}")
        return made if made.returncode != 0 else self.run_in_place(self.home / "example", self.train / "img_0003.jpg")

    def one(self, kind, text):
        if kind == "sh":
            return self.run_in_place("bash", "-euo", "pipefail", "-c", self.placed(text))
        if kind == "c":
            return self.compiled(["cc", "-std=c11"], ".c", C_MAIN, text)
        if kind == "cpp":
            return self.compiled(["c++", "-std=c++17"], ".cc", CPP_MAIN, text)
        return self.run_in_place("/usr/bin/python3", "-c", PYTHON + self.placed(text), self.train / "img_0003.jpg")

    def test_every_example_runs(self):
        ran = 0
        for document, line, kind, text, reason in blocks():
            if kind == "text" or reason:
                continue
            with self.subTest(place=f"{document.relative_to(ROOT)}:{line}"):
                self.assertIn(kind, ("sh", "c", "cpp", "python"), "a block that says what it is, or text")
                result = self.one(kind, text)
                self.assertEqual(result.returncode, 0, f"{text}\n{result.stdout}\n{result.stderr}")
                ran += 1
        print(f"{ran} examples ran")
        self.assertGreaterEqual(ran, 10)

    def test_examples_of_help_are_understood(self):
        """Those of `tierctl VERB --help`: whatever comes of them without a daemon, they are no wrong usage."""
        environment = self.environment | {"TIERD_SOCKET": str(self.work / "nobody.sock")}
        tried = 0
        for file in sorted((ROOT / "tests/golden/tierctl-help").iterdir()):
            examples = re.search(r"^Examples?:\n((?:  .*\n)+)", file.read_text(), re.M)
            for line in examples[1].splitlines() if examples else ():
                command = re.split(r"   | [|>]", line.strip())[0]
                if not command.startswith("tierctl ") or command.startswith("tierctl run "):  # README has those of run
                    continue
                with self.subTest(verb=file.name, example=command):
                    tried += 1
                    try:
                        result = subprocess.run(["bash", "-c", self.placed(command)], cwd=self.home, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=10)
                    except subprocess.TimeoutExpired:
                        continue  # understood, and at work
                    self.assertNotIn(result.returncode, (64, 127), result.stderr)
                    self.assertGreaterEqual(result.returncode, 0)
        self.assertGreater(tried, 30)

    def test_no_block_by_indentation(self):
        for document in DOCUMENTS:
            outside = BLOCK.sub("", document.read_text())
            found = re.search(r"(?:^|\n)\n(    \S.*)", outside)
            self.assertIsNone(found, f"{document.relative_to(ROOT)}: {found and found[1]}")

    def test_what_is_not_run_says_why(self):
        for document, line, kind, _, reason in blocks():
            if reason is not None:
                self.assertGreater(len(reason), 20, f"{document.name}:{line}")
        for document in DOCUMENTS:
            self.assertEqual(document.read_text().count("<!-- not run here"), sum(1 for d, _, _, _, r in blocks() if d == document and r), f"{document.name}: a reason without a block below it")


    def test_the_lines_to_build_and_run_one_thing_work(self):
        """Those of docs/developing.md, in the build tree that is there: targets exist, and what runs a test or a program runs."""
        block = next(text for document, _, kind, text, _ in blocks() if document.name == "developing.md" and kind == "sh")
        lines = [line.split(" #")[0].strip() for line in block.splitlines()]
        targets = [word for line in lines if line.startswith("ninja ") for word in line.split()[3:]]
        self.assertIn("base_test", targets)
        known = subprocess.run(["ninja", "-C", BUILD, "-t", "query", *targets], capture_output=True, text=True, check=False)
        self.assertEqual(known.returncode, 0, known.stderr)
        runs = [line for line in lines if line.startswith(("build/dev/", "ctest "))]
        self.assertGreaterEqual(len(runs), 3)
        for line in runs:
            with self.subTest(line=line):
                ran = self.run_in_place("bash", "-euo", "pipefail", "-c", line.replace("build/dev", str(BUILD)))
                self.assertEqual(ran.returncode, 0, ran.stdout + ran.stderr)


class Words(unittest.TestCase):
    def test_links_lead_somewhere(self):
        for document in DOCUMENTS:
            text = document.read_text()
            headings = {re.sub(r"[^\w -]", "", h.lower()).replace(" ", "-") for h in re.findall(r"^#+ (.+)$", text, re.M)}
            for target in re.findall(r"\]\(([^)]+)\)", text):
                path, _, anchor = target.partition("#")
                if path:
                    self.assertTrue((document.parent / path).exists(), f"{document.name}: {target}")
                elif anchor:
                    self.assertIn(anchor, headings, f"{document.name}: {target}")

    def test_tests_that_are_named_exist(self):
        """`name_test`, and `family_*` with at least one of that family."""
        known = subprocess.run([os.environ["TIERD_CTEST"], "--test-dir", BUILD, "-N"], capture_output=True, text=True, check=True).stdout
        known = set(re.findall(r"Test +#\d+: (\w+)", known))  # name_test.2 is a part of name_test
        for document in ("SECURITY.md", "README.md", *(page.relative_to(ROOT).as_posix() for page in sorted((ROOT / "docs").glob("*.md")))):
            text = (ROOT / document).read_text()
            missing = set(re.findall(r"`(\w+_test)`", text)) - known
            missing |= {family for family in re.findall(r"`([a-z0-9]+_)\*`", text) if not any(name.startswith(family) for name in known)}
            self.assertEqual(missing, set(), document)
        self.assertGreater(len(set(re.findall(r"`(\w+_test)`", (ROOT / "docs/faults.md").read_text()))), 20)

    def test_numbers_that_comments_cite_are_there(self):
        """HAZARDS 2.11, FAULTS F08 and T13: rows of docs/hazards.md, docs/faults.md and SECURITY.md. No other lists are cited."""
        hazards, faults, security = ((ROOT / page).read_text() for page in ("docs/hazards.md", "docs/faults.md", "SECURITY.md"))
        there = set(re.findall(r"^## (\d)\.", hazards, re.M)) | {number for cell in re.findall(r"^\|([^|]+)\|", hazards + faults + security, re.M) for number in cell.split()}
        cited = set()
        for folder in ("bench", "client_lib", "cmake", "docs", "policies", "tests", "tierctl", "tierd", "tools"):
            for path in (ROOT / folder).rglob("*"):
                if path.suffix in (".c", ".cc", ".cmake", ".h", ".md", ".py", ".sh", ".txt"):
                    text = path.read_text(errors="replace")
                    self.assertNotRegex(text, r"\b(DESIGN|ORDER|LAB) \d", path)
                    cited |= set(re.findall(r"\bHAZARDS (\d(?:\.\d+)?|[MSW]\d+[a-c]?)", text)) | set(re.findall(r"\bFAULTS ([FT]\d+)", text))
        self.assertGreater(len(cited), 25)
        self.assertEqual(cited - there, set())

    def test_faults_that_are_survived_are_listed(self):
        """Each of these has a row that names it, what happens, and a test."""
        wanted = "F01 F02 F05 F09 F11 F12 F13 F15 F17 F18 F22 F24 F25 F28 F30 F31 F32 F36 F38 F39 F40 F41 F42 F43 F45 F47 F50 F53 F54 F56".split()
        rows = re.findall(r"^\|([F0-9 ]*)\|[^|]+\|[^|]+\|.*`\w+_test`.*\|$", (ROOT / "docs/faults.md").read_text(), re.M)
        self.assertEqual(set(wanted) - set(" ".join(rows).split()), set())

    def test_the_places_of_a_change_exist(self):
        """Each path that docs/developing.md and docs/architecture.md name."""
        for document in ("docs/developing.md", "docs/architecture.md"):
            named = set(re.findall(r"`((?:bench|client_lib|config|docs|policies|systemd|tests|tierctl|tierd|tools)(?:/[\w.]+)+/?)`", (ROOT / document).read_text()))
            self.assertGreater(len(named), 15, document)
            self.assertEqual({path for path in named if not (ROOT / path).exists()}, set(), document)

    def test_the_readme_is_short(self):
        lines = (ROOT / "README.md").read_text().splitlines()
        self.assertLessEqual(len(lines), 150)
        self.assertLessEqual(len((ROOT / "CHANGELOG.md").read_text().splitlines()), 60)
        self.assertLessEqual(sum(1 for line in (ROOT / "docs/glossary.md").read_text().splitlines() if re.match(r"\| (?!word|-)", line)), 50)

    def test_every_document_is_found_from_the_readme(self):
        readme = (ROOT / "README.md").read_text()
        for document in (ROOT / "docs").glob("*.md"):
            self.assertIn(f"docs/{document.name}", readme)


if __name__ == "__main__":
    unittest.main(verbosity=2)

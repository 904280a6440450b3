"""The man pages are what tools/man_pages.py writes from the programs that were built; they list every option, verb, key, function and metric that there is; mandoc and groff find
nothing to complain about; and `cmake --install` puts them where man looks."""

import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ["TIERD_BUILD"])
PAGES = sorted((ROOT / "docs/man").glob("man*/*"))


def run(*command, **more):
    return subprocess.run([str(c) for c in command], capture_output=True, text=True, check=False, **more)


def page(name):
    """A page as text, without what sets it."""
    text = (ROOT / f"docs/man/man{name[-1]}" / name).read_text().replace("\\-", "-").replace("\\e", "\\")
    return re.sub(r"\\f[BR]|\\&", "", text)


class Man(unittest.TestCase):
    def test_pages_are_what_is_written_from_the_code(self):
        with tempfile.TemporaryDirectory() as folder:
            ran = run("/usr/bin/python3", ROOT / "tools/man_pages.py", BUILD, folder)
            self.assertEqual((ran.returncode, ran.stderr), (0, ""))
            for path in PAGES:
                written = pathlib.Path(folder) / path.relative_to(ROOT / "docs/man")
                self.assertEqual(path.read_text(), written.read_text(), f"{path.name}: run tools/man_pages.py {BUILD} docs/man")
        self.assertEqual([p.name for p in PAGES], ["tierctl.1", "libtier.3", "tierd.toml.5", "libtier_preload.7", "tierd-metrics.7", "tierd.8"])

    def test_formatters_find_nothing(self):
        for path in PAGES:
            if shutil.which("mandoc"):
                ran = run("mandoc", "-T", "lint", "-W", "warning", path)
                self.assertEqual((ran.returncode, ran.stdout + ran.stderr), (0, ""))
            if shutil.which("man"):
                ran = run("man", "--warnings", "-E", "UTF-8", "-l", path, env={**os.environ, "MANPAGER": "cat", "LC_ALL": "C.UTF-8"})
                self.assertEqual((ran.returncode, ran.stderr), (0, ""))

    # The generator reads --help and the tables; these look at the code itself, so that neither can forget something.

    def test_every_option_and_verb_of_the_code(self):
        tierd, tierctl = page("tierd.8"), page("tierctl.1")
        for option in set(re.findall(r'"(--[a-z-]+)"', (ROOT / "tierd/main.cc").read_text())):
            self.assertIn(option, tierd)
        verbs = re.findall(r'\{"([a-z ]+)", tierctl::', (ROOT / "tierctl/main.cc").read_text())
        self.assertGreater(len(verbs), 15)
        for verb in verbs:
            self.assertRegex(tierctl, rf"(?m)^\.SS {verb}\b")
        code = "".join(p.read_text() for p in (ROOT / "tierctl").glob("cli*.cc"))
        for option in set(re.findall(r'(?:add_option|add_flag)\("(?:-\w,)?(--[a-z-]+)"', code)):
            self.assertIn(option, tierctl)

    def test_every_range(self):
        text = page("tierd.toml.5")
        kinds = [kind.replace('\\"', '"') for kind in re.findall(r'[\w>]\("(a \w+(?: [a-z ]+)? of \d(?:[^"\\]|\\.)*)"', (ROOT / "tierd/config/keys.cc").read_text())]
        self.assertGreater(len(kinds), 12)
        for kind in kinds:
            self.assertIn(kind[1:], text)

    def test_every_key(self):
        text = page("tierd.toml.5")
        keys = re.findall(r'table\.Add\("(\w+)"', (ROOT / "tierd/config/keys.cc").read_text())
        self.assertGreater(len(keys), 25)
        for key in keys:
            self.assertRegex(text, rf"(?m)^{key} = ")

    def test_values_and_names_are_written_as_they_are(self):
        text = page("tierd.toml.5")
        values = {value for list_ in re.findall(r'Choice<[\w:]+>\(.*?, \{(.*?)\}', (ROOT / "tierd/config/keys.cc").read_text()) for value in re.findall(r'"([a-z]\w+)"', list_)}
        self.assertLess({"hugetlb", "trace"}, values)
        for name in values | {"tierctl"}:
            self.assertNotRegex(text, rf"\b{name.capitalize()}\b")

    def test_every_function(self):
        text = page("libtier.3")
        for symbol in set(re.findall(r"\btier_[a-z_]+\b(?=\()", re.sub(r"/\*.*?\*/", "", (ROOT / "client_lib/include/tier/tier.h").read_text(), flags=re.S))):
            self.assertIn(symbol + "(", text)

    def test_every_variable_and_symbol_of_the_preload_library(self):
        text = page("libtier_preload.7")
        folder = ROOT / "client_lib"
        code = "".join(p.read_text() for part in ("preload", "src") for p in (folder / part).glob("*.cc"))
        variables = set(re.findall(r'"(TIERD_[A-Z_]+)"', code))
        self.assertGreater(len(variables), 5)
        for variable in variables:
            self.assertIn(variable, text)
        for reason in re.findall(r'"(\w+)"', re.search(r"kConversionNames\[\] = \{(.*?)\}", (folder / "preload/counters.h").read_text(), re.S)[1]):
            self.assertRegex(text, rf"\b{reason}\b")
        for call in ("openat", "mmap", "copy_file_range", "posix_spawn", "rename", "sendmsg", "flock", "opendir"):
            self.assertRegex(text, rf"\b{call}\b")

    def test_every_metric(self):
        text = page("tierd-metrics.7")
        for name in set(re.findall(r'"(tierd_[a-z_]+)"', (ROOT / "tierd/base/metric_table.h").read_text())):
            self.assertRegex(text, rf"(?m)^{name}\b")

    def test_installed_where_man_looks(self):
        with tempfile.TemporaryDirectory() as prefix:
            ran = run(os.environ["TIERD_CMAKE"], "--install", BUILD, "--prefix", prefix, "--component", "tierd")
            self.assertEqual(ran.returncode, 0, ran.stderr)
            for name in ("tierd.8", "tierctl.1", "tierd.toml.5", "tierd-metrics.7"):
                stem, section = name.rsplit(".", 1)
                found = [p.name for p in (pathlib.Path(prefix) / f"share/man/man{section}").iterdir()]
                self.assertTrue(name in found or f"{name}.gz" in found, name)
                if shutil.which("man"):
                    self.assertIn(name, run("man", "-M", f"{prefix}/share/man", "-w", section, stem).stdout)
            self.assertTrue((pathlib.Path(prefix) / "lib/systemd/system/tierd@.service").is_file())
            self.assertTrue((pathlib.Path(prefix) / "share/tierd/prometheus/alert_rules.yml").is_file())
            self.assertTrue(os.access(pathlib.Path(prefix) / "share/tierd/slurm/prolog.sh", os.X_OK))


if __name__ == "__main__":
    unittest.main(verbosity=2)

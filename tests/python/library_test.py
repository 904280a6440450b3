"""Where libtier is found, what is said when it is not, and the package as it is installed."""

import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

import rig

BUILD = pathlib.Path(os.environ["TIERD_BUILD"])
LIBTIER = BUILD / "client_lib" / "src" / "libtier.so.1"


class LibraryTest(unittest.TestCase):
    def setUp(self):
        self.base = pathlib.Path(tempfile.mkdtemp(prefix="tierd-py-"))
        self.addCleanup(shutil.rmtree, self.base)

    def loaded(self, python_path, **environment):
        return rig.run_python("from tierd._library import library; print(library().path)", env={"PYTHONPATH": str(python_path), **environment})

    def copy_package(self, to):
        shutil.copytree(BUILD / "client_lib" / "python" / "tierd", to / "tierd")
        return to

    def test_in_the_build_tree(self):
        self.assertEqual(self.loaded(BUILD / "client_lib" / "python").stdout.strip(), str(LIBTIER))

    def test_named_by_the_environment(self):
        package = self.copy_package(self.base)
        ended = self.loaded(package, TIERD_LIBTIER=str(LIBTIER))
        self.assertEqual(ended.stdout.strip(), str(LIBTIER))
        wrong = self.loaded(BUILD / "client_lib" / "python", TIERD_LIBTIER="/nowhere/libtier.so")
        self.assertNotEqual(wrong.returncode, 0)
        self.assertIn("/nowhere/libtier.so", wrong.stderr)

    def test_by_the_loader(self):
        package = self.copy_package(self.base)
        ended = self.loaded(package, LD_LIBRARY_PATH=str(LIBTIER.parent))
        self.assertEqual(ended.stdout.strip(), "libtier.so.1", ended.stderr)

    def test_nowhere(self):
        package = self.copy_package(self.base)
        ended = rig.run_python("""
import tierd, tierd.plan
try: tierd.read("/etc/hostname")
except ImportError as error: print(type(error).__name__, "TIERD_LIBTIER" in str(error), "libtier.so.1" in str(error))
""", env={"PYTHONPATH": str(package), "LD_LIBRARY_PATH": ""})
        self.assertEqual(ended.stdout.strip(), "LibraryNotFound True True", ended.stderr)

    def test_not_a_library_of_ours(self):
        ended = rig.run_python("import tierd; tierd.read('/etc/hostname')", env={"TIERD_LIBTIER": "libc.so.6"})
        self.assertIn("tier_abi_version", ended.stderr)

    def test_installed_and_moved(self):
        subprocess.run(["cmake", "--install", str(BUILD), "--prefix", str(self.base / "one"), "--component", "python"], check=True, capture_output=True)
        # As the component libtier does it (tests/install), which wants more to be built than this test needs.
        folder = re.search(r"^CMAKE_INSTALL_LIBDIR:\w+=(.*)$", (BUILD / "CMakeCache.txt").read_text(), re.M)[1]
        (self.base / "one" / folder).mkdir(parents=True, exist_ok=True)
        shutil.copy(LIBTIER, self.base / "one" / folder / LIBTIER.name)
        os.rename(self.base / "one", self.base / "two")
        package = self.base / "two" / "lib" / "python3"
        found = self.loaded(package)
        self.assertTrue(found.stdout.startswith(str(self.base / "two" / "lib")), found.stderr)
        self.assertTrue((package / "tierd" / "py.typed").is_file())
        self.assertTrue((package / "tierd" / "torch" / "__init__.py").is_file())
        (self.base / "file").write_bytes(b"installed")
        ended = rig.run_python("import sys, fsspec; print(fsspec.open('tierd://' + sys.argv[1]).open().read())", str(self.base / "file"), env={"PYTHONPATH": str(package)})
        self.assertEqual(ended.stdout.strip(), "b'installed'", ended.stderr)

    def test_every_file_is_installed(self):
        source = pathlib.Path(__file__).resolve().parents[2] / "client_lib" / "python" / "tierd"
        built = BUILD / "client_lib" / "python" / "tierd"
        here = {str(path.relative_to(source)) for path in source.rglob("*") if path.suffix in (".py", ".typed") or path.name == "py.typed"}
        self.assertEqual(here, {str(path.relative_to(built)) for path in built.rglob("*") if path.is_file() and "__pycache__" not in path.parts})

    def test_importing_loads_nothing(self):
        ended = rig.run_python("import sys, tierd, tierd.plan; print([m for m in ('torch', 'numpy', 'fsspec') if m in sys.modules])")
        self.assertEqual(ended.stdout.strip(), "[]", ended.stderr)

    def test_submodules_are_loaded_when_named(self):
        ended = rig.run_python("import tierd; print(tierd.torch.ImageFolder.__name__, tierd.fsspec.register())")
        self.assertEqual(ended.stdout.strip(), "ImageFolder None", ended.stderr)

    def test_submodules_are_listed_where_they_can_be_loaded(self):
        listed = "import sys, tierd; print(sorted({'torch', 'fsspec'} & set(dir(tierd))), 'torch' in sys.modules)"
        self.assertEqual(rig.run_python(listed).stdout.strip(), "['fsspec', 'torch'] False")
        self.assertEqual(rig.run_python("import sys; sys.modules['torch'] = None; " + listed).stdout.strip(), "['fsspec'] True")

    def test_submodules_say_what_they_need(self):
        ended = rig.run_python("""
import sys
sys.modules["torch"] = sys.modules["fsspec"] = None  # as if they were not installed
import tierd
for name in ("torch", "fsspec"):
    try: getattr(tierd, name)
    except ModuleNotFoundError as error: print(str(error).partition(":")[0])
print(hasattr(tierd, "tensorflow"))
""")
        self.assertEqual(ended.stdout.splitlines(), ["tierd.torch needs PyTorch", "tierd.fsspec needs fsspec", "False"], ended.stderr)

    def test_disabled_is_plain_posix(self):
        ended = rig.run_python("import tierd; print(tierd.read('/etc/hostname') == open('/etc/hostname','rb').read(), tierd.stats().connected)", env={"TIERD_DISABLE": "1"})
        self.assertEqual(ended.stdout.strip(), "True False", ended.stderr)


if __name__ == "__main__":
    unittest.main()

"""The packages and the archive on a Debian on which nothing of ours, nor anything that ours needs, has ever been: a root of its own, made by debootstrap from the mirror that apt uses. There the archive
is unpacked and used by a user without root; then the packages are installed by apt, used in one command, from C and from Python, and purged."""

import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ["TIERD_BUILD"])
MIRROR = os.environ.get("TIERD_DEBIAN_MIRROR", "http://deb.debian.org/debian")
PACKAGES = ("tierd", "libtier1", "libtier-dev", "python3-tierd")
# In a mount namespace of its own, so that nothing stays mounted however this ends.
ENTER = """
mount -t proc proc "$1/proc" && mount --rbind /dev "$1/dev" && mount -t tmpfs -o mode=1777 tmpfs "$1/tmp"
root=$1; shift
exec chroot "$root" "$@"
"""


def run(*command, **more):
    return subprocess.run([str(c) for c in command], capture_output=True, text=True, check=False, **more)


def why_not():
    if os.geteuid() != 0 or os.environ.get("TIERD_RESTRICTED"):
        return "a clean root needs root"
    return None if shutil.which("debootstrap", path=os.environ["PATH"] + ":/usr/sbin") and shutil.which("patchelf") else "no debootstrap or patchelf here"


@unittest.skipIf(why_not(), why_not())
class CleanRoot(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.work = pathlib.Path(tempfile.mkdtemp(prefix="tierd-clean-"))
        cls.addClassCleanup(shutil.rmtree, cls.work, ignore_errors=True)
        cls.root = cls.work / "root"
        cache = BUILD / "debootstrap-cache"  # of packages, for the next time
        cache.mkdir(exist_ok=True)
        environment = {**os.environ, "PATH": os.environ["PATH"] + ":/usr/sbin:/sbin"}
        made = run("debootstrap", "--variant=minbase", f"--cache-dir={cache}", "bookworm", cls.root, MIRROR, env=environment)
        if made.returncode != 0:
            raise unittest.SkipTest("no clean root: " + (made.stdout + made.stderr).strip().splitlines()[-1])
        given = os.environ.get("TIERD_PACKAGES")  # what tools/package.sh made; else those of this build
        to = cls.root / "packages"
        to.mkdir()
        if given:
            for path in [*pathlib.Path(given).glob("*.deb"), pathlib.Path(given) / "tierd.tar.gz"]:
                shutil.copy(path, to)
        else:
            packed = run(os.environ["TIERD_CPACK"], "-G", "DEB", "-B", cls.work / "cpack", cwd=BUILD)
            assert packed.returncode == 0, packed.stdout + packed.stderr
            for path in (cls.work / "cpack").glob("*.deb"):
                shutil.copy(path, to)
            archived = run(ROOT / "tools/archive.sh", BUILD, to / "tierd.tar.gz")
            assert archived.returncode == 0, archived.stderr
        data = cls.root / "data"
        data.mkdir()
        for i in range(20):
            (data / f"f{i}").write_text(f"{i}\n" * 1000)
        cls.inside("useradd", "--create-home", "alice")

    @classmethod
    def inside(cls, *command, user=None):
        words = ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups", "env", "-i", f"HOME=/home/{user}", "PATH=/usr/bin:/bin", *command] if user else command
        environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root", "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C.UTF-8"}
        return run("unshare", "--mount", "--propagation", "private", "sh", "-c", ENTER, "sh", cls.root, *words, env=environment)

    def good(self, *command, user=None):
        ran = self.inside(*command, user=user)
        self.assertEqual(ran.returncode, 0, f"{command}\n{ran.stdout[-2000:]}{ran.stderr[-2000:]}")
        return ran.stdout

    def read_twice(self, tierctl):
        """One command; what was read first from the source is served from RAM then."""
        ran = self.inside(tierctl, "run", "--source", "/data", "--ram", "64 MiB", "--", "sh", "-c", "cat /data/f*; cat /data/f*", user="alice")
        self.assertEqual(ran.returncode, 0, ran.stderr)
        once = "".join(f"{i}\n" * 1000 for i in sorted(range(20), key=lambda i: f"f{i}"))
        self.assertEqual(ran.stdout, once * 2)
        self.assertRegex(ran.stderr, r"ram \d", ran.stderr)
        self.assertNotIn("without a cache", ran.stderr)

    def test_the_archive_and_then_the_packages(self):
        for program in ("tierd", "tierctl", "gcc", "python3"):
            self.assertNotEqual(self.inside("which", program).returncode, 0, "a clean root")
        self.good("tar", "-C", "/home/alice", "-xzf", "/packages/tierd.tar.gz", user="alice")
        self.read_twice("/home/alice/tierd/bin/tierctl")
        self.good("mv", "/home/alice/tierd", "/home/alice/elsewhere", user="alice")
        self.read_twice("/home/alice/elsewhere/bin/tierctl")

        before = set(self.good("sh", "-c", "find /usr /etc /var/lib/systemd -name '*tier*'").split())
        self.good("apt-get", "update", "-qq")
        self.good("sh", "-c", "apt-get install -y -qq --no-install-recommends /packages/*.deb gcc libc6-dev pkg-config")
        self.assertRegex(self.good("tierd", "--version"), r"^tierd \d+\.\d+")
        self.read_twice("tierctl")
        self.check_c_and_python()
        self.good("apt-get", "purge", "-y", "-qq", *PACKAGES)
        left = set(self.good("sh", "-c", "find /usr /etc /var/lib/systemd -name '*tier*'").split()) - before
        self.assertEqual({path for path in left if not path.startswith("/usr/share/doc")}, set(), "after a purge")

    def check_c_and_python(self):
        self.good("sh", "-c", "cc -Wall -Werror -o /opt/tier_cat /usr/share/tierd/examples/tier_cat.c $(pkg-config --cflags --libs tier)")
        # Packages of a build for development have the Python package where that build says.
        path = self.good("sh", "-c", "dirname $(dirname $(dpkg -L python3-tierd | grep '/tierd/_client.py$'))").strip()
        script = "/opt/tier_cat /data/f7 && PYTHONPATH=" + path + " python3 -c 'import tierd; print(tierd.read(\"/data/f7\").decode(), end=\"\")'"
        ran = self.inside("tierctl", "run", "--quiet", "--no-preload", "--source", "/data", "--", "sh", "-c", script, user="alice")
        self.assertEqual((ran.returncode, ran.stdout), (0, "7\n" * 2000), ran.stderr)
        self.assertIn("through tierd", ran.stderr, "tier_cat says where it came from")


if __name__ == "__main__":
    unittest.main(verbosity=2)

#!/usr/bin/python3
"""clang_test.py BUILD: clang, which makes libFuzzer programs of the targets (TIERD_FUZZ), understands every one of them, and the libraries that all stand on. Exit 77: no clang here."""
import concurrent.futures
import json
import os
import shlex
import shutil
import subprocess
import sys


def wanted(command):
    """Of a compiler's command line what says where and as what to look; the rest is another compiler's."""
    words = iter(shlex.split(command))
    for word in words:
        if word in ("-isystem", "-I"):
            yield from (word, next(words))
        elif word.startswith(("-I", "-D", "-std=")):
            yield word


def check(compiler, entry):
    command = [compiler, "-fsyntax-only", "-fsanitize=fuzzer-no-link,address,undefined", *wanted(entry["command"]), entry["file"]]
    return subprocess.run(command, cwd=entry["directory"], capture_output=True, text=True)


def main():
    compiler = next((name for name in ["clang++", *(f"clang++-{n}" for n in range(30, 13, -1))] if shutil.which(name)), None)
    if compiler is None:
        print("no clang++ here")
        return 77
    here = os.path.realpath(os.path.dirname(__file__))
    with open(os.path.join(sys.argv[1], "compile_commands.json"), encoding="utf-8") as file:
        libraries = [os.path.join(here, "../../tierd", name) for name in ("base", "config")]
        directories = {os.path.realpath(directory) for directory in (here, *libraries)}
        targets = {entry["file"]: entry for entry in json.load(file) if os.path.dirname(os.path.realpath(entry["file"])) in directories}
    targets = {name: entry for name, entry in targets.items() if os.path.basename(name) not in ("replay_main.cc", "make_seeds.cc")}  # not of that build
    assert any("fuzz" in name for name in targets) and any("mailbox" in name for name in targets), "no targets in compile_commands.json"
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        done = dict(zip(targets, pool.map(lambda entry: check(compiler, entry), targets.values())))
    for name, ran in done.items():
        print(f"{os.path.basename(name)}: {'ok' if ran.returncode == 0 else ran.stderr}")
    return max(ran.returncode for ran in done.values())


sys.exit(main())

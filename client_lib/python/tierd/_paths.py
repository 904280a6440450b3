"""Absolute names. os.path.abspath takes `..` away by the text, but behind a symbolic link it is the parent of where the link leads to: another file, which may be there as well."""

from __future__ import annotations

import os


def absolute(path: str) -> str:
    """os.path.abspath, but `..` stays for the kernel to resolve."""
    whole = path if path.startswith("/") else f"{os.getcwd()}/{path}"
    return "/" + "/".join([part for part in whole.split("/") if part not in ("", ".")])


def resolved(path: str) -> str:
    """absolute(path) for who takes no `..`: the directory that the last of them leads to by its real name, what is behind it as it stands."""
    path = absolute(path)
    directory, dots, rest = f"{path}/".rpartition("/../")
    return absolute(f"{os.path.realpath(directory + '/..')}/{rest}") if dots else path

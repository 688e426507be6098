# SPDX-License-Identifier: BSD-2-Clause
"""Looks up by handle what standard input lists, "LIBRARY NAME VERSION" a line, with dlvsym().

Prints "NAME@VERSION FILE" with the file that the result lies in, without its directory, and whether
that is what a program linked with that version gets.
"""
import ctypes
import sys


class DlInfo(ctypes.Structure):
    _fields_ = [("file", ctypes.c_char_p), ("base", ctypes.c_void_p),
                ("name", ctypes.c_char_p), ("address", ctypes.c_void_p)]


libc = ctypes.CDLL(None)
libc.dlvsym.restype = ctypes.c_void_p
for line in sys.stdin:
    library, name, version = line.split()
    handle = ctypes.c_void_p(ctypes.CDLL(library)._handle)
    found = libc.dlvsym(handle, name.encode(), version.encode())
    info = DlInfo()
    if found:
        libc.dladdr(ctypes.c_void_p(found), ctypes.byref(info))
    linked = libc.dlvsym(None, name.encode(), version.encode())
    print(f"{name}@{version}", (info.file or b"nowhere").decode().rsplit("/", 1)[-1],
          "as linked" if found == linked else "another")

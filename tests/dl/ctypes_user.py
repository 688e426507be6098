# SPDX-License-Identifier: BSD-2-Clause
"""A Python program that uses libibverbs by ctypes: opens a device and makes a completion queue.

Prints the file that each function it called lies in.
"""
import ctypes


class DlInfo(ctypes.Structure):
    _fields_ = [("file", ctypes.c_char_p), ("base", ctypes.c_void_p),
                ("name", ctypes.c_char_p), ("address", ctypes.c_void_p)]


def file_of(function):
    info = DlInfo()
    libc = ctypes.CDLL(None)
    assert libc.dladdr(ctypes.cast(function, ctypes.c_void_p), ctypes.byref(info))
    return info.file.decode().rsplit("/", 1)[-1]


verbs = ctypes.CDLL("libibverbs.so.1")
for name in ("ibv_get_device_list", "ibv_open_device", "ibv_create_cq"):
    getattr(verbs, name).restype = ctypes.c_void_p
verbs.ibv_get_device_list.restype = ctypes.POINTER(ctypes.c_void_p)
devices = verbs.ibv_get_device_list(None)
context = ctypes.c_void_p(verbs.ibv_open_device(ctypes.c_void_p(devices[0])))
cq = ctypes.c_void_p(verbs.ibv_create_cq(context, 16, None, None, 0))
assert context.value and cq.value
assert verbs.ibv_destroy_cq(cq) == 0
assert verbs.ibv_close_device(context) == 0
print(file_of(verbs.ibv_open_device), file_of(verbs.ibv_destroy_cq), file_of(verbs.ibv_alloc_pd))

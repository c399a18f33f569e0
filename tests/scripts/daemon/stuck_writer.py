"""A write() that holds the lock of a memfd for as long as its writer likes (for hostile.py)."""

import ctypes
import fcntl
import mmap
import os
import struct
import threading
import time

SYS_USERFAULTFD = {"x86_64": 323, "aarch64": 282}
UFFDIO_API, UFFDIO_REGISTER = 0xC018AA3F, 0xC020AA00
UFFD_API, MODE_MISSING = 0xAA, 1


class StuckWriter:
    """Writes from a page that is missing until the end of the `with` block. Needs root, or
    vm.unprivileged_userfaultfd; `why_not` says why it does not work."""

    def __init__(self, fd):
        self.fd, self.why_not = fd, None
        self.libc = ctypes.CDLL(None, use_errno=True)
        self.faults = self.libc.syscall(SYS_USERFAULTFD[os.uname().machine], os.O_CLOEXEC | os.O_NONBLOCK)
        if self.faults < 0:
            self.why_not = f"no userfaultfd: {os.strerror(ctypes.get_errno())}"

    def __enter__(self):
        if self.why_not:
            return self
        fcntl.ioctl(self.faults, UFFDIO_API, bytearray(struct.pack("QQQ", UFFD_API, 0, 0)))
        self.page = mmap.mmap(-1, mmap.PAGESIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        address = ctypes.addressof(ctypes.c_char.from_buffer(self.page))
        fcntl.ioctl(self.faults, UFFDIO_REGISTER, bytearray(struct.pack("QQQQ", address, mmap.PAGESIZE, MODE_MISSING, 0)))
        # ctypes lets other threads run while this one is in write().
        self.thread = threading.Thread(target=lambda: self.libc.write(self.fd, ctypes.c_void_p(address), 16))
        self.thread.start()
        # The fault can be read as soon as write() waits, with the lock.
        while True:
            try:
                assert os.read(self.faults, 32)
                return self
            except BlockingIOError:
                time.sleep(0.001)

    def is_stuck(self):
        return self.thread.is_alive()

    def __exit__(self, *_):
        if self.why_not:
            return
        os.close(self.faults)
        self.thread.join()

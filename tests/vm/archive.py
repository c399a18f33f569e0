"""Writes archives that Linux unpacks into its first file system (cpio, "newc").

No root is needed to write device nodes. A guest's own archive is appended to the one that all guests share.
"""

import os
import pathlib
import stat

END = "TRAILER!!!"


class Archive:
    """The files that a guest finds when it starts. Links stay links."""

    def __init__(self):
        self._parts, self._known, self._inode = [], set(), 0

    def folder(self, path):
        """Adds a folder and the folders around it."""
        path = str(path).strip("/")
        if path and path not in self._known:
            self.folder(os.path.dirname(path))
            self._add(path, stat.S_IFDIR | 0o755)

    def text(self, path, content, mode=0o644):
        self._entry(path, stat.S_IFREG | mode, content.encode() if isinstance(content, str) else content)

    def link(self, path, target):
        self._entry(path, stat.S_IFLNK | 0o777, str(target).encode())

    def device(self, path, major, minor):
        self._entry(path, stat.S_IFCHR | 0o600, b"", (major, minor))

    def file(self, source, path=None):
        """Adds a file of this machine, at the same path if `path` is not given.

        A link at the same path is added together with its target. Two copies of a library would be loaded as two
        libraries.
        """
        source = pathlib.Path(source)
        place = pathlib.Path(path) if path else source.parent.resolve() / source.name
        if str(place).strip("/") in self._known:
            return
        if source.is_symlink() and not path:
            self.link(place, os.readlink(source))
            self.file(place.parent / os.readlink(source))
        else:
            self.text(place, source.read_bytes(), stat.S_IMODE(source.stat().st_mode))

    def data(self):
        """Returns the complete archive. Another archive may follow it."""
        data = b"".join([*self._parts, self._record(END, 0, b"", (0, 0))])
        return data + bytes(-len(data) % 512)

    def _entry(self, path, mode, content, device=(0, 0)):
        path = str(path).strip("/")
        if path not in self._known:
            self.folder(os.path.dirname(path))
            self._add(path, mode, content, device)

    def _add(self, path, mode, content=b"", device=(0, 0)):
        self._known.add(path)
        self._parts.append(self._record(path, mode, content, device))

    def _record(self, path, mode, content, device):
        name = path.encode() + b"\0"
        self._inode += 1
        fields = (self._inode, mode, 0, 0, 1, 0, len(content), 0, 0, *device, len(name), 0)
        head = b"070701" + b"".join(b"%08X" % field for field in fields) + name
        head += bytes(-len(head) % 4)
        return head + content + bytes(-len(content) % 4)

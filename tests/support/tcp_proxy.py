"""A TCP proxy that can be cut, at once or right after a commit of PostgreSQL."""

import contextlib
import socket
import threading
from urllib.parse import urlsplit

READY = b"Z\0\0\0\5I"  # PostgreSQL is ready for the next query, outside a transaction


class Proxy:
    """Forward connections to a port of this machine, on a port of its own, until it is cut.

    Parameters
    ----------
    port : int
        The port that it leads to.
    """

    def __init__(self, port):
        self._target, self._open, self._statement = port, True, None
        self._lock, self._sockets = threading.Lock(), set()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.was_cut = threading.Event()
        threading.Thread(target=self._accept, daemon=True).start()

    def url(self, url):
        """The same address, through the proxy."""
        return url.replace(f":{urlsplit(url).port}/", f":{self._listener.getsockname()[1]}/")

    def cut(self):
        """Close all connections, and every new one at once."""
        with self._lock:
            self._open = False
            for end in self._sockets:
                with contextlib.suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)
        self.was_cut.set()

    def cut_after_commit_of(self, statement):
        """Be cut when the client has received the answer to the COMMIT of a transaction with this statement."""
        self.was_cut.clear()
        self._statement = statement.encode()

    def restore(self):
        """Forward connections again."""
        self._open, self._statement = True, None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.cut()
        self._listener.close()

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                if not self._open:
                    client.close()
                    continue
                server = socket.create_connection(("127.0.0.1", self._target))
                said = set()  # what came along this connection
                with self._lock:
                    self._sockets |= {client, server}
                for source, sink, check in ((client, server, self._note), (server, client, self._is_end)):
                    threading.Thread(target=self._forward, args=[source, sink, check, said], daemon=True).start()

    def _forward(self, source, sink, check, said):
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                is_end = check(data, said)
                sink.sendall(data)
                if is_end:
                    self.cut()
        with self._lock:
            self._sockets -= {source, sink}
        for end in (source, sink):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def _note(self, data, said):
        if self._statement is not None and self._statement in data:
            said.add("statement")
        return False

    def _is_end(self, data, said):
        if b"COMMIT\0" in data:
            said.add("commit")
        return said == {"statement", "commit"} and data.endswith(READY)

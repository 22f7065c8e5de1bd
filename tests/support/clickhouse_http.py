"""ClickHouse behind its HTTP port, for tests: chDB, which is ClickHouse as a library, answers clickhouse-connect.

No package index has the server itself. Run as a program it prints its port, and serves a folder until it is killed or
its standard input ends, as it does when the tests are killed.
"""

import contextlib
import http.server
import importlib.util
import os
import subprocess
import sys
import tempfile
import threading
import urllib.parse

import pytest


class ClickHouse:
    """A server in a process of its own, that can be killed and started again on the same port."""

    def __init__(self, folder, config=None):
        self.address = os.fspath(folder) if config is None else f"{folder}?config-file={config}"
        self.port = 0
        self.process = None

    def start(self):
        if importlib.util.find_spec("chdb") is None:
            pytest.skip("needs chdb")
        command = [sys.executable, __file__, self.address, str(self.port)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"the server ended with {self.process.wait()}")
        self.port = int(line)
        return self

    @property
    def url(self):
        return f"clickhouse://127.0.0.1:{self.port}/default"

    def kill(self):
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process.stdin.close()
            self.process.stdout.close()
            self.process = None


@pytest.fixture(scope="session")
def clickhouse_address(tmp_path_factory):
    server = ClickHouse(tmp_path_factory.mktemp("clickhouse")).start()
    yield server.url
    server.kill()


class Handler(http.server.BaseHTTPRequestHandler):
    """One request of ClickHouse's HTTP interface: SQL in the address or in the body, rows to insert after it."""

    protocol_version = "HTTP/1.1"
    timeout = 300
    wbufsize = -1  # headers and body in one packet
    # Given by `serve`.
    engine = None
    lock = threading.Lock()

    def do_GET(self):
        self.answer(b"")

    def do_POST(self):
        self.answer(self.body())

    def body(self):
        if "chunked" not in self.headers.get("Transfer-Encoding", ""):
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        parts = []
        while size := int(self.rfile.readline(), 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(parts)

    def answer(self, body):
        asked = dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(self.path).query))
        sql, rows = asked.pop("query", None), None
        if sql is not None:
            rows = body or None
        elif body.startswith(b"INSERT"):
            first, _, rows = body.partition(b"\n")
            sql = first.decode()
        else:
            sql = body.decode()
        if not sql:
            return self.reply(200, b"Ok.\n", {})
        params = {name.removeprefix("param_"): value for name, value in asked.items() if name.startswith("param_")}
        try:
            with self.lock:
                if "max_query_size" in asked:
                    self.engine.query(f"SET max_query_size = {int(asked['max_query_size'])}", "TabSeparated")
                return self.reply(200, self.run(sql, rows, params), {"X-ClickHouse-Format": "TabSeparated"})
        except Exception as error:
            return self.reply(500, str(error).encode(), {"X-ClickHouse-Exception-Code": "1"})

    def run(self, sql, rows, params):
        if rows is None:
            return self.engine.query(sql, "TabSeparated", params=params).bytes() or b""
        insert, _, fmt = sql.partition("FORMAT")
        with tempfile.NamedTemporaryFile() as file:
            file.write(rows)
            file.flush()
            self.engine.query(f"{insert} FROM INFILE '{file.name}' FORMAT {fmt}", "TabSeparated")
        return b""

    def reply(self, status, body, headers):
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


def serve(address, port):
    import chdb

    Handler.engine = chdb.connect(address)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler)
    server.daemon_threads = True
    print(server.server_address[1], flush=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with contextlib.suppress(KeyboardInterrupt):
        sys.stdin.read()
    os._exit(0)


if __name__ == "__main__":
    serve(sys.argv[1], int(sys.argv[2]))

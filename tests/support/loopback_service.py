"""A small HTTP server on loopback that takes pages, and gives the weights of a version, as the service does."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

VERSION = "/profiles/default/versions/2"


class Handler(BaseHTTPRequestHandler):
    """Answers `POST /feedback/import` and `GET` of one version, and refuses requests without the token."""

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        pages = self.server.pages
        if not self.authorized():
            return self.answer(401, {"detail": "a token is needed"})
        if self.path != "/feedback/import" or len(pages) >= self.server.capacity:
            return self.answer(503, {"detail": "the disk is full"})
        known = body["key"] in pages
        pages.setdefault(body["key"], body)
        return self.answer(200 if known else 201, {"accepted": not known})

    def do_GET(self):
        if not self.authorized():
            return self.answer(401, {"detail": "a token is needed"})
        if self.path != VERSION:
            return self.answer(404, {"detail": "no such version"})
        return self.answer(200, {"number": 2, "weights": self.server.weights})

    def authorized(self):
        return self.server.token is None or self.headers.get("Authorization") == f"Bearer {self.server.token}"

    def answer(self, status, body):
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_):
        pass


@pytest.fixture
def loopback_service():
    """A running server: `url`, `version` (the URL of one), `token`, `weights`, `pages` by key, and `capacity`."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.token, server.weights, server.pages, server.capacity = None, [0.5, 1.0, 1.5], {}, 10**6
        server.url = f"http://127.0.0.1:{server.server_address[1]}"
        server.version = server.url + VERSION
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()

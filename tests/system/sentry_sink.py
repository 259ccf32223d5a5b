"""A Sentry on loopback that keeps what the SDK's own transport posts: envelopes of events."""

import gzip
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

PATIENCE = 10
Item = tuple[str, Any]  # its type, and its content


class SentrySink:
    def __init__(self) -> None:
        self.items: list[Item] = []
        self.received = b""  # everything, as it came over the wire, unpacked
        self._changed = threading.Condition()
        self.dsn = ""

    def take(self, envelope: bytes) -> None:
        with self._changed:
            self.received += envelope
            self.items += _parsed(envelope)
            self._changed.notify_all()

    def of(self, kind: str) -> list[Any]:
        return [content for one, content in self.items if one == kind]

    def wait_for(self, kind: str, count: int = 1) -> list[Any]:
        """Return the items of this type once there are so many."""
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.of(kind)) >= count, PATIENCE), self.items
        return self.of(kind)


def _parsed(envelope: bytes) -> list[Item]:
    """One header line for the envelope, then a header line and a body for each item."""
    _, _, rest = envelope.partition(b"\n")
    items: list[Item] = []
    while rest.strip():
        header_line, _, rest = rest.partition(b"\n")
        header = json.loads(header_line)
        length = header.get("length", len(rest.partition(b"\n")[0]))
        body, rest = rest[:length], rest[length:].removeprefix(b"\n")
        items.append((header["type"], json.loads(body)))
    return items


@contextmanager
def sentry_sink(*, hangs: bool = False) -> Iterator[SentrySink]:
    """Serve while the body runs; one that hangs takes a connection, and never answers."""
    sink, released = SentrySink(), threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if hangs:
                released.wait()
                return
            sink.take(gzip.decompress(body) if self.headers["Content-Encoding"] == "gzip" else body)
            self.send_response(200)
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"{}")

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002  (theirs)
            del format, args

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    sink.dsn = f"http://key@127.0.0.1:{server.server_port}/1"
    try:
        yield sink
    finally:
        released.set()
        server.shutdown()
        server.server_close()
        thread.join()

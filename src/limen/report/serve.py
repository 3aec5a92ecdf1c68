"""`limen report --serve`: the page on this machine alone, made anew while its runs go on."""

from __future__ import annotations

import html
import threading
import time
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from limen.errors import LimenError
from limen.report.model import ReportData
from limen.report.page import chunk_file, render_page
from limen.report.progress import signature

FOLDER = "files"
_WAITING = """<!doctype html><html lang="en"><meta charset="utf-8"><title>limen</title>
<meta http-equiv="refresh" content="3"><meta name="color-scheme" content="light dark">
<body><p>Nothing to show yet: {why}</p><p>This page looks again every three seconds.</p></body></html>
"""


class LiveReport:
    """The newest page of some runs, made by `read` whenever one of `paths` has changed."""

    def __init__(self, read: Callable[[], ReportData], paths: list[Path]) -> None:
        self._read, self._paths = read, paths
        self._seen = ""
        self.version = "0"
        self.page = _WAITING.format(why="the first page is being made.")
        self.chunks: dict[str, str] = {}
        self.done = False

    def refresh(self) -> bool:
        """Make the page anew if something changed; True if so. What the user can mend is shown in the page."""
        seen = signature(self._paths)
        if seen == self._seen:
            return False
        try:
            data = self._read()
        except LimenError as error:
            self.page, self.chunks = _WAITING.format(why=html.escape(str(error))), {}
        else:
            page, beside = render_page(data, FOLDER, refresh=True)
            self.page, self.chunks = page, {f"chunk-{c.number}.js": chunk_file(c) for c in beside}
            self.done = not data.live
        self._seen = self.version = seen
        return True


def make_server(live: LiveReport, port: int = 0) -> ThreadingHTTPServer:
    """A server on 127.0.0.1. It answers GET for the page, its version and its chunks, and nothing else."""

    class Handler(BaseHTTPRequestHandler):
        server_version, sys_version = "limen", ""

        def do_GET(self) -> None:
            host = self.headers.get("Host", "").rsplit(":", 1)[0]
            if host not in ("127.0.0.1", "localhost"):  # another site's name that was made to point here
                self.send_error(HTTPStatus.FORBIDDEN)
                return
            path = self.path.split("?", 1)[0]
            if path in ("/", "/report.html"):
                self._send(live.page, "text/html; charset=utf-8")
            elif path == "/version":
                self._send(live.version, "text/plain; charset=utf-8")
            elif path.startswith(f"/{FOLDER}/") and path.rsplit("/", 1)[1] in live.chunks:
                self._send(live.chunks[path.rsplit("/", 1)[1]], "text/javascript; charset=utf-8")
            else:
                self.send_error(HTTPStatus.NOT_FOUND)

        def _send(self, text: str, kind: str) -> None:
            body = text.encode("utf-8", "backslashreplace")
            self.send_response(HTTPStatus.OK)
            for name, value in (
                ("Content-Type", kind),
                ("Content-Length", str(len(body))),
                ("Cache-Control", "no-store"),
                ("X-Content-Type-Options", "nosniff"),
                ("Cross-Origin-Resource-Policy", "same-origin"),
            ):
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Silent: the terminal is the user's."""

    return ThreadingHTTPServer(("127.0.0.1", port), Handler)


def serve(live: LiveReport, port: int, every: float, say: Callable[[str], None]) -> None:
    """Serve until interrupted; look for changes every `every` seconds, at most half of the time at work."""
    server = make_server(live, port)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    say(f"http://127.0.0.1:{server.server_address[1]}/   (Ctrl-C ends it)")
    try:
        while True:
            start = time.monotonic()
            live.refresh()
            time.sleep(max(every, time.monotonic() - start))
    finally:
        server.shutdown()
        server.server_close()

"""A gateway's or sidecar's outside: writes down the routes it is told; the arguments say how it misbehaves."""

import argparse
import os
import signal
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


class Health(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        return


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("notes", type=Path, help="where to write down what happens to it")
    parser.add_argument("--port", type=int, help="answer /health there")
    parser.add_argument("--exit", type=int, help="end with this code at once")
    parser.add_argument("--unread", action="store_true", help="never read what it is told")
    parser.add_argument("--drains", type=float, default=0.0, help="seconds from SIGTERM to its end")
    parser.add_argument("--say", default="", help="a line to write first")
    wanted = parser.parse_args()

    def note(text: str) -> None:
        with wanted.notes.open("a") as file:
            file.write(f"{text}\n")

    def asked(*_: object) -> None:
        note("asked to end")
        time.sleep(wanted.drains)
        note("ends")
        os._exit(0)

    signal.signal(signal.SIGTERM, asked)
    note(f"started {os.getpid()}")
    if wanted.say:
        sys.stdout.write(f"{wanted.say}\n")
        sys.stdout.flush()
    if wanted.exit is not None:
        sys.exit(wanted.exit)
    if wanted.port:
        server = ThreadingHTTPServer(("127.0.0.1", wanted.port), Health)
        threading.Thread(target=server.serve_forever, daemon=True).start()
    if wanted.unread:
        time.sleep(600)
    for line in sys.stdin:
        note(line.strip())
    note("nobody talks to it any more")


if __name__ == "__main__":
    main()

# ruff: noqa: T201 - what an engine prints is what its supervisor reads
"""An engine's outside, for what the real one cannot be made to do: run as a program, told by its arguments how to behave.

It says and answers what SGLang 0.5.23 says and answers; tests/launch/test_real_engine.py holds the real one against the same checks.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from spec_toolkit.handover import LIST_VARIABLE, Report, Role, decode_list, list_sha256
from spec_toolkit.plugin.report import write
from spec_toolkit.terms import RANKS_KEY, KnobMode

STATIONS = """\
[2026-11-29 18:53:49] server_args={'model_path': 'x'}
[2026-11-29 18:54:19] Load weight end. elapsed=0.04 s, type=DeepseekV3ForCausalLM, avail mem=21.67 GB, mem usage=0.01 GB.
[2026-11-29 18:54:20] KV Cache is allocated. dtype: torch.float32, #tokens: 4096, KV size: 0.00 GB
[2026-11-29 18:54:20] INFO:     Application startup complete."""
READY = "[2026-11-29 18:54:20] The server is fired up and ready to roll!"


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--key", default="")
    parser.add_argument("--exit", type=int, help="end with this code before being ready")
    parser.add_argument("--say", default="", help="a line to write first")
    parser.add_argument("--silent", action="store_true", help="never become ready")
    parser.add_argument("--no-report", action="store_true", help="one scheduler that does not report its patches")
    parser.add_argument("--no-speculation", action="store_true")
    parser.add_argument("--tell-key", action="store_true", help="answer /server_info with the key")
    parser.add_argument(
        "--log-key-later", action="store_true", help="write the key to the log some time after being ready"
    )
    parser.add_argument("--break-off", action="store_true", help="end with code 9 in the middle of an answer")
    parser.add_argument("--no-meta", action="store_true", help="answer without the keys an answer has")
    parser.add_argument("--deaf", action="store_true", help="ignore SIGTERM")
    parser.add_argument("--drains", type=float, help="seconds from SIGTERM to its end, for what it runs")
    parser.add_argument("--no-knob", action="store_true", help="take no command")
    return parser.parse_args()


def report(role: Role, ranks: dict[str, int], pid: int) -> None:
    path = Path(os.environ[LIST_VARIABLE])
    content = path.read_bytes()
    applied = tuple(hook.target for hook in decode_list(content) if role in hook.roles)
    write(Report(role=role, ranks=ranks, pid=pid, list_sha256=list_sha256(content), applied=applied), path)


class Engine(BaseHTTPRequestHandler):
    wanted: argparse.Namespace
    epoch, steps = 0, 3  # of the command in force

    def do_GET(self) -> None:
        body: dict[str, object] = {}
        if self.path == "/server_info":
            body = {"admin_api_key": self.wanted.key} if self.wanted.tell_key else {}
            if not self.wanted.no_speculation:
                body["internal_states"] = [{RANKS_KEY: [self._row()]}]
        self._answer(json.dumps(body).encode())

    def _row(self) -> dict[str, object]:
        mode = KnobMode.FULL if self.steps == 3 else KnobMode.REDUCED if self.steps else KnobMode.ZERO_DRAFT
        counts = {"dp": 0, "rank": 0, "taken": 0, "refused": 0, "last": 0, "rounds": 0}
        return counts | {"epoch": self.epoch, "mode": int(mode), "steps": self.steps, "candidates": [0, 1, 3]}

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.path == "/set_internal_state":
            if not self.wanted.no_knob:
                command = json.loads(body)["server_args"]
                Engine.epoch, Engine.steps = command["epoch"], command["steps"]
            self._answer(json.dumps([not self.wanted.no_knob]).encode())
            return
        if self.wanted.break_off:
            os._exit(9)
        if self.wanted.no_meta:
            self._answer(b'{"choices": [{}]}')
            return
        counts = {"spec_verify_ct": 10, "spec_num_correct_drafts": 21, "spec_num_proposed_drafts": 30}
        meta = {"completion_tokens": 32, "e2e_latency": 0.1} | ({} if self.wanted.no_speculation else counts)
        self._answer(json.dumps({"choices": [{"message": {"content": "x"}, "meta_info": meta}]}).encode())

    def _answer(self, body: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        return


def drain(seconds: float) -> None:
    time.sleep(seconds)
    print("everything has finished", flush=True)
    os._exit(0)


def main() -> None:
    wanted = Engine.wanted = arguments()
    if wanted.deaf:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if wanted.drains is not None:
        signal.signal(signal.SIGTERM, lambda *_: threading.Thread(target=drain, args=(wanted.drains,)).start())
    if wanted.say:
        print(wanted.say, flush=True)
    if wanted.exit is not None:
        sys.exit(wanted.exit)
    scheduler, detokenizer = (
        subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]) for _ in range(2)
    )
    report(Role.LAUNCHER, {}, os.getpid())
    report(Role.DETOKENIZER, {}, detokenizer.pid)
    if not wanted.no_report:
        report(Role.SCHEDULER, {"pp": 0, "tp": 0}, scheduler.pid)
    server = ThreadingHTTPServer(("127.0.0.1", wanted.port), Engine)
    print(STATIONS, flush=True)
    if wanted.silent:
        time.sleep(600)
    print(READY, flush=True)
    if wanted.log_key_later:
        server.timeout = 0.1
        deadline = time.monotonic() + 3
        while time.monotonic() < deadline:
            server.handle_request()
        print(f"server_args=ServerArgs(admin_api_key='{wanted.key}')", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()

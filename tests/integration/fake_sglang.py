"""A stand-in for SGLang's HTTP server, started as a script: the same flags, log lines and endpoints, no model.

``--behavior`` chooses how it goes wrong. It answers a prompt with the same ids reversed.
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
from typing import Any

parser = argparse.ArgumentParser(prog="launch_server")
parser.add_argument("--model-path", required=True)
parser.add_argument("--host", required=True)
parser.add_argument("--port", type=int, required=True)
parser.add_argument("--dtype", default="auto")
parser.add_argument("--speculative-algorithm")
parser.add_argument("--speculative-draft-model-path")
parser.add_argument("--parent-pid", type=int)
parser.add_argument("--fault")
parser.add_argument("--behavior", default="good")
parser.add_argument("--state", help="a file that remembers something, or gets the ids of child processes")
parser.add_argument("--print-env", nargs="*", default=[])
args = parser.parse_args()


asked: list[str] = []


def say(text: str) -> None:
    print(text, flush=True)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: Any) -> None:
        pass

    def reply(self, body: Any, status: int = 200) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self) -> None:
        if self.path == "/model_info":
            self.reply({"model_path": args.model_path, "weight_version": "default", "is_generation": True})
        elif self.path == "/server_info":
            self.reply({"status": "ready", "speculative_algorithm": args.speculative_algorithm, "version": "fake"})
        elif self.path == "/health":  # as SGLang while it warms up: not at the first time of asking
            asked.append(self.path)
            say(f"health asked {len(asked)} times")
            self.reply({}, 200 if len(asked) > 2 else 503)
        else:
            self.reply({"detail": "Not Found"}, 404)

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])) or b"{}")
        if self.path != "/generate":
            self.reply({})
            return
        ids = body["input_ids"]
        if 666 in ids:
            say("AssertionError: Can not alloc mamba cache")
            os._exit(7)
        if 555 in ids:
            time.sleep(60)
        meta = {"finish_reason": {"type": "length", "length": len(ids)}, "prompt_tokens": len(ids)}
        self.reply({"text": "", "output_ids": ids[::-1], "meta_info": {**meta, "completion_tokens": len(ids)}})


for name in args.print_env:
    say(f"{name}={os.environ.get(name)}")
if args.behavior == "exit-3":
    say("RuntimeError: something is missing")
    sys.exit(3)
if args.behavior == "never-ready":
    say("Load weight begin. avail mem=1.00 GB")
    time.sleep(60)
if args.behavior == "port-taken-once" and not Path(args.state).exists():
    Path(args.state).write_text(str(args.port))
    say(f"[Errno 98] error while attempting to bind on address ('127.0.0.1', {args.port}): address already in use")
    sys.exit(1)
if args.behavior == "port-taken":
    say(f"port {args.port} is already in use")
    sys.exit(1)
if args.behavior == "stubborn":
    # A worker and its own child that ignore TERM, and a leader that does too.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sleeper = "import signal,subprocess,sys,time;signal.signal(signal.SIGTERM,signal.SIG_IGN);"
    inner = f"[sys.executable,'-c',{sleeper + 'time.sleep(300)'!r}]"
    worker = subprocess.Popen(
        [sys.executable, "-c", f"{sleeper}p=subprocess.Popen({inner});print(p.pid,flush=True);time.sleep(300)"],
        stdout=subprocess.PIPE,
    )
    assert worker.stdout is not None
    Path(args.state).write_text(f"{worker.pid} {worker.stdout.readline().decode().strip()}")

server = ThreadingHTTPServer((args.host, args.port), Handler)
if args.parent_pid is not None:

    def follow_parent() -> None:
        while os.getppid() == args.parent_pid:
            time.sleep(0.1)
        os._exit(9)

    threading.Thread(target=follow_parent, daemon=True).start()
say("Load weight begin. avail mem=31.00 GB")
say("Load weight end. elapsed=0.13 s, type=Qwen3_5ForConditionalGeneration, avail mem=20.0 GB, mem usage=17.67 GB.")
say("KV Cache is allocated. dtype: torch.bfloat16, #tokens: 20000, K size: 0.02 GB, V size: 0.02 GB")
sys.stdout.write("Capturing batches (bs=2 avail_mem=1 GB):  38%|###| 3/8 [00:18<02:10, 18.67s/it]\r")
if args.behavior != "no-ready-line":
    say("The server is fired up and ready to roll!")
server.serve_forever()

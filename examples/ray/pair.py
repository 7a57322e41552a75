"""Starts a baseline and a variant as Ray actors, one GPU each, and runs the suite attached to both.

    ray job submit --working-dir . --no-wait -- python examples/ray/pair.py --model /models/my-target

Run it from the checkout. What follows a second ``--`` goes to both servers. An API key comes from SGLANG_API_KEY, if
that is set. The exit status is that of pytest.
"""

import argparse
import os
import shlex
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path

import ray

KEY = "SGLANG_API_KEY"
SPECULATION = (
    "--speculative-algorithm NEXTN --speculative-num-steps 3"
    " --speculative-eagle-topk 1 --speculative-num-draft-tokens 4"
)


@ray.remote
class Server:
    """One SGLang server on the node that Ray chose, with the GPUs that Ray gave to this actor."""

    def __init__(self, name: str, command: list[str], key: str | None) -> None:
        self.name = name
        self.address = ray.util.get_node_ip_address()  # not every interface: only the cluster's
        with socket.socket() as free:
            free.bind((self.address, 0))
            port = free.getsockname()[1]
        self.url = f"http://{self.address}:{port}"
        self.log = Path(tempfile.mkdtemp(prefix="lossless-")) / f"{name}.log"
        words = [*command, "--host", self.address, "--port", str(port), *(["--api-key", key] if key else [])]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(words, stdout=log, stderr=subprocess.STDOUT)

    def ready(self, deadline_s: float) -> str:
        """The server's address, once it answers.

        Raises:
            RuntimeError: it ended, or did not answer in time; the message ends with its log.
        """
        end = time.monotonic() + deadline_s
        while time.monotonic() < end and self.process.poll() is None:
            try:
                with urllib.request.urlopen(f"{self.url}/health", timeout=5):
                    return self.url
            except (urllib.error.URLError, OSError):
                time.sleep(1)
        tail = self.log.read_text(errors="replace")[-2000:]
        raise RuntimeError(f"{self.name} is not ready (exit status {self.process.poll()}):\n{tail}")

    def stop(self) -> None:
        """End the server; 10 s to do so by itself."""
        self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def profile(key: str | None) -> str:
    """The suite's profile; it reads the addresses, and the key, from the environment."""
    return "\n".join(
        [
            'kind = "attach"',
            'description = "a pair on Ray"',
            *([f'api_key_env = "{KEY}"'] if key else []),
            '[baseline]\nurl = "${LOSSLESS_BASELINE_URL}"',
            '[variants.speculative]\nurl = "${LOSSLESS_VARIANT_URL}"',
        ]
    )


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", required=True, help="target model, as every node sees it")
    parser.add_argument("--command", default="python3 -m sglang.launch_server", help="what starts a server")
    parser.add_argument("--speculation", default=SPECULATION, help="what only the variant gets")
    parser.add_argument("--prompts", default="standard")
    parser.add_argument("--gpus", type=float, default=1, help="GPUs a server")
    parser.add_argument("--deadline", type=float, default=1800, help="seconds until both must be ready")
    parser.add_argument("shared", nargs="*", help="what both servers get")
    args = parser.parse_args()

    ray.init()
    key = os.environ.get(KEY)
    command = [*shlex.split(args.command), "--model-path", args.model, *args.shared]
    make = Server.options(num_gpus=args.gpus).remote
    servers = [
        make("baseline", command, key),
        make("speculative", [*command, *shlex.split(args.speculation)], key),
    ]
    try:
        urls = ray.get([server.ready.remote(args.deadline) for server in servers])
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "ray.toml"
            path.write_text(profile(key), encoding="utf-8")
            environment = {**os.environ, "LOSSLESS_BASELINE_URL": urls[0], "LOSSLESS_VARIANT_URL": urls[1]}
            words = ["--lossless-profile", str(path), "--lossless-target", args.model]
            words += ["--lossless-prompts", args.prompts]
            return subprocess.run(
                [sys.executable, "-m", "pytest", "-m", "lossless", *words], env=environment, check=False
            ).returncode
    finally:
        ray.get([server.stop.remote() for server in servers])
        ray.shutdown()


if __name__ == "__main__":
    raise SystemExit(main())

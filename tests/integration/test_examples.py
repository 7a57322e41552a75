"""The examples for more than one machine, run as far as one machine can: with stand-ins for srun, scontrol and ray."""

import os
import shutil
import socket
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from small_suite import REPOSITORY, SmallSuite

import lossless
from lossless.profiles import load_profile
from lossless.servers.argv import server_argv

EXAMPLES = REPOSITORY / "examples"
SBATCH = EXAMPLES / "slurm" / "lossless.sbatch"
SPECULATION = "--speculative-algorithm NEXTN --speculative-num-steps 3"

SRUN = """\
#!/usr/bin/env bash
echo "$@" >> "$STAND_IN_LOG"
while [[ $1 == --* ]]; do shift; done
exec "$@"
"""
SCONTROL = """\
#!/usr/bin/env bash
[[ "$1 $2" == "show hostnames" ]] || exit 1
printf '127.0.0.1\\n127.0.0.1\\n'
"""
RAY = '''
"""A stand-in for ray: actors live in this process and every call is made at once."""
from types import SimpleNamespace

calls = []
util = SimpleNamespace(get_node_ip_address=lambda: "127.0.0.1")

def init():
    calls.append("init")

def shutdown():
    calls.append("shutdown")

def get(results):
    return results

class _Actor:
    def __init__(self, inner):
        self._inner = inner

    def __getattr__(self, name):
        return SimpleNamespace(remote=getattr(self._inner, name))

def remote(cls):
    def options(*, num_gpus):
        assert num_gpus == 1
        return SimpleNamespace(remote=lambda *args: _Actor(cls(*args)))
    return SimpleNamespace(options=options)
'''


def program(folder: Path, name: str, text: str) -> None:
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text(text, encoding="utf-8")
    path.chmod(0o755)


def two_free_ports() -> int:
    """A port from 30000 to 39998 that is free, as is the next one."""
    for port in range(30000 + os.getpid() % 9000, 39998):
        try:
            for number in (port, port + 1):
                with socket.socket() as probe:
                    probe.bind(("127.0.0.1", number))
        except OSError:
            continue
        return port
    raise AssertionError("no free ports")


def environment(folder: Path, **more: str) -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("PYTEST_", "COV_", "SLURM", "SGLANG_"))}
    kept["PATH"] = f"{folder / 'bin'}{os.pathsep}{kept['PATH']}"
    kept["PYTHONPATH"] = os.pathsep.join([str(folder / "lib"), str(Path(lossless.__file__).parents[1])])
    return kept | more


def slurm(suite: SmallSuite, **more: str) -> subprocess.CompletedProcess[str]:
    folder = suite.folder
    shutil.copytree(EXAMPLES, folder / "examples")
    program(folder / "bin", "srun", SRUN)
    program(folder / "bin", "scontrol", SCONTROL)
    variables = {
        "MODEL": "builtin:tiny",
        "SERVER_COMMAND": f"{sys.executable} -m lossless.reference",
        "SERVER_ARGS": "--chunked-prefill-size 256",
        "VARIANT_ARGS": SPECULATION,
        "PROMPTS": "prompts.toml",
        "PYTHON": sys.executable,
        "SLURM_JOB_ID": str(two_free_ports() - 30000),
        "SLURM_JOB_NODELIST": "node[1-2]",
        "SLURM_SUBMIT_DIR": str(folder),
        "STAND_IN_LOG": str(folder / "srun.log"),
        **more,
    }
    return subprocess.run(
        ["bash", str(folder / "examples" / "slurm" / "lossless.sbatch")],
        env=environment(folder, **variables),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=300,
        check=False,
    )


needs_curl = pytest.mark.skipif(shutil.which("curl") is None, reason="the script asks servers with curl")


@needs_curl
@pytest.mark.slow
def test_the_slurm_script_runs_one_shard_on_a_pair(small_suite: SmallSuite) -> None:
    done = slurm(small_suite, SLURM_ARRAY_TASK_ID="1", SLURM_ARRAY_TASK_COUNT="1", SGLANG_API_KEY="")
    assert done.returncode == 0, done.stdout
    evidence = small_suite.evidence()
    assert (evidence["status"], evidence["kind"], evidence["prompt_set"]["prompts"]) == ("proven", "attach", 5)
    assert set(evidence["counts"]) == {"speculative"}
    assert "shard 1/1" in done.stdout
    steps = (small_suite.folder / "srun.log").read_text(encoding="utf-8").splitlines()
    assert len(steps) == 2
    assert all("--nodelist=127.0.0.1" in step and "--host 127.0.0.1" in step for step in steps)
    assert [SPECULATION in step for step in sorted(steps, key=lambda s: SPECULATION in s)] == [False, True]
    assert not small_suite.servers(), "no server outlives the job"


@needs_curl
def test_the_slurm_script_says_why_a_server_ended(small_suite: SmallSuite) -> None:
    done = slurm(small_suite, SERVER_COMMAND="echo out of memory:", SGLANG_API_KEY="secret-key-of-a-test")
    assert done.returncode == 3, done.stdout
    assert "baseline ended before it was ready" in done.stdout
    assert "out of memory: --model-path builtin:tiny" in done.stdout
    assert "--api-key" not in (small_suite.folder / "srun.log").read_text(encoding="utf-8").replace(
        '--api-key "$SGLANG_API_KEY"', ""
    )
    assert "secret" not in (small_suite.folder / "srun.log").read_text(encoding="utf-8")


def test_the_slurm_script_is_sound() -> None:
    subprocess.run(["bash", "-n", str(SBATCH)], check=True)
    checker = shutil.which("shellcheck", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    if checker is None:
        pytest.skip("shellcheck is not installed")
    found = subprocess.run([checker, "--severity=warning", str(SBATCH)], stdout=subprocess.PIPE, text=True, check=False)
    assert found.returncode == 0, found.stdout


@pytest.mark.parametrize(("name", "key"), [("attach", None), ("attach-with-key", "SGLANG_API_KEY")])
def test_the_slurm_attach_profiles(name: str, key: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOSSLESS_BASELINE_URL", "http://node1:30001")
    monkeypatch.setenv("LOSSLESS_VARIANT_URL", "http://node2:30002")
    profile = load_profile(str(EXAMPLES / "slurm" / f"{name}.toml"))
    assert (profile.kind, profile.api_key_env) == ("attach", key)
    assert (profile.baseline.url, profile.variants["speculative"].url) == ("http://node1:30001", "http://node2:30002")


def test_the_srun_profile_runs_its_servers_through_srun(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MODEL", "builtin:tiny")
    monkeypatch.setenv("SLURMD_NODENAME", "node7")
    profile = load_profile(str(EXAMPLES / "slurm" / "srun-launch.toml"))
    argv = server_argv(profile, "nextn", 30001)
    at = argv.index("python3")
    assert argv[0] == "srun"
    assert all(word.startswith("--") for word in argv[1:at])
    assert "--nodelist=node7" in argv[:at]
    assert argv[at : at + 3] == ["python3", "-m", "sglang.launch_server"]
    assert argv[argv.index("--host") + 1] == "127.0.0.1"


def documents() -> dict[tuple[str, str], Any]:
    yaml = pytest.importorskip("yaml")
    text = (EXAMPLES / "kubernetes" / "lossless.yaml").read_text(encoding="utf-8")
    return {(d["kind"], d["metadata"]["name"]): d for d in yaml.safe_load_all(text)}


def test_the_kubernetes_file_is_one_pair_and_one_job() -> None:
    found = documents()
    assert sorted(found) == [
        ("ConfigMap", "lossless-profile"),
        ("Deployment", "sglang-baseline"),
        ("Deployment", "sglang-nextn"),
        ("Job", "lossless"),
        ("NetworkPolicy", "only-lossless"),
        ("Service", "sglang-baseline"),
        ("Service", "sglang-nextn"),
    ]
    assert {d["metadata"]["namespace"] for d in found.values()} == {"lossless"}
    versions = {"ConfigMap": "v1", "Service": "v1", "Deployment": "apps/v1", "Job": "batch/v1"}
    versions["NetworkPolicy"] = "networking.k8s.io/v1"
    assert all(d["apiVersion"] == versions[kind] for (kind, _), d in found.items())


def test_the_kubernetes_pair_differs_in_speculation_only() -> None:
    found = documents()
    specs = [found["Deployment", name]["spec"] for name in ("sglang-baseline", "sglang-nextn")]
    base, variant = (s["template"]["spec"]["containers"][0] for s in specs)
    extra = [a for a in variant["args"] if a not in base["args"]]
    assert [a for a in base["args"] if a not in variant["args"]] == []
    assert extra
    assert all(a.startswith("--speculative-") for a in extra)
    assert {k: v for k, v in base.items() if k != "args"} == {k: v for k, v in variant.items() if k != "args"}
    assert [s["replicas"] for s in specs] == [1, 1]
    for spec in specs:
        assert spec["selector"]["matchLabels"].items() <= spec["template"]["metadata"]["labels"].items()


def test_what_the_kubernetes_file_refers_to_is_there(tmp_path: Path) -> None:
    found = documents()
    pods = {name: found["Deployment", name]["spec"]["template"] for name in ("sglang-baseline", "sglang-nextn")}
    pods["job"] = found["Job", "lossless"]["spec"]["template"]
    for pod in pods.values():
        volumes = {v["name"] for v in pod["spec"]["volumes"]}
        assert {m["name"] for c in pod["spec"]["containers"] for m in c["volumeMounts"]} == volumes
        for env in (e for c in pod["spec"]["containers"] for e in c["env"]):
            assert env["valueFrom"]["secretKeyRef"] == {"name": "sglang-api-key", "key": "key"}, "keys by reference"
    for name in ("sglang-baseline", "sglang-nextn"):
        service = found["Service", name]["spec"]
        assert service["selector"].items() <= pods[name]["metadata"]["labels"].items()
        assert service["ports"][0]["targetPort"] in {p["name"] for p in pods[name]["spec"]["containers"][0]["ports"]}
    policy = found["NetworkPolicy", "only-lossless"]["spec"]
    assert all(policy["podSelector"]["matchLabels"].items() <= pods[n]["metadata"]["labels"].items() for n in pods
               if n != "job")  # fmt: skip
    allowed = policy["ingress"][0]["from"][0]["podSelector"]["matchLabels"]
    assert allowed.items() <= pods["job"]["metadata"]["labels"].items()
    text = found["ConfigMap", "lossless-profile"]["data"]["pair.toml"]
    path = tmp_path / "pair.toml"
    path.write_text(text, encoding="utf-8")
    profile = load_profile(str(path))
    urls = [profile.baseline.url, *(v.url for v in profile.variants.values())]
    assert urls == [f"http://{n}:{found['Service', n]['spec']['ports'][0]['port']}" for n in list(pods)[:2]]
    assert profile.api_key_env == "SGLANG_API_KEY"
    job = found["Job", "lossless"]["spec"]
    assert (job["backoffLimit"], job["template"]["spec"]["restartPolicy"]) == (0, "Never")


def test_the_image_holds_what_the_suite_needs() -> None:
    lines = (EXAMPLES / "kubernetes" / "Dockerfile").read_text(encoding="utf-8").splitlines()
    copied = [word for line in lines if line.startswith("COPY") for word in line.split()[1:-1]]
    assert all((REPOSITORY / word).exists() for word in copied)
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert {"pyproject.toml", "conftest.py", "tools", "tests/lossless", project["readme"]} <= set(copied)
    assert set(project["license-files"]) <= set(copied)


@pytest.mark.slow
def test_the_ray_job_runs_a_pair(small_suite: SmallSuite) -> None:
    folder = small_suite.folder
    program(folder / "lib", "ray.py", RAY)
    words = ["--model", "builtin:tiny", "--command", f"{sys.executable} -m lossless.reference"]
    words += ["--speculation", SPECULATION, "--prompts", "prompts.toml", "--", "--chunked-prefill-size", "256"]
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / "ray" / "pair.py"), *words],
        cwd=folder,
        env=environment(folder),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert small_suite.evidence()["status"] == "proven"
    assert not small_suite.servers()


def test_the_ray_job_shows_the_log_of_a_server_that_ends(tmp_path: Path) -> None:
    program(tmp_path / "lib", "ray.py", RAY)
    words = ["--model", "builtin:tiny", "--command", "echo no such card:"]
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / "ray" / "pair.py"), *words],
        cwd=tmp_path,
        env=environment(tmp_path, SGLANG_API_KEY="x"),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1
    assert "baseline is not ready (exit status 0)" in done.stdout
    assert "no such card: --model-path builtin:tiny --host 127.0.0.1" in done.stdout

"""Jobs on a real NVIDIA GPU (`make gpu`): found, given out, kept from other jobs, shared, measured and trained on.

Skipped where there is no GPU, or no PyTorch for this Python. The cluster is the one of `spritz up` on this machine;
where tests run as root, the kernel holds its jobs (cgroup.conf).
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from tests.e2e.cluster import BIN, until
from tests.ports import free_port

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not os.path.exists("/dev/nvidiactl"), reason="no NVIDIA GPU"),
    pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="no PyTorch"),
]

AS_ROOT = os.geteuid() == 0
SHARDS = 4

#: Multiplies matrices until the file `stop` is there.
BURN = """\
import os, torch
x = torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16)
print("burning", flush=True)
while not os.path.exists("stop"):
    for _ in range(20):
        y = x @ x
    torch.cuda.synchronize()
"""

TRAIN = """\
import os, time, torch
from spritz_checkpointing import Checkpointer

checkpoints = Checkpointer()
torch.manual_seed(7)
model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Dropout(0.2), torch.nn.Linear(64, 1)).cuda()
optimizer = torch.optim.Adam(model.parameters())
state = checkpoints.load()
if state:
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
step = state["step"] if state else 0
while step < 60:
    stop = checkpoints.should_stop()
    if stop or step % 7 == 6:
        checkpoints.save(step, model=model, optimizer=optimizer)
    if stop:
        checkpoints.leave()
    if step >= int(open(os.environ["GATE"]).read()):
        time.sleep(0.05)
        continue
    loss = ((model(torch.randn(256, 64, device="cuda")) - 1) ** 2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print("loss", step, repr(loss.item()), flush=True)
    step += 1
"""


class Site:
    """The machine as a cluster, with a home and a working directory of its own."""

    def __init__(self) -> None:
        self.root = Path(tempfile.mkdtemp(prefix="spritz-gpu-"))
        self.cluster = self.root / "cluster"
        self.mapping = self.root / "dcgm"
        self.work = self.root / "work"
        for directory in (self.work, self.root / "home"):
            directory.mkdir()
        self.env = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM_", "SPRITZ_"))}
        self.env |= {"HOME": str(self.root / "home"), "PATH": f"{BIN}:{os.environ['PATH']}"}
        self.env["SLURM_CONF"] = str(self.cluster / "etc" / "slurm.conf")
        self.env["SPRITZ_SAMPLE_SECONDS"] = "0.5"
        self.link = ""

    def run(self, *words: str, status: int = 0, directory: Path | None = None) -> str:
        done = subprocess.run(
            [str(BIN / words[0]), *words[1:]], env=self.env, cwd=directory or self.work,
            capture_output=True, text=True, timeout=100, check=False,
        )  # fmt: skip
        assert done.returncode == status, f"{words}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def up(self) -> None:
        said = self.run("spritz", "up", "--dashboard", "--dir", str(self.cluster))
        match = re.search(r"http://\S+/login\?link=\S+", said)
        assert match, said
        self.link = match[0]

    def down(self) -> None:
        self.run("spritz", "down", "--quiet", "--dir", str(self.cluster))

    def configure(self) -> None:
        """Shards, metrics, energy, the mapping for DCGM; and what the kernel holds, for root."""
        conf = self.cluster / "etc" / "slurm.conf"
        text = conf.read_text().replace("GresTypes=gpu\n", "GresTypes=gpu,shard\n")
        text = re.sub(r"Gres=(gpu:[^ ]+)", rf"Gres=\1,shard:{SHARDS}", text)
        text = re.sub(r"SlurmctldPort=\d+", f"SlurmctldPort={free_port()}", text)
        text += (
            "MetricsType=metrics/openmetrics\nAcctGatherEnergyType=acct_gather_energy/gpu\n"
            f"SlurmdParameters=dcgm_job_mapping_dir={self.mapping}\n"
        )
        if AS_ROOT:
            text = text.replace("ProctrackType=proctrack/linuxproc", "ProctrackType=proctrack/cgroup")
            text += "TaskPlugin=task/cgroup,task/affinity\n"
            (conf.parent / "cgroup.conf").write_text(
                "ConstrainDevices=yes\nConstrainCores=yes\nConstrainRAMSpace=yes\n"
            )
        conf.write_text(text)
        gres = conf.parent / "gres.conf"
        gres.write_text(gres.read_text() + f"Name=shard Count={SHARDS}\n")

    def submit(self, *words: str) -> int:
        return int(self.run("sbatch", "--parsable", "-t", "10", *words))

    def state(self, job: int) -> str:
        return self.run("squeue", "-h", "-j", str(job), "-t", "all", "-o", "%T").strip()

    def python(self, *words: str, code: str) -> str:
        return self.run("srun", *words, sys.executable, "-c", code).strip()

    def port(self) -> str:
        match = re.search(r"^SlurmctldPort=(\d+)", Path(self.env["SLURM_CONF"]).read_text(), re.MULTILINE)
        assert match
        return match[1]


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    made = Site()
    try:
        made.up()
        made.down()
        made.configure()
        made.up()
        yield made
    finally:
        made.down()
        shutil.rmtree(made.root, ignore_errors=True)


@pytest.fixture
def burning(site: Site) -> Iterator[int]:
    """A job whose step keeps the GPU busy until the test ends."""
    (site.work / "burn.py").write_text(BURN)
    (site.work / "stop").unlink(missing_ok=True)
    job = site.submit("-J", "burn", "--gpus=1", "-o", "burn.out", "--wrap", f"exec srun {sys.executable} burn.py")
    until(lambda: "burning" in _text(site.work / "burn.out"), lambda: f"it burns: {_text(site.work / 'burn.out')}")
    yield job
    (site.work / "stop").touch()
    until(lambda: site.state(job) in ("COMPLETED", "CANCELLED"), lambda: f"job {job} has ended: {site.state(job)}")


def _text(path: Path) -> str:
    return path.read_text() if path.exists() else ""


def test_the_gpus_that_the_driver_has_become_the_clusters_under_a_short_name(site: Site) -> None:
    said = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=True).stdout
    gres = site.run("sinfo", "-h", "-o", "%G").strip()
    counts = [int(count) for count in re.findall(r"gpu:[^:,]+:(\d+)", gres)]
    assert sum(counts) == said.count("GPU ")
    if "NVIDIA H100" in said:
        assert gres.startswith("gpu:h100:")
        assert site.run("srun", "--gpus=h100:1", "nvidia-smi", "-L").count("H100") == 1
    assert re.search(rf"\[  ok  \] {sum(counts)} NVIDIA GPUs? found", site.run("spritz", "doctor"))


def test_a_job_computes_on_the_gpus_that_it_asked_for(site: Site) -> None:
    code = "import torch; print(torch.cuda.device_count(), float(torch.ones(3, device='cuda').sum()))"
    assert site.python("--gpus=1", code=code) == "1 3.0"
    assert site.run("srun", "--gpus=1", "sh", "-c", "echo $SLURM_GPUS_ON_NODE $SLURM_STEP_GPUS").split() == ["1", "0"]


@pytest.mark.skipif(not AS_ROOT, reason="cgroups need root")
def test_a_job_without_gpus_cannot_open_them(site: Site) -> None:
    assert site.python(code="import torch; print(torch.cuda.is_available())") == "False"
    tried = site.run("srun", "sh", "-c", "(: </dev/nvidia0) 2>/dev/null && echo open || echo refused")
    assert tried == "refused\n"
    assert site.python("--gpus=1", code="import torch; print(torch.cuda.is_available())") == "True"


def test_a_busy_gpu_is_seen_in_listings_metrics_the_dashboard_and_accounting(site: Site, burning: int) -> None:
    waiting = site.submit("-J", "waits", "--gpus=1", "--wrap", "true")
    until(lambda: "(Resources)" in site.run("squeue", "-h", "-j", str(waiting), "-o", "%R"), "the next job waits")
    assert "No GPU is free." in site.run("spritz", "gpus")
    until(lambda: _text(site.mapping / "0").split() == [str(burning)], "the mapping for DCGM names the job")

    def utilisation() -> float:
        text = httpx.get(f"http://127.0.0.1:{site.port()}/metrics", timeout=30).text
        found = re.search(r"^spritz_gpu_utilization_ratio\{[^}]*\} (\S+)$", text, re.MULTILINE)
        return float(found[1]) if found else 0.0

    until(lambda: utilisation() > 0.5, lambda: f"metrics show the GPU busy, not {utilisation()}")

    parts = urlsplit(site.link)
    with httpx.Client(base_url=f"{parts.scheme}://{parts.netloc}", timeout=30) as client:
        assert client.post("/login", data={"link": site.link.partition("link=")[2]}).status_code == 303

        def curve() -> list[float]:
            figures = client.get(f"/jobs/{burning}/series.json").json()["figures"]
            rows = [figure for figure in figures if "GPU" in figure["title"]]
            lines = [
                line for row in rows for name, line in zip(row["names"], row["data"][1:], strict=True) if name != "has"
            ]
            return [value for line in lines for value in line if value is not None]

        until(lambda: max(curve(), default=0) > 0, lambda: f"the job's page has a curve of its GPU: {curve()}")
    words = ("sstat", "-j", str(burning), "-P", "-o", "TRESUsageInTot")
    until(lambda: re.search(r"gres/gpuutil=[1-9]", site.run(*words)), "sstat shows the GPU in use")
    site.run("scancel", str(waiting))


def test_what_a_short_job_did_on_its_gpu_is_in_its_account(site: Site) -> None:
    code = (
        "import time, torch; x = torch.randn(8192, 8192, device='cuda'); end = time.monotonic() + 4\n"
        "while time.monotonic() < end: (x @ x).sum().item()"
    )
    job = site.submit("-J", "short", "--gpus=1", "-o", "/dev/null", "--wrap", f'exec srun {sys.executable} -c "{code}"')
    until(lambda: site.state(job) == "COMPLETED", lambda: f"job {job} has ended: {site.state(job)}")
    fields = ("-X", "-n", "-P", "-o", "State,AllocTRES")
    until(lambda: "COMPLETED" in site.run("sacct", "-j", str(job), *fields), "accounting has the job")
    usage = site.run("sacct", "-j", f"{job}.0", "-n", "-P", "-o", "TRESUsageInTot,ConsumedEnergyRaw").strip()
    memory = re.search(r"gres/gpumem=(\d+)", usage)
    assert memory, usage
    assert int(memory[1]) > 0, usage
    assert int(usage.rpartition("|")[2]) > 0, "energy of the GPU"
    assert re.search(r"GPUs +1 +\d+% at most, \d", site.run("spritz", "eff", str(job)))


def test_shards_let_jobs_share_a_gpu_and_no_more_of_them_than_there_are_shards(site: Site) -> None:
    (site.work / "stop").unlink(missing_ok=True)
    wait = "while [ ! -e stop ]; do sleep 0.1; done"
    shared = [site.submit("--gres=shard:2", "-c1", "--mem=100", "-o", "/dev/null", "--wrap", wait) for _ in range(2)]
    until(lambda: [site.state(job) for job in shared] == ["RUNNING"] * 2, "both share the GPU")
    late = site.submit("--gres=shard:1", "-c1", "--mem=100", "-o", "/dev/null", "--wrap", wait)
    whole = site.submit("--gpus=1", "-c1", "--mem=100", "-o", "/dev/null", "--wrap", "true")
    until(lambda: "(Resources)" in site.run("squeue", "-h", "-j", str(late), "-o", "%R"), "no shard is left")
    assert site.state(whole) == "PENDING"
    (site.work / "stop").touch()
    until(lambda: {site.state(job) for job in (*shared, late, whole)} == {"COMPLETED"}, "all of them ran")


def test_a_container_sees_the_gpu_of_its_job(site: Site) -> None:
    if shutil.which("bwrap") is None:
        pytest.skip("bwrap is missing")
    code = "import torch; print(torch.cuda.get_device_name())"
    outside = site.python("--gpus=1", code=code)
    mounts = f"{sys.prefix}:{sys.prefix},{site.work}:{site.work}"  # a container has a /tmp of its own
    inside = site.python("--gpus=1", "--container-image=/", f"--container-mounts={mounts}", code=code)
    assert inside == outside


def test_a_training_goes_on_exactly_after_a_pause_and_its_gpu_is_on_record(site: Site) -> None:
    project = site.work / "project"
    project.mkdir()
    (project / "train.py").write_text(TRAIN)
    gate = site.work / "gate"
    straight = _trained(site, project, gate, pause_at=None)
    assert _trained(site, project, gate, pause_at=23) == straight
    assert len(straight) == 60


def _trained(site: Site, project: Path, gate: Path, pause_at: int | None) -> list[str]:
    """Lines with the loss of each step, of a run that was paused there."""
    name = "straight" if pause_at is None else "paused"
    gate.write_text("60" if pause_at is None else str(pause_at))
    words = ("--gpus", "1", "--resumable", "--no-track", "-J", name, "-d", "--env", f"GATE={gate}")
    site.run("spritz", "run", *words, "--", sys.executable, "train.py", directory=project)
    run = f"{name}-1"

    def losses() -> list[str]:
        return [line.strip() for line in site.run("spritz", "logs", run).splitlines() if "loss " in line]

    if pause_at is not None:
        until(lambda: len(losses()) >= pause_at, lambda: f"it trains: {losses()}")
        site.run("spritz", "pause", run)
        gate.write_text("60")
        site.run("spritz", "resume", run)
    _until_state(site, run, "COMPLETED")
    usage = json.loads(site.run("spritz", "show", run, "--usage", "--json"))
    memory = [max(row["values"]) for row in usage["series"] if row["what"] == "GPU memory"]
    assert memory, usage["series"]
    assert max(memory) > 0
    return [re.sub(r"^.*?(loss )", r"\1", line) for line in losses()]


RING = """\
import torch
import torch.distributed as dist

dist.init_process_group("nccl")
torch.cuda.set_device(0)
value = torch.full((4,), float(dist.get_rank() + 1), device="cuda")
dist.all_reduce(value)
print("sum", value.sum().item(), "of", dist.get_world_size(), flush=True)
dist.destroy_process_group()
"""


def test_torchrun_finds_nccl_and_exec_looks_at_the_gpu_of_a_run(site: Site) -> None:
    project = _project(site, "ring", "ring.py", RING)
    _run(site, project, "ring", "--template", "torchrun", "--", "python", "ring.py")
    _until_state(site, "ring-1", "COMPLETED")
    assert "sum 4.0 of 1" in site.run("spritz", "logs", "ring-1")
    (site.work / "stop").unlink(missing_ok=True)
    burning = _project(site, "burn", "burn.py", BURN.replace('"stop"', repr(str(site.work / "stop"))))
    _run(site, burning, "burn", "--", sys.executable, "burn.py")
    until(lambda: "burning" in site.run("spritz", "logs", "burn-1"), "it burns")
    assert site.run("spritz", "exec", "burn-1", "--", "nvidia-smi", "-L").count("GPU ") == 1
    (site.work / "stop").touch()
    _until_state(site, "burn-1", "COMPLETED")


def test_a_run_whose_gpu_is_idle_is_warned_and_gives_it_back(site: Site) -> None:
    project = _project(site, "idle", "idle.py", "import time, torch; x = torch.ones(9, device='cuda'); time.sleep(900)")
    (project / "spritz.yaml").write_text("guard: {warn_after: 3s, end_after: 8s, action: end}\n")
    _run(site, project, "idle", "--", sys.executable, "idle.py")
    until(lambda: not _state(site, "idle-1").startswith(("PENDING", "RUNNING")), "its guard has ended it")
    assert "GPUs had been idle" in site.run("spritz", "show", "idle-1")


def _project(site: Site, name: str, file: str, text: str) -> Path:
    project = site.work / name
    project.mkdir()
    (project / file).write_text(text)
    return project


def _run(site: Site, project: Path, name: str, *words: str) -> None:
    site.run("spritz", "run", "--gpus", "1", "--no-track", "-t", "10", "-J", name, "-d", *words, directory=project)


def _state(site: Site, run: str) -> str:
    return str(json.loads(site.run("spritz", "show", run, "--json"))["index"]["state"])


def _until_state(site: Site, run: str, state: str) -> None:
    until(
        lambda: _state(site, run) == state,
        lambda: f"{run} is {state}, not {_state(site, run)}: {site.run('spritz', 'logs', run)}",
    )

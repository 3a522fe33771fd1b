"""The first cause is found among the ranks' logs, and ends are told in words."""

from __future__ import annotations

from pathlib import Path

import pytest

from spritz.experiments.job import script
from spritz.experiments.job.settings import RunOptions
from spritz.experiments.records import record
from spritz.experiments.results import failures


def write(directory: Path, **logs: str) -> Path:
    (directory / "log").mkdir()
    record.append(directory, "started", 1.0, restart=0)
    for name, text in logs.items():
        (directory / "log" / f"{name.strip('r').replace('_', '-')}.log").write_text(text)
    return directory


def test_running_out_of_gpu_memory_stands_before_the_time_out_that_it_causes(tmp_path: Path) -> None:
    directory = write(
        tmp_path,
        r0_0="[rank0]: Watchdog caught collective operation timeout: WorkNCCL\n",
        r0_1="step 1\ntorch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB\n",
    )
    said = failures.explain(directory, "FAILED", 1)
    assert said.startswith("it ended with exit status 1; a GPU ran out of memory")
    assert "rank 1: torch.OutOfMemoryError: CUDA out of memory" in said


def test_only_the_newest_life_counts(tmp_path: Path) -> None:
    directory = write(tmp_path, r0_0="CUDA out of memory\n", r1_0="ModuleNotFoundError: No module named 'x'\n")
    assert "a Python module is missing" in failures.explain(directory, "FAILED", 1)


@pytest.mark.parametrize(
    ("state", "code", "words"),
    [
        ("TIMEOUT", None, "it reached its time limit"),
        ("FAILED", 137, "it was killed by SIGKILL"),
        ("FAILED", 127, "its command was not found"),
        ("CANCELLED", None, "it was cancelled"),
        ("COMPLETED", 0, ""),
    ],
)
def test_ends_in_words(tmp_path: Path, state: str, code: int | None, words: str) -> None:
    assert failures.explain(write(tmp_path), state, code) == words


def test_an_abort_at_the_exit_is_told_from_an_exception(tmp_path: Path) -> None:
    directory = write(tmp_path, r0_0="process 0 of 2\nterminate called without an active exception\n")
    assert "a thread still ran when the program ended" in failures.explain(directory, "FAILED", 134)
    (directory / "log" / "0-0.log").write_text("ValueError: lr\nterminate called without an active exception\n")
    assert "the program raised an exception\n  rank 0: ValueError: lr" in failures.explain(directory, "FAILED", 134)


@pytest.mark.parametrize(("seconds", "words"), [(20, "20 s"), (3600, "60 min")])
def test_a_guard_says_how_long_the_run_was_idle(tmp_path: Path, seconds: int, words: str) -> None:
    record.append(write(tmp_path), "idle", 2.0, restart=0, action="end", what="gpu", seconds=seconds)
    assert failures.explain(tmp_path, "FAILED", 143) == f"its guard ended it: the GPUs had been idle for {words}"


def test_a_script_that_slurm_could_not_start_is_told_from_a_command_that_failed(tmp_path: Path) -> None:
    (tmp_path / "log").mkdir()
    assert failures.explain(tmp_path, "FAILED", 0).startswith("its script could not begin: can its node write")


def raised(line: str, prefix: str = "") -> str:
    """A traceback that ends with the line."""
    trace = ["Traceback (most recent call last):", '  File "train.py", line 3, in main', "    step(batch)", line]
    return "".join(f"{prefix}{part}\n" for part in trace)


#: The end of a log -> the beginning of the explanation, and the line that is shown. The texts have the shapes that the
#: programs print.
TAILS = [
    # GPU memory
    (
        raised("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."),
        "a GPU ran out of",
        "torch.Out",
    ),
    (raised("torch.cuda.OutOfMemoryError: HIP out of memory. Tried to allocate 8 MiB"), "a GPU ran out of", "torch.cu"),
    (raised("RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling x"), "a GPU ran out of", "RuntimeError"),
    ("jax.errors: RESOURCE_EXHAUSTED: Out of memory allocating 9 bytes\n", "a GPU ran out of memory", "jax.errors"),
    # main memory
    ("slurmstepd: error: Detected 1 oom_kill event in StepId=7.0.\n", "the job ran out of main memory", "slurmstepd"),
    (raised("MemoryError"), "the job ran out of main memory", "MemoryError"),
    ("terminate called after throwing 'std::bad_alloc'\n", "the job ran out of main memory", "terminate called"),
    (raised("OSError: [Errno 12] Cannot allocate memory"), "the job ran out of main memory", "OSError"),
    # shared memory
    ("ERROR: Unexpected bus error encountered in worker. insufficient shared memory\n", "/dev/shm is full", "ERROR"),
    ("Bus error (core dumped)\n", "/dev/shm is full", "Bus error"),
    (raised("RuntimeError: unable to mmap 64 bytes from file </torch_1_2>"), "/dev/shm is full", "RuntimeError"),
    # drivers and devices
    (
        raised("RuntimeError: The NVIDIA driver on your system is too old (found 12020)"),
        "this build of",
        "RuntimeError",
    ),
    (raised("RuntimeError: CUDA error: no kernel image is available for execution"), "this build of the", "RuntimeErr"),
    (raised("RuntimeError: No CUDA GPUs are available"), "no GPU in the job", "RuntimeError"),
    (raised("AssertionError: Torch not compiled with CUDA enabled"), "no GPU in the job", "AssertionError"),
    (
        raised("RuntimeError: CUDA error: uncorrectable ECC error encountered"),
        "a GPU failed: run again",
        "RuntimeError",
    ),
    (raised("RuntimeError: CUDA error: unspecified launch failure"), "a GPU failed: run again", "RuntimeError"),
    (raised("RuntimeError: CUDA error: device-side assert triggered"), "a CUDA kernel failed", "RuntimeError"),
    (raised("RuntimeError: CUDA error: an illegal memory access was encountered"), "a CUDA kernel failed", "Runtime"),
    (raised("RuntimeError: Cannot re-initialize CUDA in forked subprocess."), "CUDA was used before", "RuntimeError"),
    (
        raised("RuntimeError: Expected all tensors to be on the same device, but"),
        "a tensor is on another",
        "RuntimeErr",
    ),
    # environments
    (
        "slurmstepd-n1: error: StepId=5.0 exceeded memory limit (1961340928 > 1887436800), being killed\nKilled\n",
        "the job ran out of main memory",
        "StepId=5.0",
    ),
    (raised("ModuleNotFoundError: No module named 'flash_attn'"), "a Python module is missing", "ModuleNotFound"),
    (raised("ModuleNotFoundError: Neither `a` nor `b` is available"), "a Python module is missing", "Neither"),
    ("/usr/bin/python3: No module named torch\n", "a Python module is missing", "/usr/bin/python3"),
    (raised("ImportError: cannot import name 'x' from 'y' (/z.py)"), "a Python module is missing", "ImportError"),
    (raised("ImportError: libcudart.so.12: cannot open shared object file: No such file"), "a shared lib", "ImportErr"),
    ("./a.out: /lib/libc.so.6: version `GLIBC_2.38' not found (required by ./a.out)\n", "a shared library", "./a.out"),
    (
        '  File "train.py", line 3\n    x = = 1\n        ^\nSyntaxError: invalid syntax\n',
        "the program cannot be",
        "Synt",
    ),
    # arguments
    (
        "usage: train.py [-h]\ntrain.py: error: unrecognized arguments: --lrr 1\n",
        "the program does not take",
        "train.py",
    ),
    ("Could not override 'modle.lr'.\nKey 'modle' is not in struct\n", "the program does not take", "Could not"),
    # files and hosts
    (raised("OSError: [Errno 28] No space left on device: 'out/x.pt'"), "the file system is full", "OSError"),
    (raised("OSError: [Errno 122] Disk quota exceeded"), "the file system is full", "OSError"),
    (raised("OSError: [Errno 24] Too many open files: 'x'"), "too many files are open", "OSError"),
    (raised("PermissionError: [Errno 13] Permission denied: '/data/x'"), "a file may not be read", "PermissionError"),
    (raised("FileNotFoundError: [Errno 2] No such file or directory: '/data/x'"), "a file is missing", "FileNotFound"),
    (raised("RuntimeError: The server socket has failed to listen: EADDRINUSE"), "the rendezvous port", "RuntimeError"),
    (raised("huggingface_hub.errors.GatedRepoError: 401 Client Error."), "a server refused access", "huggingface_hub"),
    (
        raised("requests.exceptions.ConnectionError: Max retries exceeded with url: /x"),
        "a server could not",
        "requests",
    ),
    (raised("socket.gaierror: [Errno -3] Temporary failure in name resolution"), "a server could not be", "socket."),
    (raised("_pickle.UnpicklingError: invalid load key, 'v'."), "a file is a pointer of Git LFS", "_pickle"),
    (
        raised("RuntimeError: Error(s) in loading state_dict: size mismatch for fc.weight"),
        "the checkpoint",
        "RuntimeErr",
    ),
    (raised("RuntimeError: Function 'MulBackward0' returned nan values in its 0th output."), "the computation", "Runt"),
    ("step 7: loss is nan, stopping\n", "the computation diverged", "step 7"),
    # exceptions of any name
    (raised("ValueError: lr"), "the program raised an exception", "ValueError: lr"),
    (
        raised("omegaconf.errors.MissingMandatoryValue: x") + raised("a.b.CustomError: y"),
        "the program raised",
        "a.b.Cu",
    ),
    (raised("KeyboardInterrupt"), "the program raised an exception", "KeyboardInterrupt"),
    ("ValueError: printed and survived\n" + raised("KeyError: 'real'"), "the program raised", "KeyError: 'real'"),
    # signals
    ("Segmentation fault (core dumped)\n", "a compiled part crashed", "Segmentation fault"),
    ("Killed\n", "a process was killed", "Killed"),
    ("RuntimeWarning: x\nIllegal instruction (core dumped)\n", "a program was built for other", "Illegal"),
    (
        raised("RuntimeError: DataLoader worker (pid 7) is killed by signal: Killed."),
        "the program raised",
        "RuntimeErr",
    ),
    # peers
    ("[rank0]:[W9] NCCL WARN Call to ibv_reg_mr failed\n", "NCCL failed", "NCCL WARN"),
    (raised("torch.distributed.DistBackendError: NCCL error: remote process exited"), "NCCL failed", "torch.dist"),
    (raised("ConnectionResetError: [Errno 104] Connection reset by peer"), "a rank lost its peer", "ConnectionReset"),
]


@pytest.mark.parametrize(("tail", "meaning", "line"), TAILS, ids=[line for _, _, line in TAILS])
def test_ends_of_real_logs(tmp_path: Path, tail: str, meaning: str, line: str) -> None:
    cause = failures.first_cause(write(tmp_path, r0_0=f"epoch 1\nstep 1 loss 0.3\n{tail}"))
    assert cause.startswith(meaning), cause
    assert line in cause.splitlines()[1], cause


def test_a_directory_of_the_submission_that_is_gone_is_no_cause(tmp_path: Path) -> None:
    """slurmstepd says so in the job's log, which has no rank."""
    gone = (
        "slurmstepd-n1: error: couldn't chdir to `/home/me/project': No such file or directory: going to /tmp instead\n"
    )
    write(tmp_path, job=gone, r0_0="/usr/bin/python3: No module named mylib\n")
    assert failures.explain(tmp_path, "FAILED", 1).split("; ", 1)[1].startswith("a Python module is missing")
    (tmp_path / "log" / "0-0.log").write_text("")
    assert failures.explain(tmp_path, "FAILED", 1) == "it ended with exit status 1"


def test_the_rank_that_failed_is_named_and_not_those_that_lost_it(tmp_path: Path) -> None:
    """All ranks of torchrun write into one log, and the launcher reports at its end what it saw."""
    lost = raised("torch.distributed.DistBackendError: NCCL error: remote process exited", "[rank0]: ")
    cause = raised("RuntimeError: shapes do not fit", "[rank3]: ")
    launcher = raised("torch.distributed.elastic.multiprocessing.errors.ChildFailedError:")
    explained = failures.first_cause(write(tmp_path, r0_0=lost + cause + launcher))
    assert explained == "the program raised an exception\n  rank 3: RuntimeError: shapes do not fit"


@pytest.mark.parametrize("prefix", ["[rank2]: ", "[rank2]:", "[default2]:", "[rank: 2] ", "2: "])
def test_prefixes_of_launchers(tmp_path: Path, prefix: str) -> None:
    assert "rank 2: ValueError: x" in failures.first_cause(write(tmp_path, r0_0=raised("ValueError: x", prefix)))


def test_the_rank_whose_log_tells_the_cause_wins_over_those_that_came_first(tmp_path: Path) -> None:
    directory = write(
        tmp_path,
        r0_0=raised("ConnectionResetError: [Errno 104] Connection reset by peer"),
        r0_1=raised("RuntimeError: Broken pipe"),
        r0_2="step 3\nSegmentation fault\n",
    )
    assert failures.first_cause(directory).endswith("rank 2: Segmentation fault")


@pytest.mark.parametrize(
    ("options", "nodes", "text", "where"),
    [
        (
            RunOptions(template="torchrun", nodes="2", gpus_per_node="h100:4"),
            "n[3-4]",
            "[rank5]: ",
            "rank 5 (n4, GPU 1): ",
        ),
        (RunOptions(template="torchrun", gpus="4"), "n3", "[rank2]: ", "rank 2 (GPU 2): "),
        (RunOptions(template="lightning", nodes="2", gpus="4"), "n[3-4]", "", "rank 3 (n4, GPU 1): "),
        (RunOptions(tasks_per_node="2", nodes="2"), "a,b", "", "rank 3 (b): "),
        (RunOptions(tasks_per_node="2"), "a", "", "rank 3: "),
        (RunOptions(nodes="2", gpus="3"), "a,b", "[rank1]: ", "rank 1 (b): "),
        (RunOptions(template="torchrun", nodes="1-2", gpus="4"), "a,b", "[rank3]: ", "rank 3: "),
        (RunOptions(), "", "", "rank 3: "),
    ],
)
def test_the_failed_ranks_node_and_gpu_are_named(
    tmp_path: Path, options: RunOptions, nodes: str, text: str, where: str
) -> None:
    directory = write(tmp_path, r0_3=raised("RuntimeError: x", text))
    record.write(
        directory, record.Run(name="r", user="u", created_at=0.0, command=["x"], per_node=script.per_node(options))
    )
    record.append(directory, "started", 2.0, restart=0, nodes=nodes)
    assert failures.first_cause(directory).splitlines()[1] == f"  {where}RuntimeError: x"


OOM = "CUDA out of memory; trying again with half of the batch\n"
KEY = "Traceback (most recent call last):\n  File \"t.py\", line 1, in <module>\nKeyError: 'lr'\n"


@pytest.mark.parametrize(
    ("log", "words"),
    [
        (f"wandb: WARNING Network is unreachable, offline mode\nstep 1\n{KEY}", "KeyError: 'lr'"),
        (f"libcudart.so.11.0: cannot open shared object file: No such file or directory\n{KEY}", "KeyError: 'lr'"),
        (f"{OOM}step 2\n{KEY}", "KeyError: 'lr'"),
        (
            f"{KEY.replace('KeyError', 'FileNotFoundError')}\n"
            f"During handling of the above exception, another exception occurred:\n\n{KEY}",
            "KeyError: 'lr'",
        ),
        (
            f"{KEY.replace('KeyError', 'torch.OutOfMemoryError')}\n"
            f"The above exception was the direct cause of the following exception:\n\n{KEY}",
            "a GPU ran out of memory",
        ),
        (f"{KEY}{KEY.replace('KeyError', 'ChildFailedError')}", "KeyError: 'lr'"),
        (f"{KEY}step 9\n{OOM}", "a GPU ran out of memory"),
        (
            "ERROR: Unexpected bus error in worker: insufficient shared memory (shm).\n"
            + KEY.replace("KeyError: 'lr'", "RuntimeError: DataLoader worker (pid 1) is killed by signal: Bus error."),
            "/dev/shm is full",
        ),
        ("n1: stopped sending heartbeats: /job:jax_worker/task:2\n", "a rank lost its peer"),
    ],
)  # fmt: skip
def test_what_ended_the_program_stands_before_what_it_went_on_without(tmp_path: Path, log: str, words: str) -> None:
    assert words in failures.explain(write(tmp_path, r0_0=log), "FAILED", 1)


@pytest.mark.parametrize(
    "line",
    [
        "No such file or directory: cache miss, building index", "mkdir: /cache: Permission denied",
        "retrying: Network is unreachable", "bind: Address already in use, trying the next port",
    ],
)  # fmt: skip
def test_what_a_program_logged_long_ago_is_no_cause(tmp_path: Path, line: str) -> None:
    directory = write(tmp_path, r0_0=line + "\nstep" * 40 + "\n")
    assert failures.explain(directory, "FAILED", 3) == "it ended with exit status 3"
    (directory / "log" / "0-0.log").write_text(f"step\n{line}\n")
    assert ";" in failures.explain(directory, "FAILED", 3)
    assert failures.explain(directory, "TIMEOUT", None) == "it reached its time limit"


@pytest.mark.parametrize(
    "line", ["MemoryError handler installed", "missing: []; Unexpected key(s) in state_dict: []", "loss is nan? False"]
)
def test_words_of_causes_in_other_sentences_are_none(tmp_path: Path, line: str) -> None:
    assert failures.explain(write(tmp_path, r0_0=f"{line}\n"), "FAILED", 3) == "it ended with exit status 3"

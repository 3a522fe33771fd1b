"""Checkpoints for training code: written atomically, found again at a restart, and requested by the signal of `spritz
pause`.

    from spritz_checkpointing import Checkpointer

    checkpoints = Checkpointer()
    state = checkpoints.load()
    if state is not None:
        model.load_state_dict(state["model"])
    for step in range(state["step"] if state else 0, 10_000):
        train(step)
        stop = checkpoints.should_stop()
        if stop or step % 500 == 499:
            checkpoints.save(step + 1, model=model)
        if stop:
            checkpoints.leave()

Each run of `spritz run` has this file as `spritz_checkpointing` on PYTHONPATH; elsewhere, copy it. It needs only the
standard library, and no Slurm: without a job, checkpoints go to ./checkpoints, and SIGUSR1 or SIGTERM stops the
program. The contract with the job is in docs/how-to/pause-and-resume.md.

With several ranks, rank 0 writes, all ranks store their random state, and all stop at the same step: by
torch.distributed if it is initialised, else by `agree`, which gets whether this rank wants to stop and returns whether
any rank does (such as `lambda wish: comm.allreduce(wish, MPI.LOR)`).

A node that was lost may not be dead, and run this program on while a newer start of the run has its checkpoints. The
older one gets `FencedOut` then, from `save`, `load` and `leave`, and changes no checkpoint.
"""

from __future__ import annotations

import atexit
import os
import pickle
import random
import re
import shutil
import signal
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NoReturn

__all__ = ["SAVED", "Checkpointer", "FencedOut", "aim_run", "huggingface_callback", "lightning_callback", "resume_from"]

#: Exit status that asks the job to start the program again from its checkpoint.
SAVED = 75
_NAME = re.compile(r"step-(\d+)\.ckpt\Z")


class FencedOut(RuntimeError):
    """A newer start of this run has begun, so that this one must not change its checkpoints."""


class Checkpointer:
    """Writes and reads checkpoints in `directory` (default: $SPRITZ_CHECKPOINT_DIR), and keeps the newest `keep`.

    Create it before the training starts: from then on, the signals set a flag that `should_stop` returns.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str] | None = None,
        *,
        keep: int = 2,
        agree: Callable[[bool], bool] | None = None,
        random_state: bool = True,
    ) -> None:
        if keep < 1:
            raise ValueError("keep must be at least 1")
        self.directory = Path(directory or os.environ.get("SPRITZ_CHECKPOINT_DIR") or "checkpoints")
        self.rank = _rank()
        self.keep = keep
        self._agree = agree or _agree
        self._random_state = random_state
        self._asked = False
        self.directory.mkdir(parents=True, exist_ok=True)
        self._life = _Life(self.directory, self.rank)
        wanted = os.environ.get("SPRITZ_STOP_SIGNAL", "USR1")
        for name in dict.fromkeys((f"SIG{wanted}", "SIGTERM")):
            signal.signal(getattr(signal, name), self._note)
        # The job repeats the signal until the program has ended, and Python's exit resets handlers: ignore it then.
        atexit.register(signal.signal, getattr(signal, f"SIG{wanted}"), signal.SIG_IGN)

    def _note(self, number: int, frame: object) -> None:
        self._asked = True

    def should_stop(self) -> bool:
        """Whether any rank was asked to stop. All ranks must call it equally often, since it may be a collective."""
        return self._agree(self._asked)

    def save(self, step: int, **state: Any) -> Path:
        """Write `state` atomically, with `step`, the next step to do. Objects with a `state_dict` are saved by it.

        All ranks must call it; rank 0 writes `state`. Raises FencedOut.
        """
        path = self.directory / f"step-{step:010}.ckpt"
        if self._random_state:
            self._write(_beside(path, self.rank), _random_state())
        if self.rank == 0:
            plain = {key: value.state_dict() if hasattr(value, "state_dict") else value for key, value in state.items()}
            self._write(path, {**plain, "step": step})
            self.point(path)
            self._prune()
        _barrier()
        return path

    def load(self) -> dict[str, Any] | None:
        """The newest checkpoint that can be read, with its `step`; None if there is none. Sets the random state.

        From then on no older start of the run adds checkpoints. Raises FencedOut.
        """
        self._life.begin()
        for path in sorted(self._files(), reverse=True):
            try:
                state: dict[str, Any] = _read(path)
            except Exception as error:  # a damaged file may raise anything; an older one may be intact
                warnings.warn(f"{path} cannot be read ({error}); trying an older checkpoint", stacklevel=2)
                continue
            beside = _beside(path, self.rank)
            if self._random_state and beside.exists():
                _set_random_state(_read(beside))
            return state
        return None

    def leave(self) -> NoReturn:
        """Exit so that the job starts this program again from the checkpoint. All ranks must call it.

        Raises FencedOut: the newer start would be started again.
        """
        self._life.check()
        _barrier()
        saved = os.environ.get("SPRITZ_SAVED_FILE")
        if saved is None:
            sys.exit(SAVED)
        # Tell the job by a file: launchers replace the status, and srun ends the other ranks at a status other than 0.
        if self.rank == 0:
            Path(saved).touch()
        sys.exit(0)

    def _files(self) -> list[Path]:
        return [path for path in self.directory.iterdir() if _NAME.match(path.name)]

    def _prune(self) -> None:
        files = sorted(self._files())
        for path in files[: -self.keep]:
            for old in (path, *self.directory.glob(f".{path.stem}.rank-*")):
                self.remove(old)

    def remove(self, path: Path) -> None:
        """Remove an old checkpoint's file. Raises FencedOut."""
        if not self._life.number:
            path.unlink(missing_ok=True)
            return
        # By a rename too, which a newer start ends.
        scratch = self._life.begin() / path.name
        with suppress(FileNotFoundError):
            self._life.rename(path, scratch)
            scratch.unlink()

    def need_life(self, *, shared: bool = False) -> Path:
        """The directory for what is not complete yet; `shared`: rank 0's, on all ranks. Raises FencedOut."""
        scratch = self._life.begin()
        return self._life.shared if shared else scratch

    def publish(self, scratch: Path, path: Path) -> None:
        """Give what was written in `need_life()` its name. Raises FencedOut."""
        self._life.rename(scratch, path)

    def point(self, path: Path) -> None:
        """Point the link `latest`, by which the job finds it, to the newest complete checkpoint. Raises FencedOut."""
        scratch = self._life.begin() / f".latest-{os.getpid()}"
        scratch.unlink(missing_ok=True)
        with self._life.fenced():
            scratch.symlink_to(os.path.relpath(path, self.directory))
        self._life.rename(scratch, self.directory / "latest")
        _sync(self.directory)

    def _write(self, path: Path, value: Any) -> None:
        folder = self._life.begin()
        with self._life.fenced():
            descriptor, scratch = tempfile.mkstemp(dir=folder, prefix=".", suffix=".tmp")
        try:
            with os.fdopen(descriptor, "wb") as file:
                if "torch" in sys.modules:
                    sys.modules["torch"].save(value, file)
                else:
                    pickle.dump(value, file, protocol=pickle.HIGHEST_PROTOCOL)
                file.flush()
                os.fsync(file.fileno())
            self._life.rename(Path(scratch), path)
        except BaseException as error:
            with suppress(OSError):
                os.unlink(scratch)
            if isinstance(error, OSError):
                self._life.check()  # a newer start has removed it
            raise
        _sync(self.directory)


class _Life:
    """This start of the run, among those that may write checkpoints into `directory`.

    A start writes into a directory of its own there, and renames out of it. A newer start removes the directories of
    older ones: from then on a rename fails at the file system itself, even that of a process which was stopped between
    looking and renaming. Without a job, and in one of an earlier release, `directory` itself is written to.
    """

    def __init__(self, directory: Path, rank: int) -> None:
        self._directory = directory
        run, number, place = (os.environ.get(f"SPRITZ_{name}", "") for name in ("RUN", "LIFE", "RUN_DIR"))
        self._run = run
        self.number = int(number) if run and place and number.isdecimal() else 0
        self._lives = Path(place) / "lives"
        self._scratch = directory / f".life-{number}-{rank}@{run}" if self.number else directory
        self.shared = directory / f".life-{number}-0@{run}" if self.number else directory
        self._begun = not self.number

    def begin(self) -> Path:
        """The directory for incomplete files; ends what older starts of the run may write. Raises FencedOut."""
        self.check()
        if not self._begun:
            self._begun = True
            self._scratch.mkdir(exist_ok=True)
            for path in self._directory.glob(f".life-*@{self._run}"):
                number = path.name.partition("-")[2].partition("-")[0]
                if number.isdecimal() and int(number) < self.number:
                    over = path.with_name(f".over-{path.name}")
                    with suppress(OSError):  # another rank, or the job's script, does the same
                        path.rename(over)
                    shutil.rmtree(over, ignore_errors=True)
            self.check()  # what has begun since may have looked before there was a directory to remove
        return self._scratch

    def check(self) -> None:
        """Raises FencedOut if a newer start has begun."""
        if not self.number:
            return
        newest = self.number
        while os.path.lexists(self._lives / str(newest + 1)):
            newest += 1
        if newest > self.number or (self._begun and not self._scratch.is_dir()):
            removed = f"{self._scratch} was removed, as a newer start does: one"
            newer = self._name(newest) if newest > self.number else removed
            raise FencedOut(
                f"{self._run}: {newer} has begun; this is {self._name(self.number)}, which must not change"
                f" {self._directory} any more"
            )

    def _name(self, number: int) -> str:
        try:
            job, _, more = os.readlink(self._lives / str(number)).partition(".")
        except OSError:
            return f"start {number}"
        restart, _, node = more.partition("@")
        return f"start {number} (job {job}, restart {restart}, on {node})"

    def rename(self, scratch: Path, path: Path) -> None:
        """Move a complete file or directory of `begin()` to its place. Raises FencedOut."""
        self.check()
        with self.fenced():
            os.replace(scratch, path)

    @contextmanager
    def fenced(self) -> Iterator[None]:
        """Raises FencedOut where a newer start, which has removed the directory, makes the block fail."""
        try:
            yield
        except OSError:
            self.check()
            raise


def resume_from() -> str | None:
    """The checkpoint from which to start (SPRITZ_RESUME_FROM, set by the job); None at the first start."""
    return os.environ.get("SPRITZ_RESUME_FROM") or None


def aim_run(**options: Any) -> Any:
    """An `aim.Run`, with which the program goes on each time that it is started again. `options` are those of Run.

    Aim chooses the hash of a run itself and refuses others, so the first start keeps it in the run's directory.
    """
    from aim import Run  # type: ignore[import-not-found, unused-ignore]  # the user's

    kept = Path(os.environ.get("SPRITZ_RUN_DIR", "."), "aim-run")
    if kept.exists():
        # The lock may be that of a start that was killed.
        return Run(run_hash=kept.read_text(encoding="utf-8"), force_resume=True, **options)
    run = Run(**options)
    kept.write_text(run.hash, encoding="utf-8")
    return run


def lightning_callback(checkpointer: Checkpointer | None = None, *, every_n_steps: int = 0) -> Any:
    """A callback for Lightning's Trainer: saves and leaves when asked. `trainer.fit(…, ckpt_path=resume_from())`.

    With `every_n_steps` it also saves that often, and keeps the newest. All checkpoints of the Trainer, those of
    ModelCheckpoint too, carry each rank's random state, which Lightning leaves out. Where the data was in the middle of
    an epoch is for the data loader to say (`state_dict`, as torchdata's StatefulDataLoader has it).
    """
    try:
        from lightning.pytorch import Callback  # type: ignore[import-not-found, unused-ignore]  # the user's
    except ImportError:
        from pytorch_lightning import Callback  # type: ignore[import-not-found, unused-ignore]  # the user's
    checkpoints = checkpointer or Checkpointer()

    class SaveAndLeave(Callback):  # type: ignore[misc, unused-ignore]  # of a package without types
        saving = False
        loaded: dict[str, Any] | None = None

        def state_dict(self) -> dict[str, Any]:
            # Lightning reads checkpoints as tensors and plain values alone.
            torch = sys.modules["torch"]
            states = _of_all_ranks(pickle.dumps(_random_state()))
            return {"random": [torch.frombuffer(bytearray(state), dtype=torch.uint8) for state in states]}

        def load_state_dict(self, state_dict: dict[str, Any]) -> None:
            states = state_dict["random"]
            if checkpoints.rank < len(states):
                self.loaded = pickle.loads(bytes(states[checkpoints.rank].tolist()))

        def on_train_batch_start(self, *_: Any, **__: Any) -> None:
            # Not earlier: the Trainer itself draws numbers while it prepares the training.
            if self.loaded is not None:
                _set_random_state(self.loaded)
                self.loaded = None

        def on_save_checkpoint(self, *_: Any, **__: Any) -> None:
            # A later checkpoint of ModelCheckpoint: without `latest` the job takes the newest file.
            checkpoints.need_life()
            if not self.saving and checkpoints.rank == 0:
                (checkpoints.directory / "latest").unlink(missing_ok=True)

        def on_train_batch_end(self, trainer: Any, *_: Any, **__: Any) -> None:
            stop = checkpoints.should_stop()
            if stop or (every_n_steps and trainer.global_step % every_n_steps == 0):
                self.save(trainer)
            if stop:
                checkpoints.leave()

        def save(self, trainer: Any) -> None:
            path = checkpoints.directory / f"lightning-{trainer.global_step:010}.ckpt"
            scratch = checkpoints.need_life(shared=True) / f".{path.name}"
            self.saving = True
            trainer.save_checkpoint(scratch)
            self.saving = False
            if checkpoints.rank == 0:
                checkpoints.publish(scratch, path)
                checkpoints.point(path)
                for old in sorted(checkpoints.directory.glob("lightning-*.ckpt"))[: -checkpoints.keep]:
                    checkpoints.remove(old)

    return SaveAndLeave()


def huggingface_callback(checkpointer: Checkpointer | None = None) -> Any:
    """A callback for HF's Trainer: saves and leaves when asked.

    `TrainingArguments(output_dir=os.environ["SPRITZ_CHECKPOINT_DIR"])` and
    `trainer.train(resume_from_checkpoint=resume_from())`.
    """
    from transformers import TrainerCallback  # type: ignore[import-not-found, unused-ignore]  # the user's

    checkpoints = checkpointer or Checkpointer()

    class SaveAndLeave(TrainerCallback):  # type: ignore[misc, unused-ignore]  # of a package without types
        stopping = False

        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> Any:
            if checkpoints.should_stop():
                self.stopping = control.should_save = control.should_training_stop = True
            if control.should_save:
                checkpoints.need_life()  # the Trainer writes it itself
            return control

        def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> Any:
            # The Trainer writes into the directory's final name: only now is it whole.
            if checkpoints.rank == 0:
                checkpoints.point(Path(args.output_dir).absolute() / f"checkpoint-{state.global_step}")
            if self.stopping:
                checkpoints.leave()
            return control

    return SaveAndLeave()


def _rank() -> int:
    for name in ("RANK", "SLURM_PROCID"):  # torchrun's first: Slurm knows its launchers alone
        if os.environ.get(name, "").isdecimal():
            return int(os.environ[name])
    return 0


def _distributed() -> Any:
    torch = sys.modules.get("torch")
    distributed = getattr(torch, "distributed", None)
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return distributed
    return None


def _agree(wish: bool) -> bool:
    distributed = _distributed()
    if distributed is None:
        return wish
    torch = sys.modules["torch"]
    device = "cuda" if distributed.get_backend() == "nccl" else "cpu"
    flag = torch.tensor([int(wish)], device=device)
    distributed.all_reduce(flag, op=distributed.ReduceOp.MAX)
    return bool(flag.item())


def _of_all_ranks(value: Any) -> list[Any]:
    """Each rank's value, by rank. All ranks must call it."""
    distributed = _distributed()
    if distributed is None:
        return [value]
    values: list[Any] = [None] * distributed.get_world_size()
    distributed.all_gather_object(values, value)
    return values


def _barrier() -> None:
    distributed = _distributed()
    if distributed is not None:
        distributed.barrier()


def _beside(path: Path, rank: int) -> Path:
    return path.with_name(f".{path.stem}.rank-{rank}")


def _read(path: Path) -> Any:
    with path.open("rb") as file:
        is_torch = file.read(2) == b"PK"
        file.seek(0)
        if is_torch:
            import torch  # type: ignore[import-not-found, unused-ignore]  # the user's

            return torch.load(file, map_location="cpu", weights_only=False)
        return pickle.load(file)


def _sync(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _random_state() -> dict[str, Any]:
    state: dict[str, Any] = {"python": random.getstate()}
    if "numpy" in sys.modules:
        state["numpy"] = sys.modules["numpy"].random.get_state()
    if "torch" in sys.modules:
        torch = sys.modules["torch"]
        state["torch"] = torch.get_rng_state()
        if torch.cuda.is_available() and torch.cuda.is_initialized():
            state["cuda"] = torch.cuda.get_rng_state_all()
    return state


def _set_random_state(state: dict[str, Any]) -> None:
    random.setstate(state["python"])
    if "numpy" in state:
        import numpy

        numpy.random.set_state(state["numpy"])
    if "torch" in state:
        import torch  # type: ignore[import-not-found, unused-ignore]  # the user's

        torch.set_rng_state(state["torch"])
        if "cuda" in state and torch.cuda.device_count() == len(state["cuda"]):
            torch.cuda.set_rng_state_all(state["cuda"])

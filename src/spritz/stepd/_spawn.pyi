"""The compiled part of `spawn`: see `_spawn.c`."""

def spawn(
    programs: tuple[bytes, ...],
    search: bool,
    argv: tuple[bytes, ...],
    env: tuple[bytes, ...],
    streams: tuple[int, int, int],
    terminal: bool,
    oom_score: bytes | None,
    cpus: tuple[int, ...],
    nice: int,
    limits: tuple[tuple[int, int, bytes], ...],
    user: tuple[int, int, tuple[int, ...]] | None,
    umask: int,
    /,
) -> tuple[int, int, int, int]: ...

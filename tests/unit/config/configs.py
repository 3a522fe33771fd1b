"""Writing configurations for tests and reading them: only what a test is about has to be written."""

from __future__ import annotations

from pathlib import Path

from spritz.config.load import examine
from spritz.config.loaded import LoadedConfig

FILES = Path(__file__).parent / "files"

#: What every configuration needs; a test adds its lines.
BASE = "ClusterName=c\nSlurmctldHost=h\nSlurmUser=root\n"
NODES = "NodeName=n[1-4] CPUs=4\nPartitionName=p Nodes=ALL Default=YES\n"


def write(directory: Path, text: str = "", *, base: str = BASE, nodes: str = NODES, **others: str) -> str:
    """A slurm.conf of `base`, `text` and `nodes`, and files such as `gres="…"` next to it; its path."""
    for name, content in others.items():
        (directory / f"{name}.conf").write_text(content)
    path = directory / "slurm.conf"
    path.write_text(base + text + nodes)
    return str(path)


def loaded(directory: Path, text: str = "", *, base: str = BASE, nodes: str = NODES, **others: str) -> LoadedConfig:
    """The configuration, which must be without errors."""
    config, diagnostics = examine(write(directory, text, base=base, nodes=nodes, **others), check_users=False)
    assert config is not None, [item.text for item in diagnostics]
    return config


def errors(directory: Path, text: str = "", *, base: str = BASE, nodes: str = NODES, **others: str) -> list[str]:
    """Texts of all errors, file names without their directory."""
    return _texts(directory, "error", write(directory, text, base=base, nodes=nodes, **others))


def warnings(directory: Path, text: str = "", *, base: str = BASE, nodes: str = NODES, **others: str) -> list[str]:
    """Texts of all warnings of a configuration without errors."""
    path = write(directory, text, base=base, nodes=nodes, **others)
    assert _texts(directory, "error", path) == []
    return _texts(directory, "warning", path)


def _texts(directory: Path, severity: str, path: str) -> list[str]:
    _, diagnostics = examine(path, check_users=False)
    return [item.text.replace(f"{directory}/", "") for item in diagnostics if item.severity == severity]

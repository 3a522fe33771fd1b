"""Options as text become a request, or are refused in Slurm's words."""

from __future__ import annotations

from pathlib import Path

import pytest

from spritz.cli.jobs.submit import spec
from spritz.cli.jobs.submit.refusals import Refusal, Source
from spritz.cli.jobs.submit.setters import SETTERS
from spritz.model.errors import SpritzError
from spritz.model.ids import INFINITE
from spritz.model.job.record import Dependency, EndSignal, JobSpec, Sharing
from spritz.model.resources import GresRequest

NOW = 1_800_000_000.0


def build(said: list[str] | None = None, environ: dict[str, str] | None = None, **options: str) -> JobSpec:
    given = {name.replace("_", "-"): value for name, value in options.items()}
    source = Source(NOW, "/here", environ, said.append if said is not None else lambda text: None)
    return spec.build(given, source)


@pytest.mark.parametrize(
    ("options", "fields"),
    [
        ({"nodes": "2-4"}, {"nodes_min": 2, "nodes_max": 4, "nodes_given": True, "tasks": 2}),
        ({"nodes": "8,2-5:2"}, {"nodes_min": 2, "nodes_max": 8, "node_counts": (2, 4, 8), "nodes_given": True}),
        ({"nodes": "2", "ntasks_per_node": "3"}, {"tasks": 6, "tasks_given": False}),
        ({"ntasks": "7", "ntasks_per_node": "3"}, {"nodes_min": 3, "nodes_given": False}),
        ({"gpus": "2", "ntasks_per_gpu": "2"}, {"tasks": 4, "tasks_given": True}),
        ({"gpus_per_node": "2", "nodes": "2", "ntasks_per_gpu": "1"}, {"tasks": 4, "tasks_given": True}),
        ({"gres": "gpu:1", "ntasks": "3", "ntasks_per_gpu": "2"}, {"tasks": 3}),
        ({"mem": "4G"}, {"memory_mib_per_node": 4096}),
        ({"time": "1-2"}, {"time_limit_minutes": 26 * 60}),
        ({"time": "0"}, {"time_limit_minutes": INFINITE}),
        ({"partition": "gpu,"}, {"partitions": ("gpu",)}),
        ({"begin": "now+60"}, {"begin_at": NOW + 60}),
        ({"gpus": "a100:2"}, {"gpus": (GresRequest("gpu", "a100", 2),)}),
        ({"gres": "none"}, {"gres_per_node": ()}),
        ({"exclusive": ""}, {"sharing": Sharing.EXCLUSIVE}),
        ({"oversubscribe": ""}, {"sharing": Sharing.OVERSUBSCRIBE}),
        ({"signal": "B:USR1@90"}, {"end_signal": EndSignal(signal=10, seconds=90, batch=True)}),
        ({"signal": "R:USR1@90"}, {"end_signal": EndSignal(signal=10, seconds=90, reservation=True)}),
        ({"nice": ""}, {"nice": 100}),
        ({"requeue": ""}, {"requeue": True, "expedite": False}),
        ({"requeue": "expedite"}, {"requeue": True, "expedite": True}),
        ({"no_requeue": ""}, {"requeue": False}),
        ({"chdir": "../x"}, {"work_dir": "/x"}),
        ({"mail_type": "ALL"}, {"mail_types": ("INVALID_DEPEND", "BEGIN", "END", "FAIL", "REQUEUE", "STAGE_OUT")}),
        ({"tres_per_task": "cpu=2,gres/gpu:h100=1", "ntasks": "1"}, {"cpus_per_task": 2}),
        ({"dependency": "afterok:12"}, {"dependencies": (Dependency(kind="afterok", job_id=12),)}),
        ({"extra_node_info": "2:4"}, {"sockets_per_node": 2, "cores_per_socket": 4}),
        ({"hint": "nomultithread"}, {"threads_per_core": 1}),
        ({"hint": "compute_bound"}, {"threads_per_core": 1}),
        ({"hint": "memory_bound"}, {"cores_per_socket": 1, "threads_per_core": 1}),
        ({"nodes": "2", "extra-node-info": "1:2"}, {"tasks": 4, "sockets_per_node": 1, "cores_per_socket": 2}),
        ({"prefer": "a|b"}, {"prefer": "a|b"}),
        ({"wckey": ""}, {"wckey": "", "no_wckey": True}),
        ({"wckey": "x"}, {"wckey": "x", "no_wckey": False}),
        ({"tres_bind": "gres/gpu:verbose,single:2"}, {"gpu_bind": "verbose,single:2"}),
        (
            {"gres_flags": "multiple-tasks-per-sharing,enforce-binding"},
            {"gres_flags": ("multiple-tasks-per-sharing", "enforce-binding")},
        ),
        (
            {"tres_per_task": "cpu:1,gres:gpu:2,gres/shard=3,license/m=2", "ntasks": "4", "licenses": "x"},
            {
                "gpus_per_task": (GresRequest("gpu", "", 2),),
                "gres_per_task": (GresRequest("shard", "", 3),),
                "licenses": "x,m:8",
            },
        ),
        ({"acctg_freq": "5"}, {"sample_seconds": 5}),
        ({"acctg_freq": "energy=0,task=0"}, {"sample_seconds": 0}),
        ({"wckey": "proj"}, {"wckey": "proj"}),
        ({"nodelist": "n[1-2],n1"}, {"node_list": ("n1", "n2")}),
    ],
)
def test_an_option_becomes_fields(options: dict[str, str], fields: dict[str, object]) -> None:
    built = build(None, None, **options)
    assert {name: getattr(built, name) for name in fields} == fields


@pytest.mark.parametrize(
    ("option", "value", "message", "status"),
    [
        ("ntasks", "0", 'Invalid numeric value "0" for --ntasks.', 1),
        ("ntasks", "-3", 'Invalid numeric value "-3" for --ntasks.', 1),
        ("nodes", "abc", '"abc" is not a valid node count', 255),
        ("nodes", "3-2", "Maximum node count 2 is less than minimum node count 3", 255),
        ("nodes", "1,x", '"x" is not a valid node count', 255),
        ("nodes", "1-4:0", '"1-4:0" is not a valid node count', 255),
        ("nodes", "1-99999999:1", '"1-99999999:1" is more node counts than 65536', 255),
        ("time", "abc", "Invalid --time specification", 255),
        ("mem", "5X", "Invalid --mem specification", 255),
        ("signal", "XYZ", "Invalid --signal specification", 255),
        ("nice", "99999999999", "Invalid --nice value, out of range (+/- 2147483645)", 255),
        ("mail-type", "abc", "Invalid --mail-type specification", 255),
        ("open-mode", "x", "Invalid --open-mode specification", 255),
        ("exclusive", "x", "Invalid --exclusive specification", 255),
        ("distribution", "x", "Invalid --distribution specification", 255),
        ("mem-bind", "x", 'unrecognized --mem-bind argument "x"', 255),
        ("gpu-bind", "x", "Invalid --gpu-bind argument: gpu:x", 255),
        ("hint", "x", 'unrecognized --hint argument "x", see --hint=help', 1),
        ("tres-bind", "gres/gpu:x", "Invalid --gpu-bind argument: gpu:x", 255),
        ("tres-bind", "gpu:closest", "Invalid --tres-bind specification", 255),
        ("acctg-freq", "task=x", "Invalid --acctg-freq specification: task=x", 255),
        ("acctg-freq", "tasks=3", "Invalid --acctg-freq specification: tasks=3", 255),
        ("gres-flags", "x", "Invalid --gres-flags specification", 255),
        ("kill-on-invalid-dep", "x", "Invalid --kill-on-invalid-dep specification", 255),
        ("nodefile", "nosuch", "Invalid --nodefile node file", 255),
        ("nodefile", "/dev/null", "Invalid --nodefile node file", 255),
        ("dependency", "afterok:nosuch", "Job dependency problem", 1),
        ("nodelist", "n[1-", "Invalid node name specified", 1),
        ("gres", "nosuch:x:y:z", "Invalid generic resource (gres) specification", 1),
    ],
)  # fmt: skip
def test_a_wrong_value_is_refused_in_slurms_words(option: str, value: str, message: str, status: int) -> None:
    with pytest.raises(SpritzError) as caught:
        build(None, None, **{option.replace("-", "_"): value})
    assert (caught.value.message, caught.value.exit_code) == (message, status)


@pytest.mark.parametrize("option", ["uid", "gid"])
def test_only_root_names_another_user(option: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for number, message in (
        (0, f"Invalid --{option} specification"),
        (1001, f"--{option} only permitted by root user"),
    ):
        monkeypatch.setattr("os.geteuid", lambda number=number: number)
        with pytest.raises(SpritzError) as caught:
            build(None, None, **{option: "no such name"})
        assert (caught.value.message, caught.value.exit_code) == (message, 255)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("oom-kill-step", "0"),
        ("acctg-freq", "network=5"),
        ("tres-bind", "gres/nic:none"),
    ],
)
def test_a_value_that_is_not_built_is_refused_by_name(option: str, value: str) -> None:
    with pytest.raises(SpritzError, match=f"option --{option}={value.partition(':')[0]} is not supported by Spritz: "):
        build(None, None, **{option.replace("-", "_"): value})


@pytest.mark.parametrize("option", sorted(SETTERS))
@pytest.mark.parametrize("value", ["", "0", "-1", "\udcff", "x" * 100_000, "9" * 40, "a\0b", "[", "%", ":", ",", "\n"])
def test_any_value_is_taken_or_refused_in_one_line(option: str, value: str, tmp_path: Path) -> None:
    """Bad input never ends in a traceback, and never floods the terminal."""
    try:
        spec.build({option: value}, Source(NOW, str(tmp_path), {}, lambda text: None))
    except SpritzError as error:
        complaint = error.message
    else:
        complaint = "taken"
    assert complaint
    assert len(complaint) < 1000
    assert "\n" not in complaint


def test_a_time_that_cannot_be_read_is_shown_with_the_place() -> None:
    said: list[str] = []
    with pytest.raises(SpritzError, match="Invalid --begin specification"):
        build(said, begin="now+x")
    assert said == ["Invalid time specification (pos=3): now+x\n"]


def test_controller_worded_errors_are_told_apart() -> None:
    with pytest.raises(Refusal) as caught:
        build(dependency="nosuch:1")
    assert caught.value.code == "ESLURM_DEPENDENCY"


def test_more_named_nodes_than_asked_for_are_refused() -> None:
    with pytest.raises(SpritzError, match=r"invalid number of nodes \(-N 2-1\)"):
        build(nodes="1", nodelist="n1,n2")


def test_gpus_per_task_without_tasks_is_refused_with_slurms_reason() -> None:
    with pytest.raises(SpritzError) as caught:
        build(gpus_per_task="1")
    assert caught.value.code == "ESLURM_INVALID_GRES"
    assert "used without either" in caught.value.details[0]
    assert build(gpus_per_task="1", ntasks="2").gpus_per_task == (GresRequest("gpu", "", 1),)


def test_fewer_tasks_than_nodes_take_fewer_nodes_with_a_warning() -> None:
    fields = spec.fields_of({"nodes": "4", "ntasks": "2"}, Source(NOW))
    assert spec.fewer_nodes(fields) == "Warning: can't run 2 processes on 4 nodes, setting nnodes to 2"
    assert spec.job_spec(fields).nodes_max == 2
    assert spec.fewer_nodes(fields) == ""


@pytest.mark.parametrize(
    ("nodes", "tasks", "per_node", "kept", "warned"),
    [
        ("2", "8", "4", True, False),
        ("2", "8", "1", False, True),
        ("2", "8", "3", False, True),
        ("2", "8", "8", False, False),
        ("2", "3", "1", True, False),
        ("2", "3", "2", False, True),
        ("2", "2", "2", False, False),
        ("1-2", "4", "2", False, True),
        ("2", None, "2", True, False),
        (None, "4", "3", True, False),
    ],
)
def test_srun_drops_tasks_per_node_that_contradict_its_tasks(
    nodes: str | None, tasks: str | None, per_node: str, *, kept: bool, warned: bool
) -> None:
    """As Slurm 22.05 does: torchrun, Ray and MPI recipes ask for one launcher a node in a job of many tasks."""
    given = {"nodes": nodes, "ntasks": tasks, "ntasks-per-node": per_node}
    fields = spec.fields_of({name: value for name, value in given.items() if value}, Source(NOW))
    warning = spec.fit_tasks_per_node(fields)
    assert ("tasks_per_node" in fields, bool(warning)) == (kept, warned)
    if warned:
        assert f"--ntasks-per-node set to {per_node} which doesn't match the requested tasks {tasks} with" in warning


def test_an_arbitrary_distribution_takes_its_hosts_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "hosts").write_text("n3\nn1\nn3\n")
    fields = spec.fields_of(
        {"distribution": "arbitrary"}, Source(NOW, str(tmp_path), {"SLURM_HOSTFILE": "hosts"}, lambda text: None)
    )
    assert fields["node_list"] == ("n3", "n1", "n3")
    built = spec.job_spec(fields)
    assert (built.node_list, built.tasks, built.nodes_min) == (("n3", "n1", "n3"), 3, 2)


def test_a_node_list_with_a_slash_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "hosts").write_text("n[1-2], n4\n")
    assert build(nodelist=f"{tmp_path}/hosts").node_list == ("n1", "n2", "n4")

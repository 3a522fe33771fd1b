"""A request as plugins see it. Values as recorded from Slurm 22.05 (`job_desc` in job_submit.lua)."""

from __future__ import annotations

import pytest

from spritz.model.ids import INFINITE, NO_VAL
from spritz.model.job.record import ContainerOptions, Dependency, EndSignal, JobSpec, Sharing
from spritz.model.resources import GresRequest
from spritz.plugins.answer import FieldError
from spritz.plugins.description import Description
from spritz.plugins.fields import FIELDS
from spritz.plugins.numbers import MEM_PER_CPU, NICE_OFFSET, NO_VAL16, NO_VAL64, rejection_of


def described(
    script: bytes = b"#!/bin/sh\n", environment: tuple[bytes, ...] = (b"HOME=/h",), **fields: object
) -> Description:
    return Description.of_spec(JobSpec(**fields), script, environment, {})  # type: ignore[arg-type]  # by name


def test_what_was_not_given_reads_as_in_slurm() -> None:
    job = described(batch=True, command="/w/j.sh a b", arguments=("a", "b"), work_dir="/w", uid=0, user="root")
    nothing = "account comment qos partition features gres tres_per_job req_nodes dependency array_inx burst_buffer"
    assert {name: job.read(name) for name in nothing.split()} == dict.fromkeys(nothing.split())
    wide = "time_limit time_min min_nodes max_nodes num_tasks priority nice pn_min_tmp_disk req_switch site_factor"
    assert {name: job.read(name) for name in wide.split()} == dict.fromkeys(wide.split(), NO_VAL)
    narrow = "cpus_per_task ntasks_per_node ntasks_per_gpu pn_min_cpus shared requeue reboot threads_per_core"
    assert {name: job.read(name) for name in narrow.split()} == dict.fromkeys(narrow.split(), NO_VAL16)
    assert (job.read("min_cpus"), job.read("pn_min_memory"), job.read("begin_time")) == (1, NO_VAL64, 0)
    assert (job.read("argc"), job.read("argv")) == (3, ["/w/j.sh", "a", "b"])
    assert (job.read("std_in"), job.read("user_name"), job.read("nonsense")) == ("/dev/null", "root", None)


def test_what_was_given_reads_as_in_slurm() -> None:
    job = described(
        tasks=4,
        tasks_given=True,
        cpus_per_task=2,
        nodes_min=2,
        nodes_max=2,
        nodes_given=True,
        memory_mib_per_cpu=100,
        nice=5,
        time_limit_minutes=10,
        gres_per_node=(GresRequest("gpu", "a100", 2),),
        exclude=("n1",),
        node_list=("n2", "n3"),
        array="1-3",
        requeue=True,
        sharing=Sharing.EXCLUSIVE,
        dependencies=(Dependency(kind="afterok", job_id=7),),
        mail_types=("END",),
        hold=True,
        partitions=("a", "b"),
        end_signal=EndSignal(signal=10),
    )
    expected = {
        "num_tasks": 4,
        "cpus_per_task": 2,
        "min_cpus": 8,
        "pn_min_cpus": 2,
        "min_nodes": 2,
        "max_nodes": 2,
        "min_mem_per_cpu": 100,
        "min_mem_per_node": None,
        "pn_min_memory": MEM_PER_CPU | 100,
        "nice": NICE_OFFSET + 5,
        "time_limit": 10,
        "gres": "gres/gpu:a100:2",
        "tres_per_node": "gres/gpu:a100:2",
        "exc_nodes": "n1",
        "req_nodes": "n[2-3]",
        "array_inx": "1-3",
        "requeue": 1,
        "shared": 0,
        "dependency": "afterok:7",
        "mail_type": 2,
        "priority": 0,
        "partition": "a,b",
    }
    assert {name: job.read(name) for name in expected} == expected


#: name -> (a value, fields of the JobSpec that it comes to)
WRITTEN: dict[str, tuple[object, dict[str, object]]] = {
    "account": ("a", {"account": "a"}),
    "acctg_freq": ("30", {"sample_seconds": 30}),
    "admin_comment": ("x", {"admin_comment": "x"}),
    "array_inx": ("0-3", {"array": "0-3"}),
    "begin_time": (1000, {"begin_at": 1000.0}),
    "bitflags": (0x302, {"spread": True, "use_min_nodes": True, "kill_on_invalid_dependency": False}),
    "comment": ("x", {"comment": "x"}),
    "container": ("/b", {"container": ContainerOptions(bundle="/b")}),
    "contiguous": (1, {"contiguous": True}),
    "core_spec": (1, {"core_spec": 1}),
    "cores_per_socket": (2, {"cores_per_socket": 2}),
    "cpus_per_task": (3, {"cpus_per_task": 3}),
    "cpus_per_tres": ("gres/gpu:4", {"cpus_per_gpu": 4}),
    "dependency": ("after:3+5?singleton", {"dependency_mode": "any"}),
    "end_time": (2000, {"deadline_at": 2000.0}),
    "exc_nodes": ("n[1-2]", {"exclude": ("n1", "n2")}),
    "extra": ("x", {"extra": "x"}),
    "features": ("a&b", {"features": "a&b"}),
    "gres": ("gpu:2", {"gres_per_node": (GresRequest("gpu", "", 2),)}),
    "licenses": ("m:2", {"licenses": "m:2"}),
    "mail_type": (0x7, {"mail_types": ("BEGIN", "END", "FAIL")}),
    "mail_user": ("a@b", {"mail_user": "a@b"}),
    "max_nodes": (4, {"nodes_max": 4}),
    "mcs_label": ("m", {"mcs_label": "m"}),
    "mem_per_tres": ("gres/gpu:512", {"memory_mib_per_gpu": 512}),
    "min_cpus": (6, {"tasks": 6, "tasks_given": True}),
    "min_mem_per_cpu": (7, {"memory_mib_per_cpu": 7}),
    "min_mem_per_node": (8, {"memory_mib_per_node": 8}),
    "min_nodes": (3, {"nodes_min": 3, "nodes_given": True, "tasks": 3}),
    "name": ("x", {"name": "x"}),
    "nice": (NICE_OFFSET - 5, {"nice": -5}),
    "ntasks_per_core": (1, {"tasks_per_core": 1}),
    "ntasks_per_gpu": (2, {"tasks_per_gpu": 2}),
    "ntasks_per_node": (2, {"tasks_per_node": 2}),
    "ntasks_per_socket": (2, {"tasks_per_socket": 2}),
    "ntasks_per_tres": (2, {"tasks_per_gpu": 2}),
    "num_tasks": (5, {"tasks": 5, "tasks_given": True}),
    "oversubscribe": (1, {"sharing": Sharing.OVERSUBSCRIBE}),
    "partition": ("p,q", {"partitions": ("p", "q")}),
    "pn_min_cpus": (4, {"cpus_per_node_min": 4}),
    "pn_min_memory": (float(MEM_PER_CPU + 4096), {"memory_mib_per_cpu": 4096}),
    "pn_min_tmp_disk": (9, {"tmp_mib": 9}),
    "prefer": ("a", {"prefer": "a"}),
    "priority": (77, {"priority": 77}),
    "qos": ("q", {"qos": "q"}),
    "reboot": (1, {"reboot": True}),
    "req_nodes": ("n1", {"node_list": ("n1",)}),
    "req_switch": (1, {"switches": 1}),
    "requeue": (0, {"requeue": False}),
    "reservation": ("r", {"reservation": "r"}),
    "script": ("#!/bin/sh\necho\n", {}),
    "segment_size": (2, {"segment": 2}),
    "shared": (2, {"sharing": Sharing.USER}),
    "sockets_per_node": (2, {"sockets_per_node": 2}),
    "std_err": ("e", {"stderr": "e"}),
    "std_in": ("i", {"stdin": "i"}),
    "std_out": ("o", {"stdout": "o"}),
    "threads_per_core": (1, {"threads_per_core": 1}),
    "time_limit": (254, {"time_limit_minutes": 254}),
    "time_min": (5, {"time_min_minutes": 5}),
    "tres_bind": ("gres/gpu:closest", {"gpu_bind": "closest"}),
    "tres_per_job": ("gres/gpu:4", {"gpus": (GresRequest("gpu", "", 4),)}),
    "tres_per_node": ("gres/gpu:h100:1", {"gres_per_node": (GresRequest("gpu", "h100", 1),)}),
    "tres_per_socket": ("gres/gpu:1", {"gpus_per_socket": (GresRequest("gpu", "", 1),)}),
    "tres_per_task": ("gres/gpu:1", {"gpus_per_task": (GresRequest("gpu", "", 1),)}),
    "wait4switch": (60, {"switch_wait_seconds": 60}),
    "wckey": ("w", {"wckey": "w"}),
    "work_dir": ("/x", {"work_dir": "/x"}),
}


def test_every_name_that_can_be_written_is_tried_here() -> None:
    assert {name for name, field in FIELDS.items() if field.writable} == set(WRITTEN)


@pytest.mark.parametrize("name", WRITTEN)
def test_what_is_written_reaches_the_request_and_reads_back(name: str) -> None:
    value, fields = WRITTEN[name]
    job = described(name="j", work_dir="/w")
    job.write(name, value)
    spec = job.spec()
    assert {field: getattr(spec, field) for field in fields} == fields
    if name not in ("script", "acctg_freq", "gres", "dependency", "exc_nodes"):
        assert job.read(name) == value or name == "min_cpus"


def test_not_given_takes_a_value_back() -> None:
    job = described(
        time_limit_minutes=10, tasks=4, tasks_given=True, qos="q", priority=5, nodes_min=2, nodes_given=True
    )
    for name in ("time_limit", "num_tasks", "priority", "min_nodes"):
        job.write(name, NO_VAL)
    job.write("qos", "")
    assert job.spec() == JobSpec()


def test_numbers_may_be_texts_as_in_lua_and_nothing_else() -> None:
    job = described()
    job.write("time_limit", "60")
    assert job.read("time_limit") == 60
    with pytest.raises(FieldError, match="^time_limit: number expected, got string$"):
        job.write("time_limit", "soon")
    with pytest.raises(FieldError, match="^account: string expected, got nil$"):
        job.write("account", None)
    with pytest.raises(FieldError, match='^a job description has no field "frobnicate"$'):
        job.write("frobnicate", 1)
    with pytest.raises(FieldError, match="^burst_buffer: there are no burst buffers$"):
        job.write("burst_buffer", "#BB x")
    job.write("burst_buffer", None)  # what it is already


def test_a_memory_per_cpu_displaces_one_per_node() -> None:
    job = described(memory_mib_per_node=100)
    job.write("min_mem_per_cpu", 10)
    spec = job.spec()
    assert (spec.memory_mib_per_node, spec.memory_mib_per_cpu) == (None, 10)


def test_cpus_in_all_agree_with_tasks_or_are_refused() -> None:
    job = described(tasks=4, tasks_given=True, cpus_per_task=2)
    job.write("min_cpus", 8)
    assert job.spec().tasks == 4
    job.write("min_cpus", 9)
    with pytest.raises(FieldError, match="min_cpus: 9 is more than num_tasks times cpus_per_task, 8"):
        job.spec()


def test_tasks_follow_the_number_of_nodes_as_on_the_command_line() -> None:
    job = described(tasks_per_node=3)
    job.write("min_nodes", 2)
    assert job.spec().tasks == 6


def test_the_environment_is_the_batch_jobs() -> None:
    job = described(environment=(b"HOME=/h", b"A=\xff"))
    job.set_variable("HOME", "/x")
    job.set_variable("NEW", "y z")
    assert job.environment == [b"HOME=/x", b"A=\xff", b"NEW=y z"]
    job.set_variable("COPY", job.variable("A") or "")
    assert job.environment[-1] == b"COPY=\xff"
    assert job.variable("NONE") is None
    interactive = described(environment=())
    interactive.set_variable("A", "b")
    assert interactive.environment == []


def test_an_update_holds_only_what_changes() -> None:
    job = Description({"comment": "c", "priority": None}, job_id=4)
    assert (job.read("comment"), job.read("priority"), job.read("time_limit")) == ("c", INFINITE, NO_VAL)
    job.write("comment", "")
    job.write("time_limit", 5)
    job.write("priority", NO_VAL)
    assert job.fields == {"comment": "", "time_limit_minutes": 5}


def test_return_values_are_slurms_numbers() -> None:
    assert (rejection_of(-1).code, rejection_of(-1).text) == ("SLURM_ERROR", "Unspecified error")
    assert rejection_of(8000).text == "Time limit specification required, but not provided"
    assert rejection_of(2002).code == "ESLURM_ACCESS_DENIED"
    assert rejection_of(1).text == "Operation not permitted"

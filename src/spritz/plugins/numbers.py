"""Numbers that stand for "not given" and "infinite", bits of flags, and Slurm's error numbers.

Source: slurm/slurm.h, slurm/slurm_errno.h.
"""

from __future__ import annotations

import os

from spritz.model.errors import ESLURM
from spritz.model.ids import INFINITE, NO_VAL
from spritz.model.rejection import Rejection

NO_VAL8 = 0xFE
NO_VAL16 = 0xFFFE
NO_VAL64 = 0xFFFFFFFFFFFFFFFE
INFINITE64 = 0xFFFFFFFFFFFFFFFF
NICE_OFFSET = 0x80000000
MEM_PER_CPU = 0x8000000000000000

SUCCESS = 0
ERROR = -1

#: values of `shared`
SHARED_NONE, SHARED_OK, SHARED_USER = 0, 1, 2

#: bits of `bitflags` that Spritz supports
KILL_INV_DEP, NO_KILL_INV_DEP = 0x1, 0x2
GRES_ENFORCE_BIND, GRES_DISABLE_BIND = 0x10, 0x80000
SPREAD_JOB, USE_MIN_NODES = 0x100, 0x200

#: bits of `mail_type`
MAIL = {
    "BEGIN": 0x1,
    "END": 0x2,
    "FAIL": 0x4,
    "REQUEUE": 0x8,
    "TIME_LIMIT": 0x10,
    "TIME_LIMIT_90": 0x20,
    "TIME_LIMIT_80": 0x40,
    "TIME_LIMIT_50": 0x80,
    "STAGE_OUT": 0x100,
    "ARRAY_TASKS": 0x200,
    "INVALID_DEPEND": 0x400,
}

#: constants that scripts see, besides ESLURM_…
CONSTANTS: dict[str, int] = {
    "ALLOC_SID_ADMIN_HOLD": 1,
    "ALLOC_SID_USER_HOLD": 2,
    "ERROR": ERROR,
    "FAILURE": ERROR,
    "GRES_DISABLE_BIND": GRES_DISABLE_BIND,
    "GRES_ENFORCE_BIND": GRES_ENFORCE_BIND,
    "INFINITE": INFINITE,
    "JOB_SHARED_MCS": 3,
    "JOB_SHARED_NONE": SHARED_NONE,
    "JOB_SHARED_OK": SHARED_OK,
    "JOB_SHARED_USER": SHARED_USER,
    "KILL_INV_DEP": KILL_INV_DEP,
    "MAIL_INVALID_DEPEND": MAIL["INVALID_DEPEND"],
    "MAIL_JOB_BEGIN": MAIL["BEGIN"],
    "MAIL_JOB_END": MAIL["END"],
    "MAIL_JOB_FAIL": MAIL["FAIL"],
    "MAIL_JOB_REQUEUE": MAIL["REQUEUE"],
    "MAIL_JOB_STAGE_OUT": MAIL["STAGE_OUT"],
    "MAIL_JOB_TIME100": MAIL["TIME_LIMIT"],
    "MAIL_JOB_TIME50": MAIL["TIME_LIMIT_50"],
    "MAIL_JOB_TIME80": MAIL["TIME_LIMIT_80"],
    "MAIL_JOB_TIME890": MAIL["TIME_LIMIT_90"],  # "MAIL_JOB_TIME890": MAIL["TIME_LIMIT_90"],  # Slurm's spelling
    "NICE_OFFSET": NICE_OFFSET,
    "NO_KILL_INV_DEP": NO_KILL_INV_DEP,
    "NO_VAL": NO_VAL,
    "NO_VAL16": NO_VAL16,
    "NO_VAL8": NO_VAL8,
    "SHARED_FORCE": 0x8000,
    "SPREAD_JOB": SPREAD_JOB,
    "SUCCESS": SUCCESS,
    "USE_MIN_NODES": USE_MIN_NODES,
}
#: 64-bit constants, too large for Lua's integers
WIDE_CONSTANTS: dict[str, int] = {"INFINITE64": INFINITE64, "MEM_PER_CPU": MEM_PER_CPU, "NO_VAL64": NO_VAL64}


def error_numbers() -> dict[str, int]:
    """The number of every ESLURM name."""
    return {name: number for name, (number, _text) in ESLURM.items() if name.startswith("ESLURM_")}


def rejection_of(number: int) -> Rejection:
    """The rejection that a plugin's non-zero return value stands for, in Slurm's words."""
    if number == ERROR:
        return Rejection(code="SLURM_ERROR", message="Unspecified error")
    for name, (error_number, _text) in ESLURM.items():
        # 11 is EAGAIN, which the table lists under another name.
        if error_number == number and error_number >= 1000:
            return Rejection(code=name)
    return Rejection(code="SLURM_ERROR", message=os.strerror(number))

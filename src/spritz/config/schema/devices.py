"""Keys of gres.conf. Source: gres.conf(5)."""

from __future__ import annotations

from spritz.config.kinds import AMOUNT, STRING, choice, flags
from spritz.config.schema.key import Key

GRES_KEYS = (
    Key(
        "AutoDetect",
        choice("nvml", "nvidia", "rsmi", "oneapi", "nrt", "off", "full"),
        None,
        "How devices are found by themselves.",
    ),
    Key("Cores", STRING, "", "Cores near the device, such as 0-7.", ("CPUs",)),
    Key("Count", AMOUNT, None, "How many there are; as many as files if not set."),
    Key("File", STRING, None, "Device files, one for each.", ("Files",)),
    Key(
        "Flags",
        flags(
            "CountOnly",
            "explicit",
            "one_sharing",
            "all_sharing",
            "nvidia_gpu_env",
            "amd_gpu_env",
            "intel_gpu_env",
            "opencl_env",
            "no_gpu_env",
            "env_uuid",
        ),
        (),
        "How the resource is treated and which variables jobs get.",
    ),
    Key("Links", STRING, "", "Connections to the other devices, such as -1,16,16,16.", ("Link",)),
    Key("MultipleFiles", STRING, None, "Device files that belong to one device together."),
    Key("Name", STRING, None, "Name of the resource, one of GresTypes."),
    Key("NodeName", STRING, None, "Nodes that the line is about; all if not set."),
    Key("Type", STRING, "", "Model of the device."),
)

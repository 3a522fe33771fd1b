"""Keys of gres.conf. Source: gres.conf(5)."""

from __future__ import annotations

from spritz.config.kinds import AMOUNT, STRING, choice, flags
from spritz.config.schema.key import Key

GRES_KEYS = (
    Key(
        "AutoDetect",
        choice("nvml", "nvidia", "rsmi", "oneapi", "nrt", "off", "full"),
        None,
        "How devices are detected automatically.",
    ),
    Key("Cores", STRING, "", "Cores near the device, such as 0-7.", ("CPUs",)),
    Key("Count", AMOUNT, None, "Number of devices; the number of files by default."),
    Key("File", STRING, None, "Device files, one for each device.", ("Files",)),
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
        "How the resource is handled, and the variables that jobs get.",
    ),
    Key("Links", STRING, "", "Connections to the other devices, such as -1,16,16,16.", ("Link",)),
    Key("MultipleFiles", STRING, None, "Device files that together make a single device."),
    Key("Name", STRING, None, "Name of the resource, one of GresTypes."),
    Key("NodeName", STRING, None, "Nodes to which the line applies; all by default."),
    Key("Type", STRING, "", "Model of the device."),
)

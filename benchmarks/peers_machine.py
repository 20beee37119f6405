"""What a report says of the machine it was measured on."""

from __future__ import annotations

import os
import platform
import time
from pathlib import Path

FEATURES = ("avx2", "avx_vnni", "avx512f", "avx512_vnni", "avx512_bf16", "amx_int8")


def machine() -> dict[str, str]:
    """Processor, system and load, in words."""
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    info = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in lines)}
    flags = info.get("flags", "").split()
    return {
        "date": time.strftime("%Y-%m-%d"),
        "processor": info.get("model name", platform.machine()),
        "instructions": " ".join(name for name in FEATURES if name in flags),
        "processors": str(len(os.sched_getaffinity(0))),
        "system": f"{platform.system()}, {' '.join(platform.libc_ver())}",
        "python": platform.python_version(),
        "load": f"{os.getloadavg()[0]:.1f}",
    }

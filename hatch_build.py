"""A wheel that carries the native engine's libraries is one for Linux on x86-64.

`make native` puts them into src/adaptivespec/native/lib. Without them the wheel is one for any
platform, and the engine is compiled at the first use.
"""

import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class PrebuiltLibraries(BuildHookInterface):
    """Adds the libraries and the platform's tag; refuses libraries of other sources."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        sys.path.insert(0, str(Path(self.root, "src")))
        from adaptivespec.native.prebuilt import PLATFORM, PREBUILT_DIR, missing

        if version == "editable" or not list(PREBUILT_DIR.glob("*.so")):
            return
        if missing():
            raise RuntimeError(
                f"{PREBUILT_DIR} holds libraries of other sources: run `make native`, or remove it "
                "for a wheel without"
            )
        build_data["artifacts"].append("/src/adaptivespec/native/lib/*.so")
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{PLATFORM}"

"""Penalties along a node's path, against SGLang's own penalisers."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from harness.run import CPU_ENVIRONMENT

HERE = Path(__file__).parent


def test_every_node_is_penalised_as_sglangs_plain_decoding_does():
    """In a process of its own: SGLang on a CPU needs its variables before it is imported."""
    script = HERE / "harness" / "compare_penalties.py"
    done = subprocess.run(
        [sys.executable, str(script)],
        capture_output=True,
        text=True,
        env={**os.environ, **CPU_ENVIRONMENT},
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr

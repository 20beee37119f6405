"""lm-eval's own command line, with the model "adaptivespec" in it."""

from __future__ import annotations

import sys

from adaptivespec.core.errors import AdaptiveSpecError
from adaptivespec.integrations.lm_eval import register

USER_ERROR, INTERRUPTED = 2, 130


def main() -> int:
    """Run lm-eval on the arguments of this process; 2 for what the user can put right."""
    try:
        register()
        from lm_eval.__main__ import cli_evaluate
    except ImportError as error:
        print(f"error: lm-eval cannot be imported: {error}. pip install lm-eval", file=sys.stderr)
        return USER_ERROR
    try:
        cli_evaluate()
    except AdaptiveSpecError as error:
        print(f"error: {error}", file=sys.stderr)
        return USER_ERROR
    except KeyboardInterrupt:
        return INTERRUPTED
    return 0


if __name__ == "__main__":
    sys.exit(main())

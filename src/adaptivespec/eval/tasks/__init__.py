"""Tasks by name. A new task is one file and one line in ``TASKS``."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import cast

from adaptivespec.core.registry import unknown_name
from adaptivespec.eval.tasks.base import Task

__all__ = ["BUILT_IN", "SUITES", "TASKS", "make_task", "task_names"]

TASKS: Mapping[str, str] = {
    "json": "adaptivespec.eval.tasks.json_fields:JsonFields",
    "lists": "adaptivespec.eval.tasks.copy_list:CopyList",
    "capitals": "adaptivespec.eval.tasks.capitals:Capitals",
    "functions": "adaptivespec.eval.tasks.functions:Functions",
    "gsm8k": "adaptivespec.eval.tasks.gsm8k:Gsm8k",
    "math500": "adaptivespec.eval.tasks.math500:Math500",
    "humaneval": "adaptivespec.eval.tasks.humaneval:HumanEval",
    "mt_bench": "adaptivespec.eval.tasks.mt_bench:MtBench",
}
"""Task name -> "module:Class"."""

BUILT_IN = ("json", "lists", "capitals", "functions")
"""Tasks that need no file: the package makes their items."""

SUITES: Mapping[str, tuple[str, ...]] = {
    "builtin": BUILT_IN,
    "paper": ("gsm8k", "math500", "humaneval"),
}
"""Names that stand for several tasks."""


def task_names(text: str) -> list[str]:
    """The tasks of "gsm8k,builtin", suites spelled out, each once; ConfigError for unknown ones."""
    names: list[str] = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        if part in SUITES:
            names += SUITES[part]
        elif part in TASKS:
            names.append(part)
        else:
            raise unknown_name("tasks", part, [*TASKS, *SUITES])
    return list(dict.fromkeys(names))


def make_task(name: str) -> Task:
    """The task called ``name``; ConfigError listing the legal names otherwise."""
    if name not in TASKS:
        raise unknown_name("tasks", name, TASKS)
    module, _, attribute = TASKS[name].partition(":")
    return cast(Task, getattr(import_module(module), attribute)())

"""What a run was asked to do: `settings.json` of its folder, and the hash that guards its rows."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from adaptivespec.eval.arms import PLAIN, Arm
from adaptivespec.eval.errors import RunError

__all__ = ["FORMAT", "ArmSettings", "Settings", "TaskSettings"]

FORMAT: Literal[1] = 1


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class TaskSettings(_Model):
    """A task of a run, with the items that were drawn for it.

    ``digest`` is of all prompts and references drawn, so that another version of the data is seen.
    """

    name: str
    title: str
    graded: bool
    max_tokens: int
    stop: list[str]
    items: list[int] = Field(description="indices, in the order in which they are asked")
    timed: list[int] = Field(description="those of them that are timed")
    dev: list[int] = Field(description="others, on which fixed trees are tuned")
    available: int = Field(description="items that the task has")
    digest: str


class ArmSettings(_Model):
    """An arm of a run.

    ``resolved_rule`` and ``resolved_policy`` are what was run, where rule or policy left it open.
    """

    name: str
    rule: str
    policy: str
    role: str
    lossless: bool | None
    target: str = Field(description="name of the target that answers")
    resolved_rule: str | None = None
    resolved_policy: str | None = None

    @classmethod
    def of(cls, arm: Arm, target: str) -> ArmSettings:
        """The settings of an arm that `target` answers."""
        return cls(
            name=arm.name,
            rule=arm.rule,
            policy=arm.policy,
            role=arm.role,
            lossless=arm.lossless,
            target=target,
        )

    def arm(self) -> Arm:
        """The arm as it is run."""
        rule, policy = self.resolved_rule or self.rule, self.resolved_policy or self.policy
        return Arm(self.name, rule, policy, self.role)


class Settings(_Model):
    """All that has to be the same for rows to be compared, and what a report says of a run.

    The fields of ``compared`` make up the hash: prompts, bounds, stop texts, sampling, model.
    """

    format: Literal[1] = FORMAT
    tasks: list[TaskSettings]
    arms: list[ArmSettings]
    baseline: str = PLAIN
    seed: int
    temperature: float
    restarts: int
    model: dict[str, Any] = Field(description="identity of each target: names and hashes")
    targets: dict[str, str] = Field(description="what each target is, in words")
    load: dict[str, Any] = Field(description="concurrency and request rate of server targets")
    provenance: dict[str, Any] = Field(
        description="utc, git, versions, argv, machine; not compared"
    )

    def compared(self) -> dict[str, Any]:
        """What two runs must share: everything that can change an answer, arms left out."""
        tasks = [
            {key: getattr(task, key) for key in ("name", "max_tokens", "stop", "items", "digest")}
            for task in self.tasks
        ]
        return {
            "format": self.format,
            "tasks": tasks,
            "temperature": self.temperature,
            "seed": self.seed if self.temperature > 0 else None,
            "model": self.model,
        }

    @property
    def digest(self) -> str:
        """Hash of what is compared, as 16 hexadecimal digits."""
        text = json.dumps(self.compared(), sort_keys=True, ensure_ascii=False)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def write(self, path: Path) -> None:
        """Write the file, in one piece."""
        partial = path.with_suffix(".partial")
        partial.write_text(self.model_dump_json(indent=1) + "\n", encoding="utf-8")
        partial.replace(path)

    @classmethod
    def read(cls, path: Path) -> Settings:
        """Read the file; RunError when it is missing or is not of this format."""
        try:
            return cls.model_validate_json(path.read_bytes())
        except OSError as error:
            raise RunError(
                f"cannot read {path.name}: {error.strerror}",
                field=str(path.parent),
                remedy="Name the --output folder of a finished `adaptivespec bench`",
            ) from error
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            place = ".".join(map(str, first["loc"]))
            raise RunError(
                f"{place}: {first['msg']}",
                field=str(path),
                remedy="It was written by another version; run the benchmark anew",
            ) from error

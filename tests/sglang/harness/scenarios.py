"""Every run of an engine that tests read, by name."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from adaptivespec.calibrate.identity import weights_at
from adaptivespec.policy import make_policy
from fakes.certificates import certificate
from harness import models, stress, tiny_models
from harness.run import Request, Run


def kappa(value: float) -> dict[str, Any]:
    """Sampling parameters of a request with its own margin rule."""
    return {"custom_params": {"adaptivespec": {"rule": "margin", "kappa": value}}}


Triple = tuple[int, int, int]  # (num_steps, topk, num_draft_tokens)
TREE, CHAIN = (5, 4, 16), (5, 1, 6)
CHAIN_POLICY = "static:5,1,6"
TOKENS = 64  # of an answer of the real target
KAPPAS = (1.0, 0.5, 0.2, 0.05)
PENALTIES: dict[str, dict[str, Any]] = {
    "frequency": {"frequency_penalty": 0.8},
    "presence": {"presence_penalty": 1.2},
    "repetition": {"repetition_penalty": 1.3},
    # Tokens that would end the text, and do when they may.
    "min_new": {"min_new_tokens": 40, "stop_token_ids": list(range(3, 320, 5))},
}
#: The place of a mistake, as the error names it -> sampling parameters with it.
BAD_REQUESTS: dict[str, dict[str, Any]] = {
    "custom_params.adaptivespec.kappa": kappa(-0.1),
    "custom_params.adaptivespec.kapa": {"custom_params": {"adaptivespec": {"kapa": 0.5}}},
    "custom_params.adaptivespec.rule": {"custom_params": {"adaptivespec": {"rule": "typical"}}},
    "custom_params.adaptivespec": {"custom_params": {"adaptivespec": 0.5}},
}
TWO_RANKS = {"SGLANG_CPU_OMP_THREADS_BIND": "0|1", "TORCH_DISTRIBUTED_DEBUG": "DETAIL"}
#: SGLang's prefill draws the first token, without a seed; here there is one choice for it.
FIRST_FIXED = "a[ -~]{60}"
SEEDED = 4  # requests that are drawn more than once
#: Of the requests whose second token shows the law.
LAW = {"temperature": 1.3, "top_k": 6}
DRAWS = 2000
#: Every some rounds SGLang throws requests of the running batch back into the queue.
RETRACTING = {"SGLANG_TEST_RETRACT": "1", "SGLANG_TEST_RETRACT_INTERVAL": "25"}


def ask(prompt: Sequence[int], tokens: int, **sampling: Any) -> Request:
    """A greedy request that reports the target's two best tokens at each position."""
    return {
        "input_ids": list(prompt),
        "sampling_params": {"temperature": 0, "max_new_tokens": tokens, **sampling},
        "return_logprob": True,
        "top_logprobs_num": 2,
    }


def eagle3(triple: Triple, head: Path) -> dict[str, Any]:
    """Arguments of an engine that drafts with `head`."""
    steps, topk, tokens = triple
    return {
        "speculative_algorithm": "EAGLE3",
        "speculative_draft_model_path": str(head),
        "speculative_draft_attention_backend": "intel_amx",
        "speculative_num_steps": steps,
        "speculative_eagle_topk": topk,
        "speculative_num_draft_tokens": tokens,
    }


_writing = threading.Lock()


class Real:
    """Runs of the embedded model with its shipped head."""

    def __init__(self) -> None:
        self.head = models.HEAD
        self.engine: dict[str, Any] = {
            "model_path": str(models.target()),
            "mem_fraction_static": 0.2,
            "max_total_tokens": 8192,
            "max_running_requests": 8,
        }

    def questions(self, **sampling: Any) -> list[Request]:
        return [ask(prompt, TOKENS, **sampling) for prompt in models.prompts()]

    def plain(self) -> Run:
        return Run(self.engine, {"questions": self.questions()})

    def stock(self, triple: Triple) -> Run:
        return Run(self.engine | eagle3(triple, self.head), {"questions": self.questions()})

    def static(self, triple: Triple) -> Run:
        """Strict by default, the margin rule where a request asks for it."""
        jobs = {"questions": self.questions(), "margin": self.questions(**kappa(0.2))}
        return adaptive(self.engine | eagle3(triple, self.head), static(triple), jobs)

    def dcs(self) -> Run:
        """Requests join while others run, end at different lengths, and one is aborted."""
        first, second, third, fourth = models.prompts()
        requests = [
            ask(first, TOKENS),
            {**ask(second, TOKENS), "after": [0, 5]},
            {**ask(fourth, TOKENS), "after": [0, 10], "abort_at": 12, "rid": "aborted"},
            {**ask(third, TOKENS // 2), "after": [2, 12]},
            {**ask(fourth, TOKENS), "after": [1, 30]},
        ]
        engine = self.engine | eagle3(TREE, self.head)
        return adaptive(engine, {"policy": "dcs"}, {"joining": requests})


class Tiny:
    """Runs of the tiny model; `folder` is where it is written, once."""

    def __init__(self, folder: Path) -> None:
        self.target, self.head = folder / "target", folder / "head"
        with _writing:
            if not self.head.exists():
                tiny_models.write_target(self.target)
                tiny_models.write_head(self.head)
        self.engine: dict[str, Any] = {
            "model_path": str(self.target),
            "mem_fraction_static": 0.2,
            "max_total_tokens": 4096,
            "max_running_requests": 8,
        }
        self.tree_engine = self.engine | eagle3(TREE, self.head)

    def plain(self) -> Run:
        jobs = {
            "prompts": prompts(),
            "lengths": lengths(),
            "stops": stops(),
            "penalties": penalties(),
            "stress": stress.references(),
        }
        # Under overlap scheduling SGLang's penalties count each token one round late, and the last
        # token of the prompt with them.
        return Run(self.engine | {"disable_overlap_schedule": True}, jobs)

    def tree(self) -> Run:
        """Everything that one strict server with a tree can show."""
        mixed = [ask(tiny_models.prompts(1)[0], 80, ignore_eos=True, **kappa(k)) for k in KAPPAS]
        jobs = {
            "prompts": prompts(),
            "lengths": lengths(),
            "stops": stops(),
            "penalties": penalties(),
            "kappas": mixed,
            **{f"kappa {k}": [one] for k, one in zip(KAPPAS, mixed, strict=True)},
            "grammar": [
                ask(prompt, 40, regex=stress.REGEX, **kappa(0.05))
                for prompt in tiny_models.prompts(6)
            ],
            "bad": [ask(tiny_models.prompts(1)[0], 4, **bad) for bad in BAD_REQUESTS.values()],
            "after bad": prompts(),
        }
        return adaptive(self.tree_engine, static(TREE), jobs)

    def attached(self) -> Run:
        """The plugin in EAGLE3's place."""
        config = {**static(TREE), "attach": True}
        return Run(self.tree_engine, {"prompts": prompts()}, config)

    def paged(self) -> Run:
        """Pages, prompts prefilled in chunks, and chains of changing length.

        Pages of more than one slot are allocated by Triton kernels, on a CPU in its interpreter.
        """
        engine = self.engine | eagle3(CHAIN, self.head)
        engine |= {"page_size": 16, "chunked_prefill_size": 16}
        jobs = {"prompts": prompts(), "penalties": penalties(), "margin": prompts(**kappa(0.2))}
        run = adaptive(engine, {"policy": "ema"}, jobs)
        return replace(run, environment={"TRITON_INTERPRET": "1"})

    def sampled(self) -> Run:
        """Seeded requests alone and in company, and the law of the second token."""
        seeded = [
            ask(prompt, 40, temperature=1.0, sampling_seed=seed, regex=FIRST_FIXED)
            for seed, prompt in enumerate(tiny_models.prompts(SEEDED))
        ]
        mates = [ask(prompt, 60, ignore_eos=True) for prompt in tiny_models.prompts(4, seed=1)]
        (prompt,) = tiny_models.prompts(1)
        short = {"max_new_tokens": 2, "ignore_eos": True, **LAW}
        jobs = {
            "seeded": seeded,
            "in company": [*mates, *seeded],
            **{f"alone {i}": [one] for i, one in enumerate(seeded)},
            "law": [
                # Without a seed a request draws by its name.
                {"rid": f"law {i}", "input_ids": prompt, "sampling_params": short}
                for i in range(DRAWS)
            ],
        }
        engine = self.engine | eagle3((2, 2, 4), self.head) | {"max_running_requests": 64}
        return adaptive(engine, static((2, 2, 4)), jobs)

    def stress(self) -> Run:
        """A queue, a cache too small for it, and requests thrown back every so often."""
        engine = self.tree_engine | {"max_running_requests": 4, "max_total_tokens": 420}
        run = adaptive(engine, {"policy": "dcs"}, {"stress": stress.requests()})
        return replace(run, environment=RETRACTING)

    def overlapped(self) -> Run:
        """Overlap scheduling, which on a CPU needs Triton's interpreter."""
        run = adaptive(
            self.tree_engine,
            {"policy": "dcs", "signal": "lag1"},
            {"prompts": prompts(), "penalties": penalties(), "margin": prompts(**kappa(0.2))},
        )
        return replace(run, environment={"TRITON_INTERPRET": "1"})

    def certified(self, policy: str) -> Run:
        """A server with a certificate of the tiny model at a chain, and the policy `policy`."""
        path = self.target.parent / "certificate.json"
        with _writing:
            certificate(
                kappas=(0.5, 0.05),
                harmed=(0, 0),
                policy=make_policy(CHAIN_POLICY).label,
                model=weights_at(self.target, "tiny"),
                head=weights_at(self.head, "tiny-head"),
            ).write(path)
        config = {"rule_config": str(path)} | ({"policy": policy} if policy else {})
        jobs = {
            "prompts": prompts(),
            "sampled": prompts(temperature=1.0, sampling_seed=1),
            "own": prompts(**kappa(0.5)),
        }
        return adaptive(self.tree_engine, config, jobs)

    def served(self) -> Run:
        """A server whose clients may ask for promotions."""
        engine = self.tree_engine | {
            "enable_metrics": True,
            "speculative_algorithm": "ADAPTIVESPEC",
        }
        return Run(engine, {}, {"policy": "dcs", "min_kappa": 0.1})

    def misconfigured(self) -> Run:
        return adaptive(self.tree_engine, {"policy": "dcs", "signal": "lag2"}, {})

    def misplaced(self) -> Run:
        """Arguments that SGLang takes and the plugin cannot serve."""
        engine = self.tree_engine | {"enable_custom_logit_processor": True}
        return adaptive(engine, {"policy": "dcs"}, {})

    def parallel(self) -> Run:
        """Two ranks; every collective checks that the ranks agree on what they exchange."""
        engine = self.tree_engine | {"tp_size": 2}
        jobs = {"prompts": prompts(), "margin": prompts(**kappa(0.2))}
        run = adaptive(engine, {"policy": "dcs"}, jobs)
        return replace(run, environment=TWO_RANKS)


def prompts(**sampling: Any) -> list[Request]:
    return [ask(prompt, 60, **sampling) for prompt in tiny_models.prompts(6)]


def stops() -> list[Request]:
    """The same prompt, each ended by another one of its first tokens."""
    (prompt,) = tiny_models.prompts(1)
    tokens = tiny_models.greedy(tuple(prompt), 16)
    return [ask(prompt, 60, stop_token_ids=[token]) for token in tokens]


def penalties() -> list[Request]:
    return [
        ask(prompt, 80, **penalty)
        for prompt in tiny_models.prompts(2)
        for penalty in PENALTIES.values()
    ]


def lengths() -> list[Request]:
    """The same prompt with each of some lengths."""
    (prompt,) = tiny_models.prompts(1)
    return [ask(prompt, tokens, ignore_eos=True) for tokens in range(1, 10)]


def static(triple: Triple) -> dict[str, Any]:
    """Settings of a strict server that drafts one triple."""
    return {"policy": "static:{},{},{}".format(*triple)}


def adaptive(engine: dict[str, Any], config: dict[str, Any], jobs: dict[str, list[Request]]) -> Run:
    """The plugin under its own name, in an engine that was to run EAGLE3."""
    return Run(engine | {"speculative_algorithm": "ADAPTIVESPEC"}, jobs, config)


def scenarios(folder: Path) -> dict[str, Callable[[], Run]]:
    """Name -> run; `folder` is where the tiny model is written."""
    return {
        "plain": lambda: Real().plain(),
        "stock tree": lambda: Real().stock(TREE),
        "stock chain": lambda: Real().stock(CHAIN),
        "tree": lambda: Real().static(TREE),
        "chain": lambda: Real().static(CHAIN),
        "dcs": lambda: Real().dcs(),
        "tiny plain": lambda: Tiny(folder).plain(),
        "tiny tree": lambda: Tiny(folder).tree(),
        "tiny attached": lambda: Tiny(folder).attached(),
        "tiny paged": lambda: Tiny(folder).paged(),
        "tiny sampled": lambda: Tiny(folder).sampled(),
        "tiny stress": lambda: Tiny(folder).stress(),
        "tiny overlapped": lambda: Tiny(folder).overlapped(),
        "tiny parallel": lambda: Tiny(folder).parallel(),
        "tiny certified": lambda: Tiny(folder).certified(""),
        "tiny uncertified": lambda: Tiny(folder).certified("dcs"),
        "misconfigured": lambda: Tiny(folder).misconfigured(),
        "misplaced": lambda: Tiny(folder).misplaced(),
    }

"""One engine in a process of its own: does the passes of a job, a line of JSON for each.

    python serve.py JOB.json

The job has ``engine`` (keyword arguments), ``prompts``, ``passes`` (as ``plan.Pass``), ``enough``
(seconds from the start, see ``plan.allot``) and ``out``, the file that the lines go to.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

#: Of what an engine says about itself, the parts worth keeping.
KEPT = (
    "attention_backend",
    "decode_attention_backend",
    "prefill_attention_backend",
    "disable_overlap_schedule",
    "dtype",
    "kv_cache_dtype",
    "max_running_requests",
    "mem_fraction_static",
    "page_size",
    "speculative_algorithm",
    "speculative_eagle_topk",
    "speculative_num_draft_tokens",
    "speculative_num_steps",
    "tp_size",
    "version",
)


def main() -> None:
    begin = time.monotonic()
    job = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    import sglang

    with Path(job["out"]).open("a", encoding="utf-8") as out:

        def write(**line: Any) -> None:
            out.write(json.dumps(line) + "\n")
            out.flush()

        engine = sglang.Engine(**job["engine"])
        write(started=time.monotonic() - begin, server=_about(engine))
        tokenizer = engine.tokenizer_manager.tokenizer
        ids = [_tokens(tokenizer, text) for text in job["prompts"]]
        for work in job["passes"]:
            if not work["needed"] and time.monotonic() - begin > job["enough"]:
                write(name=work["name"], timed=work["timed"], skipped="out of time")
            else:
                write(name=work["name"], timed=work["timed"], **_run(engine, ids, work))
        write(ended=time.monotonic() - begin, memory=_memory(engine))
        engine.shutdown()


def _tokens(tokenizer: Any, text: str) -> list[int]:
    """The prompt in the model's chat template, where it has one."""
    if not getattr(tokenizer, "chat_template", None):
        return tokenizer.encode(text)
    turns = [{"role": "user", "content": text}]
    whole = tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=True)
    return tokenizer.encode(whole, add_special_tokens=False)


def _run(engine: Any, ids: list[list[int]], work: dict[str, Any]) -> dict[str, Any]:
    """Wall seconds of the pass and its answers, in the order of the requests."""
    requests, batch = work["requests"], work["batch"]
    logprobs = {"return_logprob": True, "top_logprobs_num": work["top_logprobs"]}
    answers = []
    begin = time.perf_counter()
    for first in range(0, len(requests), batch):
        chunk = requests[first : first + batch]
        answers += engine.generate(
            input_ids=[ids[request["prompt"] % len(ids)] for request in chunk],
            sampling_params=[request["sampling_params"] for request in chunk],
            **(logprobs if work["top_logprobs"] else {}),
        )
    seconds = time.perf_counter() - begin
    lines = [_answer(*pair, bool(work["timed"])) for pair in zip(requests, answers, strict=True)]
    return {"seconds": seconds, "answers": lines}


def _answer(request: dict[str, Any], answer: dict[str, Any], short: bool) -> dict[str, Any]:
    """What the checks read of an answer; ``short`` leaves out the tokens."""
    about = answer["meta_info"]
    line: dict[str, Any] = {
        "prompt": request["prompt"],
        "tokens": about["completion_tokens"],
        "verifications": about.get("spec_verify_ct"),
        "finish": (about["finish_reason"] or {}).get("type"),
        "adaptivespec": about.get("adaptivespec"),
    }
    if short:
        return line
    line |= {"sampling_params": request["sampling_params"], "token_ids": answer["output_ids"]}
    if top := about.get("output_top_logprobs"):
        best = [[entry[0] for entry in place] for place in top]
        chosen = [entry[0] for entry in about["output_token_logprobs"]]
        line["gaps"] = [first - second for first, second in best]
        line["regrets"] = [place[0] - own for place, own in zip(best, chosen, strict=True)]
    return line


def _about(engine: Any) -> dict[str, Any]:
    about = engine.get_server_info()
    kept = {name: about[name] for name in KEPT if name in about}
    return kept | {"adaptivespec": about["internal_states"][0].get("adaptivespec")}


def _memory(engine: Any) -> Any:
    return engine.get_server_info()["internal_states"][0].get("memory_usage")


if __name__ == "__main__":
    main()

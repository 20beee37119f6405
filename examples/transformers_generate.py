"""The `generate` of transformers with our decode loop in it; its arguments keep their meaning."""

from importlib.resources import files

import torch
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast, TextStreamer

from adaptivespec.engine.weights import resolve_model
from adaptivespec.integrations.transformers import generate

path = resolve_model(None).path  # any causal language model will do, with a head made for it
head = files("adaptivespec") / "heads" / "smollm2-135m-instruct-eagle3"
model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32)
tokenizer = PreTrainedTokenizerFast.from_pretrained(path)

messages = [{"role": "user", "content": "Name three rivers, and say where each of them ends."}]
inputs = tokenizer.apply_chat_template(
    messages, add_generation_prompt=True, return_tensors="pt", return_dict=True
)
own = model.generate(**inputs, max_new_tokens=40, do_sample=False, repetition_penalty=1.1)
out = model.generate(
    **inputs,
    max_new_tokens=40,
    do_sample=False,
    repetition_penalty=1.1,
    streamer=TextStreamer(tokenizer, skip_prompt=True),
    return_dict_in_generate=True,
    custom_generate=generate,
    draft_model=str(head),
    policy="static:4,2,8",  # and rule="safe", or kappa=0.3, for a lossy answer
)
print("lossless:     ", out.lossless, "and the same:", torch.equal(own, out.sequences))
print("tokens a step:", out.accept_length)

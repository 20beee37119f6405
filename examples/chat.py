"""A conversation: the session keeps the cache, so a turn reads only what is new."""

from adaptivespec import Engine

engine = Engine.from_pretrained()
session = engine.session()
messages = [{"role": "system", "content": "You answer in one short sentence."}]
for question in ("What is the capital of France?", "Which river flows through it?"):
    messages.append({"role": "user", "content": question})
    result = engine.chat(messages, rule="safe", max_tokens=32, session=session)
    messages.append({"role": "assistant", "content": result.text})
    print(f"> {question}\n{result.text}\n")

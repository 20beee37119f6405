"""A server and the openai client: the second request asks for a lossy answer."""

import socket
import subprocess
import sys
import time
from pathlib import Path

import openai

with socket.create_server(("127.0.0.1", 0)) as free:
    port = free.getsockname()[1]
command = str(Path(sys.executable).with_name("adaptivespec"))
server = subprocess.Popen([command, "serve", "--port", str(port), "--quiet"])  # noqa: S603
client = openai.OpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key="none")
try:
    for _ in range(240):
        try:
            model = client.models.list().data[0].id
            break
        except openai.APIConnectionError:
            time.sleep(0.5)
    for extra in ({}, {"rule": "margin", "kappa": 0.2}):
        messages = [{"role": "user", "content": "Which colours does a rainbow have?"}]
        answer = client.chat.completions.create(
            model=model, messages=messages, temperature=0, max_tokens=32, extra_body=extra
        )
        figures = answer.to_dict()["metrics"]["speculative_decoding"]
        print(answer.choices[0].message.content)
        print("lossless:", figures["lossless"], "promoted:", figures["num_promoted_tokens"], "\n")
finally:
    server.terminate()
    server.wait()

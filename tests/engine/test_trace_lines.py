"""A trace reads by itself: every id in it is spelled out, once."""

from __future__ import annotations

from adaptivespec.engine.stream import Stream
from adaptivespec.engine.trace_lines import TraceLines, header_of
from fakes import tiny_engine


def test_every_id_of_a_step_is_spelled_no_later_than_there() -> None:
    engine = tiny_engine.engine(eos=())
    prompt = [5, 9, 11]
    job = engine.job(prompt, policy="static:3,2,6", rule="margin:0.3", max_tokens=40, trace=True)
    Stream(engine.session(), job).finish()
    lines = TraceLines(engine.tokenizer)
    texts: dict[str, str] = {}
    for step in job.result.trace or []:
        line = lines.line(step)
        assert not texts.keys() & line["texts"].keys()
        texts |= line["texts"]
        nodes = line["nodes"]
        for ids in (line["tokens"], line["strict"], nodes["token"], nodes["target"]):
            assert all(texts[str(i)] == engine.tokenizer.token_text(i) for i in ids)
    assert texts


def test_the_header_tells_the_prompt_where_it_is_given() -> None:
    engine = tiny_engine.engine()
    job = engine.job([5, 9], max_tokens=4)
    params = job.request.params
    assert header_of(engine, job.result, params, prompt=[5, 9]).prompt == "5 9 "
    assert header_of(engine, job.result, params).prompt is None

"""An engine's requests, its answers and its log, as the GPU check reads them."""

from __future__ import annotations

from gpu import engines, serve


class TestLogs:
    def test_captures_and_states_are_read_from_the_log(self):
        log = (
            "[t] Capture target verify CUDA graph begin. backend=full, avail mem=9.00 GB\n"
            "[t] Capture target verify CUDA graph end. bs=[1, 2], elapsed=1.25 s, "
            "mem usage=0.50 GB, avail mem=8.50 GB.\n"
            "[t]   (5, 4, 16)   SGLang's own, the largest\n"
            "[t]   (6, 1, 7)      0.75 s    0.06 GB\n"
        )
        assert engines.captures(log) == [
            {"what": "target verify CUDA graph", "seconds": 1.25, "gigabytes": 0.5}
        ]
        assert engines.states(log) == [{"triple": [6, 1, 7], "seconds": 0.75, "gigabytes": 0.06}]

    def test_the_last_exception_is_the_error(self):
        assert engines.last_error("a\nRuntimeError: out of memory\nKilled\n") == (
            "RuntimeError: out of memory"
        )
        assert engines.last_error("a\nKilled\n") == "Killed"
        assert engines.last_error("") == ""

    def test_a_line_that_was_cut_off_is_left_out(self, tmp_path):
        (tmp_path / "x").write_text('{"started": 1.0, "server": {}}\n{"name": "strict", "sec')
        lines = engines.read_lines(tmp_path / "x")
        assert engines.collect(lines) == {
            "server": {}, "started": 1.0, "ended": None, "passes": {}
        }  # fmt: skip
        assert engines.read_lines(tmp_path / "none") == []


class TestServe:
    class Engine:
        """Answers every request with its own prompt."""

        def __init__(self):
            self.calls = []

        def generate(self, input_ids, sampling_params, **more):
            self.calls.append((len(input_ids), more))
            about = {"completion_tokens": 2, "finish_reason": {"type": "length"}}
            if more:
                about["output_token_logprobs"] = [(-0.5, 1, None), (-2.0, 2, None)]
                about["output_top_logprobs"] = [
                    [(-0.5, 1, None), (-0.75, 3, None)],
                    [(-1.0, 4, None), (-2.0, 2, None)],
                ]
            return [{"output_ids": ids, "meta_info": dict(about)} for ids in input_ids]

    def work(self, **more):
        requests = [{"prompt": i, "sampling_params": {"temperature": 0}} for i in range(3)]
        return {"requests": requests, "batch": 2, "top_logprobs": 0, "timed": None, **more}

    def test_requests_are_sent_in_batches_and_prompts_repeat(self):
        engine = self.Engine()
        done = serve._run(engine, [[7], [8]], self.work())
        assert [size for size, _ in engine.calls] == [2, 1]
        assert [row["token_ids"] for row in done["answers"]] == [[7], [8], [7]]
        assert "gaps" not in done["answers"][0]

    def test_gaps_and_regrets_come_of_the_log_probabilities(self):
        done = serve._run(self.Engine(), [[7]], self.work(top_logprobs=2))
        assert done["answers"][0]["gaps"] == [0.25, 1.0]
        assert done["answers"][0]["regrets"] == [0.0, 1.0]

    def test_timed_answers_are_kept_short(self):
        done = serve._run(self.Engine(), [[7]], self.work(timed={"batch": 2}))
        assert "token_ids" not in done["answers"][0]

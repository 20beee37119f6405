"""Making a corpus: many answers at once, blocks that resume, features kept beside them."""

from __future__ import annotations

import json
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch

from adaptivespec.core.errors import CheckpointError, ConfigError
from adaptivespec.train.data import make as make_data
from adaptivespec.train.data import plan as plan_module
from adaptivespec.train.data.answers import TOP_K, Answer, Job, answers
from adaptivespec.train.data.corpus import Item, loop_start
from adaptivespec.train.data.features import FeatureShards, FeatureStore, features_of, fingerprint
from adaptivespec.train.data.make import CorpusMaker
from adaptivespec.train.data.plan import MakeOptions, endless_plan, plan
from adaptivespec.train.data.questions import Question
from fakes import tiny
from fakes.tiny_engine import NumberTokenizer

TAPS = (1, 2, 4)
EOS = tuple(range(0, 61, 7))


def questions(count: int, turns: int = 1) -> list[Question]:
    return [
        Question("maths", tuple(f"{n} {(7 * n + t) % 61} {t + 3}" for t in range(turns)))
        for n in range(count)
    ]


def run(jobs: list[Job], **options: Any) -> dict[Any, Answer]:
    waiting = list(jobs)
    made = answers(tiny.target(), lambda: waiting.pop(0) if waiting else None, EOS, TAPS, **options)
    return {answer.job.tag: answer for answer in made}


def jobs(count: int = 9) -> list[Job]:
    return [
        Job((n, 3 * n % 61, 5), 6 + n % 5, seed=n if n % 3 == 2 else None, tag=n)
        for n in range(count)
    ]


def test_an_answer_does_not_depend_on_what_shares_its_passes() -> None:
    alone = run(jobs(), width=1)
    for width in (2, 5, 64):
        together = run(jobs(), width=width)
        assert {n: a.tokens for n, a in together.items()} == {n: a.tokens for n, a in alone.items()}


def test_a_greedy_answer_is_plain_decoding() -> None:
    target = tiny.target()
    for n, answer in run([job for job in jobs() if job.seed is None]).items():
        cache, said = target.new_cache(40), []
        out = target.prefill(cache, answer.job.prompt)
        while len(said) < answer.job.max_tokens and not (said and said[-1] in EOS):
            said.append(int(out.logits.argmax()))
            out = target.prefill(cache, said[-1:])
        loop = loop_start(said)
        expected = said if said[-1] in EOS else said[:-1]
        assert list(answer.tokens) == (expected if loop is None else said[:loop]), n
        assert answer.finished == (said[-1] in EOS)


def test_sampled_answers_follow_the_law() -> None:
    """The first token over many seeds: top-k at the temperature, by chi-square."""
    prompt, count = (4, 9, 2), 1500
    made = run([Job(prompt, 1, seed=seed, tag=seed) for seed in range(count)])
    target = tiny.target()
    out = target.prefill(target.new_cache(8), prompt)
    values, ids = out.logits[0].topk(TOP_K)
    law = dict(zip(ids.tolist(), (values / 0.7).softmax(-1).tolist(), strict=True))
    seen: dict[int, int] = {}
    waiting = [Job(prompt, 2, seed=seed, tag=seed) for seed in range(count)]
    for answer in answers(target, lambda: waiting.pop() if waiting else None, (), ()):
        seen[answer.tokens[0]] = seen.get(answer.tokens[0], 0) + 1
    assert set(seen) <= set(law)
    likely = [token for token, p in law.items() if p * count >= 5]
    chi = sum((seen.get(t, 0) - law[t] * count) ** 2 / (law[t] * count) for t in likely)
    assert chi < 2 * len(likely) + 15
    assert len(made) == count


def test_features_are_those_of_one_pass_over_the_whole_text() -> None:
    target = tiny.target()
    for answer in run(jobs()).values():
        if not answer.tokens:
            continue
        item = Item(answer.job.prompt, answer.tokens)
        whole = features_of(target, item, TAPS)
        rows = len(item.tokens) - answer.finished  # an EOS that ends a text never runs
        first = len(item.prompt) - 1
        torch.testing.assert_close(answer.features.taps[:rows], whole.taps[:rows])
        torch.testing.assert_close(
            answer.features.final[: rows - first], whole.final[: rows - first]
        )
        assert answer.features.greedy[: rows - first].equal(whole.greedy[: rows - first])
        assert answer.features.taps.shape == whole.taps.shape
        assert answer.features.final.shape == whole.final.shape


def maker(
    path: Path, asked: list[Question], tokens: int | None = None, **options: Any
) -> CorpusMaker:
    tokenizer: Any = NumberTokenizer(EOS)
    target = tiny.target()
    shards = FeatureShards(path / "features", target, TAPS)
    chosen = MakeOptions(tokens, answer_tokens=16, max_len=60, **options)
    return CorpusMaker(target, tokenizer, path / "corpus", asked, chosen, shards)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of four questions, and answers of any length count."""
    monkeypatch.setattr(make_data, "SHARD", 4)
    monkeypatch.setattr(make_data, "MIN_RESPONSE", 2)


@pytest.mark.usefixtures("small")
def test_every_question_is_answered_and_its_features_are_kept(tmp_path: Path) -> None:
    made = maker(tmp_path, questions(11))
    seen: list[tuple[int, int]] = []
    items = made.run(2, lambda done, total: seen.append((done, total)))
    assert seen[-1] == (11, 11)
    assert seen == sorted(seen)
    prompts = {item.prompt for item in items}
    assert prompts <= {tuple(NumberTokenizer().encode(q.turns[0])) for q in questions(11)}
    assert len(prompts) == len(items) > 5
    assert made.shards is not None
    store = FeatureStore(made.shards, items)
    for n, item in enumerate(items):
        whole = features_of(made.target, item, TAPS)
        sequence = store[n]
        assert sequence.tokens.tolist() == list(item.tokens)
        rows = len(item.tokens) - 1
        torch.testing.assert_close(sequence.taps[:rows], whole.taps[:rows])
        assert not sequence.final[: len(item.prompt) - 1].any()


@pytest.mark.usefixtures("small")
def test_neither_workers_nor_stops_change_a_corpus(tmp_path: Path) -> None:
    expected = maker(tmp_path / "a", questions(14)).run(1)
    assert maker(tmp_path / "b", questions(14)).run(3) == expected

    class StopError(Exception):
        pass

    def stop_after_a_block(done: int, total: int) -> None:
        if list((tmp_path / "c" / "corpus").glob("0*.jsonl")):
            raise StopError

    with pytest.raises(StopError):
        maker(tmp_path / "c", questions(14)).run(1, stop_after_a_block)
    files = set((tmp_path / "c" / "corpus").glob("0*.jsonl"))
    assert 1 <= len(files) < 4
    before = {file: file.stat().st_mtime_ns for file in files}
    assert maker(tmp_path / "c", questions(14)).run(2) == expected
    assert {file: file.stat().st_mtime_ns for file in files} == before


@pytest.mark.usefixtures("small")
def test_a_number_of_tokens_ends_with_the_block_that_reaches_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plan_module, "questions", lambda kind, count, seed: questions(30))
    items = maker(tmp_path, [], tokens=60).run(2)
    total = sum(len(item.response) for item in items)
    assert total >= 60
    assert maker(tmp_path, [], tokens=20).run(2) == items[: len(maker(tmp_path, [], 20).run(1))]
    more = maker(tmp_path, [], tokens=2 * total).run(1)
    assert more[: len(items)] == items
    assert len(more) > len(items)


@pytest.mark.usefixtures("small")
def test_a_conversation_goes_on_from_its_own_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class ChatTokenizer(NumberTokenizer):
        has_chat_template = True

        def apply_chat_template(self, messages: list[dict[str, str]]) -> list[int]:
            user = {"user": [1], "assistant": []}
            return [t for m in messages for t in (*user[m["role"]], *self.encode(m["content"]))]

    monkeypatch.setattr(make_data, "MIN_RESPONSE", 1)
    made = maker(tmp_path, questions(8, turns=3))
    made.tokenizer = ChatTokenizer(EOS)  # type: ignore[assignment]
    items = made.run(2)
    later = [item for item in items if len(item.prompt) > 4]
    assert later
    finished = {item.tokens for item in items if item.response[-1] in EOS}
    for item in later:
        assert any(item.prompt[:n] in finished for n in range(len(item.prompt)))


def test_another_corpus_in_the_same_place_is_refused(tmp_path: Path) -> None:
    maker(tmp_path, questions(2)).run(1)
    with pytest.raises(CheckpointError, match="seed"):
        maker(tmp_path, questions(2), seed=1)
    with pytest.raises(CheckpointError, match="questions"):
        maker(tmp_path, questions(3))


def test_another_targets_corpus_and_features_are_never_taken(tmp_path: Path) -> None:
    """Two models of one shape may share --corpus and --features."""
    names = []
    for number in range(2):
        model = tmp_path / str(number)
        model.mkdir()
        weights = bytearray(1_000_000)
        weights[500_000] = number  # a fine-tune differs in every sample; one is enough
        (model / "model.safetensors").write_bytes(bytes(weights))
        (model / "notes.txt").write_text(str(number), encoding="utf-8")
        names.append(fingerprint(model))
    assert names[0] != names[1]
    assert names[0] == fingerprint(tmp_path / "0")
    tokenizer: Any = NumberTokenizer(EOS)
    options = MakeOptions(None, answer_tokens=16, max_len=60)
    CorpusMaker(tiny.target(), tokenizer, tmp_path / "c", questions(2), options, None, names[0])
    with pytest.raises(CheckpointError, match="target") as caught:
        CorpusMaker(tiny.target(), tokenizer, tmp_path / "c", questions(2), options, None, names[1])
    assert caught.value.field == "corpus"


def test_the_plan_mixes_kinds_and_own_questions(monkeypatch: pytest.MonkeyPatch) -> None:
    pools = {kind: min(size, 400) for kind, size in plan_module.POOL.items()}
    monkeypatch.setattr(plan_module, "POOL", pools)  # whole ones take seconds
    own = [Question("maths", (f"own {n}",)) for n in range(40)]
    own += [Question("law", (f"case {n}",)) for n in range(10)]
    first = list(islice(endless_plan(own, MakeOptions(1000)), 600))
    assert first == list(islice(endless_plan(own, MakeOptions(1000)), 600))
    assert first != list(islice(endless_plan(own, MakeOptions(1000, seed=1)), 600))
    asked = [each.question for each in first]
    assert sum(q.kind == "maths" for q in asked) == pytest.approx(204, abs=10)
    assert {q for q in asked if q.kind == "law"} == set(own[40:])
    again = [each for n, each in enumerate(first) if each.question in asked[:n]]
    assert again
    assert all(each.seed is not None for each in again)
    sampled = [each for each in first if each.seed is not None]
    assert len(sampled) == len({each.seed for each in sampled})
    once = list(plan(own, MakeOptions(None)))
    assert [each.question for each in once] == own


@pytest.mark.parametrize(("name", "value"), [("tokens", 0), ("answer_tokens", 3), ("max_len", 5)])
def test_options_have_bounds(name: str, value: int) -> None:
    with pytest.raises(ConfigError, match=str(value)) as caught:
        MakeOptions(**{"tokens": 5, name: value})
    assert caught.value.field == name


def test_a_damaged_shard_is_named(tmp_path: Path) -> None:
    shards = FeatureShards(tmp_path, tiny.target(), TAPS)
    (shards.path / "0.safetensors").write_bytes(b"no tensors")
    with pytest.raises(CheckpointError, match=r"0\.safetensors"):
        FeatureShards(tmp_path, tiny.target(), TAPS)


def test_features_are_found_by_text_whatever_the_corpus(tmp_path: Path) -> None:
    items = [Item((1, 2, n), (4, 5, 6)) for n in range(5)]
    shards = FeatureShards(tmp_path, tiny.target(), TAPS)
    shards.build(items[:3], 2)
    again = FeatureShards(tmp_path, tiny.target(), TAPS)
    assert [item in again for item in items] == [True] * 3 + [False] * 2
    done: list[tuple[int, int]] = []
    again.build([items[4], *items, items[4]], 2, lambda d, t: done.append((d, t)))
    assert done == [(12, 12)]
    assert json.dumps([again.read(i).tokens.tolist() for i in items])

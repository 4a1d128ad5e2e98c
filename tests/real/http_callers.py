"""Callers of an HTTP service with libraries of PyPI: ``http_callers.py KIND HOST:PORT``."""

from __future__ import annotations

import itertools
import json
import os
import queue
import select
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, Final

_PROMPT: Final = "the quick brown fox jumps over the lazy dog"
_TOKENS: Final = 12
_WORKERS_WORDS: Final = " ".join(itertools.islice(itertools.cycle(_PROMPT.split()), _TOKENS))
_TIMEOUT_SECONDS: Final = 30.0
_FEW: Final = 4

_Requests = Iterator[tuple[str, Callable[[], object]]]


def _openai(address: str) -> _Requests:
    """Yield chats, whole and streamed, embeddings and lists of models."""
    import openai

    client = openai.OpenAI(
        base_url=f"http://{address}/v1", api_key="unused", max_retries=0, timeout=_TIMEOUT_SECONDS
    )
    messages = [{"role": "user", "content": _PROMPT}]

    def plain() -> object:
        answer = client.chat.completions.create(model="stand-in", messages=messages, max_tokens=_TOKENS)
        assert answer.usage.completion_tokens == _TOKENS
        return answer.choices[0].message.content

    def streamed() -> object:
        chunks = list(
            client.chat.completions.create(
                model="stand-in", messages=messages, max_tokens=_TOKENS, stream=True
            )
        )
        assert chunks[-1].choices[0].finish_reason == "stop"
        return "".join(chunk.choices[0].delta.content or "" for chunk in chunks).strip()

    def embedding() -> object:
        [entry] = client.embeddings.create(model="stand-in", input=_PROMPT).data
        assert entry.embedding == [float(len(_PROMPT) % 7), 1.0]
        return _WORKERS_WORDS

    def models() -> object:
        assert [model.id for model in client.models.list()] == ["stand-in"]
        return _WORKERS_WORDS

    yield from itertools.cycle(
        [("plain", plain), ("streamed", streamed), ("embedding", embedding), ("models", models)]
    )


def _triton(address: str) -> _Requests:
    """Yield inferences with one answer, and with a stream of them."""
    import numpy as np
    from tritonclient import grpc

    client = grpc.InferenceServerClient(address)
    prompt = grpc.InferInput("PROMPT", [1], "BYTES")
    prompt.set_data_from_numpy(np.array([_PROMPT.encode()], dtype=np.object_))
    tokens = grpc.InferInput("TOKENS", [1], "INT32")
    tokens.set_data_from_numpy(np.array([_TOKENS], dtype=np.int32))

    def words(result: Any) -> str:
        return " ".join(word.decode() for word in result.as_numpy("WORDS"))

    def plain() -> object:
        return words(client.infer("words", [prompt, tokens], client_timeout=_TIMEOUT_SECONDS))

    def streamed() -> object:
        answers: queue.Queue[tuple[Any, Any]] = queue.Queue()
        client.start_stream(lambda result, error: answers.put((result, error)), _TIMEOUT_SECONDS)
        try:
            client.async_stream_infer("words", [prompt, tokens])
            received = [answers.get(timeout=_TIMEOUT_SECONDS) for _ in range(_TOKENS)]
        finally:
            client.stop_stream()
        assert [error for _, error in received] == [None] * _TOKENS
        return " ".join(words(result) for result, _ in received)

    def ready() -> object:
        assert client.is_server_ready()
        assert client.is_model_ready("words")
        return _WORKERS_WORDS

    yield from itertools.cycle([("plain", plain), ("streamed", streamed), ("ready", ready)])


def _websocket(address: str) -> _Requests:
    """Yield conversations of three prompts on a connection each."""
    from websockets.sync.client import connect

    def conversation() -> object:
        with connect(f"ws://{address}/chat", open_timeout=_TIMEOUT_SECONDS) as connection:
            answers = set()
            for _ in range(3):
                connection.send(json.dumps([_PROMPT, _TOKENS]))
                answers.add(" ".join(str(connection.recv(_TIMEOUT_SECONDS)) for _ in range(_TOKENS)))
        [words] = answers
        return words

    yield from itertools.repeat(("conversation", conversation))


_CALLERS: Final = {"openai": _openai, "triton": _triton, "websocket": _websocket}


def main(kind: str, address: str) -> int:
    """Call until standard input closes."""
    counts: Counter[str] = Counter()
    failed = []
    for name, request in _CALLERS[kind](address):
        if bool(select.select([0], [], [], 0)[0]) and (not os.read(0, 1)):
            break
        counts[name] += 1
        if counts.total() == _FEW:
            sys.stdout.write("\n")
            sys.stdout.flush()
        try:
            words = request()
            assert words == _WORKERS_WORDS, words
        except Exception as error:
            failed.append(f"{name}: {type(error).__name__}: {error}")
    json.dump({"counts": counts, "failed": failed}, sys.stdout)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

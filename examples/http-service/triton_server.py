"""A stand-in for Triton Inference Server: KServe's v2 inference protocol over gRPC, as `tritonclient` has it.

Its model ``words`` answers with the prompt's words (input ``PROMPT``, BYTES, and ``TOKENS``, INT32; output
``WORDS``, BYTES), all in one response, or one by one in a stream. As Triton does, it opens its port once the
model is loaded. It needs ``tritonclient[grpc]``, whose messages it uses.
"""

from __future__ import annotations

import itertools
import os
import signal
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from concurrent import futures
from typing import Any

import grpc
import numpy as np
from tritonclient import utils
from tritonclient.grpc import service_pb2 as messages
from tritonclient.grpc.service_pb2_grpc import (
    GRPCInferenceServiceServicer,
    add_GRPCInferenceServiceServicer_to_server,
)

MODEL = "words"
LOAD_SECONDS = float(os.environ.get("LOAD_SECONDS", "0"))
TOKEN_SECONDS = float(os.environ.get("TOKEN_SECONDS", "0.02"))
"""Time that a token takes."""
END_SECONDS = 30.0
"""Time that requests get to end after SIGTERM."""
THREADS = 32


class InferenceService(GRPCInferenceServiceServicer):  # type: ignore[misc]
    """The protocol's calls that a client needs."""

    def ServerLive(self, request: Any, context: Any) -> Any:  # noqa: N802
        """Answer that the server runs."""
        return messages.ServerLiveResponse(live=True)

    def ServerReady(self, request: Any, context: Any) -> Any:  # noqa: N802
        """Answer that it serves."""
        return messages.ServerReadyResponse(ready=True)

    def ModelReady(self, request: Any, context: Any) -> Any:  # noqa: N802
        """Answer whether a model is loaded."""
        return messages.ModelReadyResponse(ready=request.name == MODEL)

    def ModelInfer(self, request: Any, context: Any) -> Any:  # noqa: N802
        """Answer with all words."""
        check_model(request, context)
        return response(request, list(words(request)))

    def ModelStreamInfer(self, requests: Iterable[Any], context: Any) -> Iterator[Any]:  # noqa: N802
        """Answer each request of a stream word by word."""
        for request in requests:
            check_model(request, context)
            for word in words(request):
                yield messages.ModelStreamInferResponse(infer_response=response(request, [word]))


def check_model(request: Any, context: Any) -> None:
    """End the call if it is for another model."""
    if request.model_name != MODEL:
        context.abort(grpc.StatusCode.NOT_FOUND, f"no model {request.model_name!r}, only {MODEL!r}")


def words(request: Any) -> Iterator[bytes]:
    """Yield the reply's tokens: the prompt's words, again from the first after the last."""
    raw = dict(zip((tensor.name for tensor in request.inputs), request.raw_input_contents, strict=True))
    [prompt] = utils.deserialize_bytes_tensor(raw["PROMPT"])
    [tokens] = np.frombuffer(raw["TOKENS"], np.int32)
    for word in itertools.islice(itertools.cycle(prompt.split()), int(tokens)):
        time.sleep(TOKEN_SECONDS)
        yield word


def response(request: Any, answer: list[bytes]) -> Any:
    """Return the response with the tensor of these words."""
    data = utils.serialize_byte_tensor(np.array(answer, dtype=np.object_)).item()
    output = messages.ModelInferResponse.InferOutputTensor(
        name="WORDS", datatype="BYTES", shape=[len(answer)]
    )
    return messages.ModelInferResponse(
        model_name=MODEL, id=request.id, outputs=[output], raw_output_contents=[data]
    )


def main() -> int:
    """Serve until SIGTERM."""
    is_ended = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: is_ended.set())
    time.sleep(LOAD_SECONDS)
    server = grpc.server(futures.ThreadPoolExecutor(THREADS))
    add_GRPCInferenceServiceServicer_to_server(InferenceService(), server)
    address, port = os.environ.get("ADDRESS", "0.0.0.0"), os.environ["GPU_SPOT_PORT"]  # noqa: S104
    server.add_insecure_port(f"{address}:{port}")
    server.start()
    is_ended.wait()
    server.stop(END_SECONDS).wait()
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""The Triton side of the fake model: requests in, one response a token out.

Options come as tensors, in the JSON document `sampling_parameters`, or as request
parameters, the first of them counting. Beside the usual ones there are some to make
trouble with:

* ``delay``: seconds before each token; ``think``: seconds before the first one.
* ``fail_after``: tokens after which the model fails; 0 refuses the request.
* ``final``: ``"last"`` puts the final flag on the last token, as the vLLM backend
  does; otherwise it comes in a response of its own.

When a request is over, one JSON line about it is appended to the file named in
FAKE_LLM_LOG, so that a test can see when generation really stopped.
"""

from __future__ import annotations

import json
import os
import threading
import time

import numpy as np
import triton_python_backend_utils as pb_utils
from fake_llm import answer


class Failed(Exception):
    """The model failed, as it was asked to."""


class TritonPythonModel:
    """What Triton's Python backend calls."""

    def initialize(self, args):
        self._threads = set()

    def execute(self, requests):
        """Answer each request in a thread of its own: decoupled models may."""
        self._threads = {thread for thread in self._threads if thread.is_alive()}
        for request in requests:
            run = Run(request)
            thread = threading.Thread(target=run.run)
            self._threads.add(thread)
            thread.start()

    def finalize(self):
        for thread in self._threads:
            thread.join()


class Run:
    """One request."""

    def __init__(self, request):
        self._sender = request.get_response_sender()
        self._id = request.request_id()
        self._outputs = set(request.requested_output_names())
        self._inputs = {tensor.name(): tensor for tensor in request.inputs()}
        self._options = json.loads(request.parameters() or "{}")
        document = self._tensor("sampling_parameters")
        if document is not None:
            self._options |= json.loads(document)
        self._times = []

    def run(self):
        """Send the answer, and write down how it went."""
        prompt = self._tensor("text_input")
        final = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL
        started = time.time()
        try:
            end = self._send_tokens(prompt)
        except Failed as failure:
            end = "error"
            error = pb_utils.TritonError(f"Error generating stream: {failure}")
            self._sender.send(pb_utils.InferenceResponse(error=error), flags=final)
        except Exception as failure:  # noqa: BLE001 - Triton would only lose it
            end = repr(failure)
            error = pb_utils.TritonError(end)
            self._sender.send(pb_utils.InferenceResponse(error=error), flags=final)
        else:
            if end == "cancelled":
                error = pb_utils.TritonError(
                    "Request was cancelled", pb_utils.TritonError.CANCELLED
                )
                self._sender.send(pb_utils.InferenceResponse(error=error), flags=final)
            elif end != "final":
                self._sender.send(flags=final)
        self._note(
            id=self._id,
            prompt_bytes=len(prompt),
            started=started,
            ended=time.time(),
            end=end,
            times=self._times,
        )

    def _send_tokens(self, prompt):
        fail_after = self._option("fail_after")
        if fail_after == 0:
            raise Failed("model refused the request (日本)")
        time.sleep(self._option("think", 0.0))
        delay = self._option("delay", 0.0)
        end = "stop"
        for piece, end in answer(prompt, self._option("max_tokens"), self._stop()):
            if fail_after is not None and len(self._times) == fail_after:
                raise Failed(f"CUDA out of memory (simulated) after {fail_after}")
            if delay:
                time.sleep(delay)
            if self._sender.is_cancelled():
                return "cancelled"
            last = end != "None" and self._option("final") == "last"
            self._times.append(time.time())
            self._sender.send(
                self._response(prompt, piece, end),
                flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL if last else 0,
            )
            if last:
                return "final"
        return end

    def _response(self, prompt, piece, end):
        tensors = [("text_output", np.array([piece], dtype=object))]
        if self._tensor("return_finish_reason"):
            reason = np.array([end.encode()], dtype=object)
            tensors.append(("finish_reason", reason))
        if self._tensor("return_num_input_tokens"):
            count = np.array([len(prompt)], dtype=np.uint32)
            tensors.append(("num_input_tokens", count))
        if self._tensor("return_num_output_tokens"):
            tensors.append(("num_output_tokens", np.array([1], dtype=np.uint32)))
        return pb_utils.InferenceResponse(
            [
                pb_utils.Tensor(name, value)
                for name, value in tensors
                if name in self._outputs
            ]
        )

    def _stop(self):
        if "stop" in self._inputs:
            return list(self._inputs["stop"].as_numpy().flatten())
        words = self._options.get("stop") or []
        words = [words] if isinstance(words, str) else words
        return [word.encode() for word in words]

    def _option(self, name, default=None):
        value = self._tensor(name)
        if value is None:
            value = self._options.get(name)
        return default if value is None else value

    def _tensor(self, name):
        tensor = self._inputs.get(name)
        return None if tensor is None else tensor.as_numpy().flatten()[0]

    def _note(self, **facts):
        path = os.environ.get("FAKE_LLM_LOG")
        if path:
            line = json.dumps(facts).encode() + b"\n"
            descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
            try:
                os.write(descriptor, line)  # one write: requests run side by side
            finally:
                os.close(descriptor)

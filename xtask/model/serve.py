"""Serves a model by llama.cpp on this machine alone, in the way of OpenAI's API, until stdin is closed.

    serve.py --model FILE --name NAME [--port PORT]

Prints one line, the base URL, when the model is loaded. Among others it serves `GET /health`, `GET /v1/models` and
`POST /v1/chat/completions`, streaming too."""

import argparse
import os
import sys

import xllamacpp

# What llama.cpp says of errors and warnings, and no more.
VERBOSITY = 1
# Room for the instructions, the tools and some files; every thousand tokens take 28 MB.
CONTEXT = 16384


def parameters(arguments):
    given = xllamacpp.CommonParams()
    given.model.path = arguments.model
    given.model_alias = {arguments.name}
    given.hostnames = ["127.0.0.1"]
    given.port = arguments.port
    given.n_ctx = CONTEXT
    # More at once would share the context and the processor.
    given.n_parallel = 1
    given.cpuparams.n_threads = os.cpu_count()
    given.cpuparams_batch.n_threads = os.cpu_count()
    # The likeliest word always: what is asked twice is answered alike.
    given.sampling.temp = 0.0
    given.verbosity = VERBOSITY
    given.ui = False
    return given


def main():
    """Returns what `sys.exit` takes: nothing, or the message of the error."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--name", required=True)
    parser.add_argument("--port", type=int, default=0)
    arguments = parser.parse_args()
    try:
        server = xllamacpp.Server(parameters(arguments))
    except RuntimeError as error:
        return f"llama.cpp does not start: {error}; if the port is in use, give another by --port"
    print(f"{server.listening_address}/v1", flush=True)
    try:
        sys.stdin.read()
    except KeyboardInterrupt:
        pass
    # The server's threads may be at work for minutes on an answer that is no longer awaited.
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main())

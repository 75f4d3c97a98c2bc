"""The client of `tests/peers/README.md` on the official Python SDK, used as its documentation shows:
a class with the `Client` methods, connected by `spawn_agent_process`. Instead of a command it takes the URL of a
server, `http:` or `ws:`, with the token in BOWLINE_TOKEN, if the SDK is the pre-release, which has these transports."""

import argparse
import asyncio
import json
import os
import signal
import sys
import time
from collections import Counter
from contextlib import AsyncExitStack, asynccontextmanager

from acp import (
    PROTOCOL_VERSION,
    Client,
    CreateTerminalResponse,
    ReadTextFileResponse,
    RequestError,
    RequestPermissionResponse,
    TerminalOutputResponse,
    WaitForTerminalExitResponse,
    connect_to_agent,
    spawn_agent_process,
)
from acp.core import DEFAULT_STDIO_BUFFER_LIMIT_BYTES
from acp.schema import (
    AgentMessageChunk,
    AllowedOutcome,
    ClientCapabilities,
    DeniedOutcome,
    FileSystemCapabilities,
    Implementation,
    TerminalExitStatus,
    TextContentBlock,
)

BENCH = "/bench/"
BENCH_LINE = '        if let Some(value) = map.get("key") { out.push(value); }\n'
CHUNKS_KEPT = 50
SHUTDOWN_SECONDS = 120


class PeerClient(Client):
    def __init__(self, approve):
        self.kind = f"{approve}_once"
        self.turn = TurnLog()
        self.bench = {}
        self.terminals = {}

    def on_connect(self, conn):
        self.agent = conn

    async def session_update(self, session_id, update, **kwargs):
        if self.turn.record(update):
            await self.agent.cancel(session_id=session_id)

    async def request_permission(self, session_id, tool_call, options, **kwargs):
        option = next((option for option in options if option.kind == self.kind), None)
        if option is None:
            return RequestPermissionResponse(outcome=DeniedOutcome(outcome="cancelled"))
        return RequestPermissionResponse(outcome=AllowedOutcome(outcome="selected", option_id=option.option_id))

    async def read_text_file(self, session_id, path, line=None, limit=None, **kwargs):
        if path.startswith(BENCH):
            return ReadTextFileResponse(content=self.bench_text(path))
        try:
            return ReadTextFileResponse(content=read_window(path, line, limit))
        except FileNotFoundError:
            raise RequestError.resource_not_found(path) from None

    def bench_text(self, path):
        if path not in self.bench:
            size = int(path.removeprefix(BENCH))
            self.bench[path] = (BENCH_LINE * (size // len(BENCH_LINE) + 1))[:size]
        return self.bench[path]

    async def write_text_file(self, session_id, path, content, **kwargs):
        with open(path, "w", encoding="utf-8", newline="") as file:
            file.write(content)

    async def create_terminal(
        self, session_id, command, args=None, env=None, cwd=None, output_byte_limit=None, **kwargs
    ):
        process = await asyncio.create_subprocess_exec(
            command,
            *(args or []),
            env=os.environ | {variable.name: variable.value for variable in env or []},
            cwd=cwd,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        terminal_id = f"terminal_{process.pid}"
        self.terminals[terminal_id] = Terminal(process, output_byte_limit)
        return CreateTerminalResponse(terminal_id=terminal_id)

    async def terminal_output(self, session_id, terminal_id, **kwargs):
        return self.terminal(terminal_id).current_output()

    async def wait_for_terminal_exit(self, session_id, terminal_id, **kwargs):
        return WaitForTerminalExitResponse(**await self.terminal(terminal_id).wait())

    async def kill_terminal(self, session_id, terminal_id, **kwargs):
        self.terminal(terminal_id).kill()

    async def release_terminal(self, session_id, terminal_id, **kwargs):
        terminal = self.terminal(terminal_id)
        del self.terminals[terminal_id]
        terminal.kill()
        await terminal.wait()

    def terminal(self, terminal_id):
        if terminal_id not in self.terminals:
            raise RequestError.resource_not_found(terminal_id)
        return self.terminals[terminal_id]


class Terminal:
    """One command and what it has printed."""

    def __init__(self, process, limit):
        self.process = process
        self.limit = limit
        self.output = bytearray()
        self.truncated = False
        self.reading = asyncio.create_task(self.read())

    async def read(self):
        while data := await self.process.stdout.read(65536):
            self.output += data
            if self.limit is not None and len(self.output) > self.limit:
                del self.output[: len(self.output) - self.limit]
                self.truncated = True

    def current_output(self):
        exited = self.reading.done() and self.process.returncode is not None
        return TerminalOutputResponse(
            # Truncation may have left a partial character at the start, and a read one at the end.
            output=self.output.decode(errors="ignore"),
            truncated=self.truncated,
            exit_status=TerminalExitStatus(**self.status()) if exited else None,
        )

    async def wait(self):
        """Waits for the end of the output too, so that what is asked for next is complete."""
        await self.reading
        await self.process.wait()
        return self.status()

    def status(self):
        code = self.process.returncode
        return {"exit_code": code} if code >= 0 else {"signal": signal.Signals(-code).name}

    def kill(self):
        if self.process.returncode is None:
            self.process.kill()


class TurnLog:
    """The updates of one step."""

    def __init__(self, cancel_on_first_chunk=False):
        self.to_cancel = cancel_on_first_chunk
        self.chunks = []
        self.kinds = Counter()

    def record(self, update):
        """Returns whether the turn is now to be cancelled."""
        self.kinds[update.session_update] += 1
        if not isinstance(update, AgentMessageChunk):
            return False
        if isinstance(update.content, TextContentBlock) and len(self.chunks) < CHUNKS_KEPT:
            self.chunks.append(update.content.text)
        cancel, self.to_cancel = self.to_cancel, False
        return cancel


def read_window(path, line, limit):
    # Lines end only at "\n", and all of their bytes are kept.
    with open(path, encoding="utf-8", newline="\n") as file:
        if line is None and limit is None:
            return file.read()
        start = max((line or 1) - 1, 0)
        return "".join(file.readlines()[start : None if limit is None else start + limit])


@asynccontextmanager
async def connect(client, url):
    headers = {"Authorization": f"Bearer {os.environ['BOWLINE_TOKEN']}"}
    if url.startswith("http:"):
        from acp.http import create_http_stream

        transport = create_http_stream(url, headers=headers)
    else:
        from acp.ws import create_websocket_stream

        transport = await create_websocket_stream(url, headers=headers)
    agent = connect_to_agent(client, transport)
    try:
        yield agent
    finally:
        await agent.close()


@asynccontextmanager
async def spawn(client, command):
    spawned = spawn_agent_process(
        client,
        *command,
        env=os.environ,
        transport_kwargs={
            "stderr": None,
            "limit": DEFAULT_STDIO_BUFFER_LIMIT_BYTES,
            "shutdown_timeout": SHUTDOWN_SECONDS,
        },
    )
    async with spawned as (agent, process):
        yield agent
    if process.returncode != 0:
        raise RuntimeError(f"the agent ended with {process.returncode}")


async def run(client, plan, command):
    async with AsyncExitStack() as connections:
        is_url = command[0].startswith(("http:", "ws:"))
        connecting = connect(client, command[0]) if is_url else spawn(client, command)
        agent = await connections.enter_async_context(connecting)
        answer = await initialize(agent)
        name = answer.agent_info.name if answer.agent_info else None
        print_line({"agent": name, "protocolVersion": answer.protocol_version})
        session = (await agent.new_session(cwd=os.getcwd(), mcp_servers=[])).session_id
        for step in plan:
            if "load" in step:
                agent = await connections.enter_async_context(connect(client, command[0]))
                await initialize(agent)
                print_line(await take(client, lambda: load(client, agent, session, step["load"])))
            else:
                cancels = step.get("cancelOnFirstChunk", False)
                print_line(await take(client, lambda: prompt(agent, session, step), cancels))


async def initialize(agent):
    return await agent.initialize(
        protocol_version=PROTOCOL_VERSION,
        client_capabilities=ClientCapabilities(
            fs=FileSystemCapabilities(read_text_file=True, write_text_file=True), terminal=True
        ),
        client_info=Implementation(name="peer-python", version="0.0.0"),
    )


async def load(client, agent, session, updates):
    await agent.load_session(cwd=os.getcwd(), session_id=session, mcp_servers=[])
    # The SDK handles updates in tasks of their own, which may end after the request that they came before.
    async with asyncio.timeout(SHUTDOWN_SECONDS):
        while client.turn.kinds.total() < updates:
            await asyncio.sleep(0)
    return "loaded"


async def prompt(agent, session, step):
    text = json.dumps(step["prompt"], ensure_ascii=False, separators=(",", ":"))
    answer = await agent.prompt(session_id=session, prompt=[TextContentBlock(type="text", text=text)])
    return answer.stop_reason


async def take(client, request, cancel_on_first_chunk=False):
    """Takes one step of the plan and returns its line."""
    client.turn = log = TurnLog(cancel_on_first_chunk)
    start = time.perf_counter()
    stop = await request()
    return {
        "stop": stop,
        "seconds": time.perf_counter() - start,
        "updates": log.kinds.total(),
        "chunks": log.chunks,
        "kinds": log.kinds,
    }


def print_line(value):
    print(json.dumps(value, separators=(",", ":")), flush=True)


async def main():
    """Returns what `sys.exit` takes: nothing, or the message of the error."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--approve", choices=["allow", "reject"], required=True)
    parser.add_argument("--plan", type=json.loads, required=True)
    parser.add_argument("agent", nargs="+")
    arguments = parser.parse_args()
    client = PeerClient(arguments.approve)
    try:
        await run(client, arguments.plan, arguments.agent)
    except Exception as error:
        return f"client: {error!r}"
    finally:
        for terminal in client.terminals.values():
            terminal.kill()


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))

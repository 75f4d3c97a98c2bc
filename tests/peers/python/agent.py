"""The agent of `tests/peers/README.md` on the official Python SDK, used as its documentation shows:
a class with the `Agent` methods, served by `run_agent`. `--listen [PORT]` serves HTTP and WebSocket instead, with the
SDK's own application, which the pre-release has: it prints its address, and ends when stdin closes.

The helpers that build updates differ between the SDK's versions, so this uses the types of the schema."""

import asyncio
import json
import socket
import sys
from uuid import uuid4

from acp import (
    PROTOCOL_VERSION,
    Agent,
    Client,
    InitializeResponse,
    NewSessionResponse,
    PromptResponse,
    RequestError,
    run_agent,
)
from acp.schema import (
    AgentMessageChunk,
    AgentPlanUpdate,
    AllowedOutcome,
    FileEditToolCallContent,
    Implementation,
    PermissionOption,
    PlanEntry,
    TextContentBlock,
    ToolCallLocation,
    ToolCallProgress,
    ToolCallStart,
    ToolCallUpdate,
)

NAME = "peer-python"
CALL = "call_1"
EDIT = "call_edit"
RUN = "call_run"


class PeerAgent(Agent):
    client: Client

    def __init__(self):
        self.cancels = {}

    def on_connect(self, conn):
        self.client = conn

    async def initialize(self, protocol_version, client_capabilities=None, client_info=None, **kwargs):
        return InitializeResponse(
            protocol_version=PROTOCOL_VERSION, agent_info=Implementation(name=NAME, version="0.0.0")
        )

    async def new_session(self, cwd, additional_directories=None, mcp_servers=None, **kwargs):
        return NewSessionResponse(session_id=uuid4().hex)

    async def prompt(self, session_id, prompt, **kwargs):
        text = next((block.text for block in prompt if isinstance(block, TextContentBlock)), "")
        # Created before anything is sent, so that a cancellation in response to the first chunk is not lost.
        cancelled = self.cancels[session_id] = asyncio.Event()
        stop_reason = await Turn(self.client, session_id, cancelled).run(text)
        return PromptResponse(stop_reason=stop_reason)

    async def cancel(self, session_id, **kwargs):
        if session_id in self.cancels:
            self.cancels[session_id].set()


class Turn:
    """One prompt turn: what the prompt's text asks for, done through the client."""

    def __init__(self, client, session_id, cancelled):
        self.client = client
        self.session_id = session_id
        self.cancelled = cancelled

    async def run(self, text):
        match parse(text):
            case {"do": "read", "path": path, "count": count, "inflight": inflight}:
                await self.read_many(path, count, inflight)
            case {"do": "stream", "count": count, "size": size}:
                for _ in range(count):
                    await self.chunk("x" * size)
            case {"do": "flow", "path": path, "newPath": new_path}:
                await self.flow(path, new_path)
            case {"do": "edit", "path": path, "old": old, "new": new, "command": command}:
                await self.edit(path, old, new)
                await self.run_command(command)
            case {"do": "wait"}:
                await self.chunk("waiting")
                await self.cancelled.wait()
                return "cancelled"
            case _:
                await self.chunk(text)
        return "end_turn"

    async def read_many(self, path, count, inflight):
        remaining = iter(range(count))

        async def reader():
            total = 0
            for _ in remaining:
                total += len((await self.read(path)).encode())
            return total

        totals = await asyncio.gather(*(reader() for _ in range(inflight)))
        await self.chunk(as_json({"reads": count, "bytes": sum(totals)}))

    async def flow(self, path, new_path):
        await self.update(
            start_tool_call(
                CALL,
                "Update config",
                kind="edit",
                status="pending",
                locations=[ToolCallLocation(path=path)],
                raw_input={"path": path},
            )
        )
        content = await self.read(path)
        await self.chunk("read:" + as_json(content))
        await self.chunk("window:" + as_json(await self.read(path, line=2, limit=1)))

        permission = await self.ask(CALL)
        await self.chunk(f"permission:{permission}")
        if permission == "allow":
            await self.write(CALL, new_path, content + f"written by {NAME}\n")
        else:
            await self.update(update_tool_call(CALL, status="failed"))

        try:
            await self.read(path + ".missing")
            raise RuntimeError("the client read a missing file")
        except RequestError as error:
            await self.chunk(f"missing:{error.code}")

        await self.run_to_end("echo", "hello")
        await self.kill_sleep()
        await self.update(
            AgentPlanUpdate(
                session_update="plan",
                entries=[
                    PlanEntry(content="Read the file", priority="high", status="completed"),
                    PlanEntry(content="Write the file", priority="medium", status="in_progress"),
                ],
            )
        )

    async def edit(self, path, old, new):
        content = await self.read(path)
        await self.chunk("read:" + as_json(content))
        text = content.replace(old, new, 1)
        await self.update(
            start_tool_call(
                EDIT,
                "Edit the file",
                kind="edit",
                status="pending",
                content=[tool_diff_content(path, text, content)],
                locations=[ToolCallLocation(path=path)],
            )
        )
        permission = await self.ask(EDIT)
        await self.chunk(f"permission:{permission}")
        if permission == "allow":
            await self.write(EDIT, path, text)
        else:
            await self.update(update_tool_call(EDIT, status="failed"))

    async def run_command(self, command):
        await self.update(
            start_tool_call(RUN, command, kind="execute", status="pending", raw_input={"command": command})
        )
        permission = await self.ask(RUN)
        await self.chunk(f"permission:{permission}")
        if permission == "allow":
            await self.run_to_end(command)
            await self.update(update_tool_call(RUN, status="completed"))
        else:
            await self.update(update_tool_call(RUN, status="failed"))

    async def ask(self, call):
        answer = await self.client.request_permission(
            session_id=self.session_id,
            tool_call=ToolCallUpdate(tool_call_id=call),
            options=[
                PermissionOption(option_id="allow", name="Allow", kind="allow_once"),
                PermissionOption(option_id="reject", name="Reject", kind="reject_once"),
            ],
        )
        return answer.outcome.option_id if isinstance(answer.outcome, AllowedOutcome) else "cancelled"

    async def write(self, call, path, text):
        await self.update(update_tool_call(call, status="in_progress"))
        await self.client.write_text_file(session_id=self.session_id, path=path, content=text)
        await self.update(update_tool_call(call, status="completed", content=[tool_diff_content(path, text)]))
        await self.chunk("wrote")

    async def run_to_end(self, command, *args):
        terminal = await self.create_terminal(command, *args)
        status = await self.client.wait_for_terminal_exit(**terminal)
        output = (await self.client.terminal_output(**terminal)).output
        await self.client.release_terminal(**terminal)
        code = "none" if status.exit_code is None else status.exit_code
        await self.chunk(f"terminal:{code}:{as_json(output)}")

    async def kill_sleep(self):
        terminal = await self.create_terminal("sleep", "600")
        await self.client.kill_terminal(**terminal)
        await self.client.wait_for_terminal_exit(**terminal)
        await self.client.release_terminal(**terminal)
        await self.chunk("killed")

    async def create_terminal(self, command, *args):
        """Returns the arguments that every other terminal method takes."""
        created = await self.client.create_terminal(session_id=self.session_id, command=command, args=list(args))
        return {"session_id": self.session_id, "terminal_id": created.terminal_id}

    async def read(self, path, line=None, limit=None):
        response = await self.client.read_text_file(session_id=self.session_id, path=path, line=line, limit=limit)
        return response.content

    async def chunk(self, text):
        await self.update(AgentMessageChunk(session_update="agent_message_chunk", content=text_block(text)))

    async def update(self, update):
        await self.client.session_update(session_id=self.session_id, update=update)


def start_tool_call(call, title, **members):
    return ToolCallStart(session_update="tool_call", tool_call_id=call, title=title, **members)


def update_tool_call(call, **members):
    return ToolCallProgress(session_update="tool_call_update", tool_call_id=call, **members)


def tool_diff_content(path, new_text, old_text=None):
    return FileEditToolCallContent(type="diff", path=path, new_text=new_text, old_text=old_text)


def text_block(text):
    return TextContentBlock(type="text", text=text)


def parse(text):
    try:
        return json.loads(text)
    except ValueError:
        return None


def as_json(value):
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


async def listen(port):
    from acp.http.asgi import create_asgi_app
    from hypercorn.asyncio import serve
    from hypercorn.config import Config

    listener = socket.create_server(("127.0.0.1", port))
    port = listener.getsockname()[1]
    config = Config()
    config.bind = [f"fd://{listener.detach()}"]
    config.loglevel = "WARNING"
    print(f"127.0.0.1:{port}", flush=True)
    end_of_input = asyncio.get_running_loop().run_in_executor(None, sys.stdin.buffer.read)
    await serve(create_asgi_app(lambda _: PeerAgent()), config, shutdown_trigger=lambda: end_of_input)


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["--listen", *port]:
            asyncio.run(listen(int(port[0]) if port else 0))
        case _:
            asyncio.run(run_agent(PeerAgent()))

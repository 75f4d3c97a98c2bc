"""An MCP client on the official Python SDK: takes the steps of a plan, and prints a line of JSON for each.

client.py [--answer DECISION] --plan JSON (-- COMMAND ARG... | --url URL --token TOKEN)
"""

import argparse
import asyncio
import json
import sys
from pathlib import Path

import anyio
import httpx2
from mcp import StdioServerParameters, types
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client


def show(**line):
    print(json.dumps(line, sort_keys=True), flush=True)


def told(result):
    text = "".join(block.text for block in result.content if block.type == "text")
    return {"error": bool(result.is_error), "text": text, "structured": result.structured_content}


async def step(client, step, updated):
    if "tools" in step:
        listed = (await client.list_tools()).tools
        hints = {tool.name: tool.annotations.read_only_hint for tool in listed}
        show(tools=hints)
    elif "call" in step:
        seen = []

        async def progress(done, total, message):
            seen.append(done)

        result = await client.call_tool(step["call"], step.get("arguments", {}), progress_callback=progress)
        show(call=step["call"], progressed=bool(seen), **told(result))
    elif "cancel" in step:
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as group:

                async def watch():
                    while not Path(step["once"]).exists():
                        await anyio.sleep(0.02)
                    scope.cancel()

                group.start_soon(watch)
                await client.call_tool(step["cancel"], step.get("arguments", {}))
        show(cancelled=scope.cancelled_caught)
    elif "resources" in step:
        show(resources=[resource.uri for resource in (await client.list_resources()).resources])
    elif "read" in step:
        contents = (await client.read_resource(step["read"])).contents
        show(read=step["read"], text=contents[0].text)
    elif "subscribe" in step:
        await client.subscribe_resource(step["subscribe"])
        show(subscribed=step["subscribe"])
    elif "updated" in step:
        show(updated=await asyncio.wait_for(updated.get(), 20))
    elif "put" in step:
        Path(step["put"]).write_text(step["text"])
    else:
        raise ValueError(step)


async def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--plan", required=True)
    parser.add_argument("--answer")
    parser.add_argument("--url")
    parser.add_argument("--token")
    parser.add_argument("command", nargs="*")
    arguments = parser.parse_args()
    updated = asyncio.Queue()

    async def hears(message):
        if isinstance(message, types.ResourceUpdatedNotification):
            updated.put_nowait(message.params.uri)

    async def answers(context, params):
        return types.ElicitResult(action="accept", content={"decision": arguments.answer})

    options = {"message_handler": hears, "elicitation_callback": answers if arguments.answer else None}
    if arguments.url:
        headers = {"Authorization": f"Bearer {arguments.token}"}
        http = httpx2.AsyncClient(headers=headers, timeout=60)
        server = streamable_http_client(arguments.url, http_client=http)
    else:
        server = StdioServerParameters(command=arguments.command[0], args=arguments.command[1:])
    async with Client(server, **options) as client:
        show(server=client.server_info.name, protocol=client.protocol_version)
        for each in json.loads(arguments.plan):
            try:
                await step(client, each, updated)
            except Exception as error:  # noqa: BLE001, the test wants to see it
                show(refused=str(error))


asyncio.run(main())
sys.exit(0)

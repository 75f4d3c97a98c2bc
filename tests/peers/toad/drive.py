"""Drives Toad without a terminal: `drive.py AGENT` starts it with an agent's command, in the current directory.

Two prompts are typed. Each question is answered with "allow once". The second turn is cancelled once the file
`started` exists. Toad's own command line makes the app, and keys do the rest, as a user's would.
"""

import __future__

import asyncio
import concurrent.futures
import sys
import time
import typing
from importlib.abc import MetaPathFinder
from importlib.machinery import PathFinder, SourceFileLoader
from pathlib import Path

TIMEOUT_SECONDS = 60


class LateAnnotations(SourceFileLoader):
    """Loads a module whose annotations may name what follows.

    Toad requires Python 3.14, which evaluates annotations late. Its methods for the agent are called by the types of
    their parameters, so those are evaluated once the module is there.
    """

    def source_to_code(self, data, path, *, _optimize=-1):
        flags = __future__.annotations.compiler_flag
        return compile(data, path, "exec", flags, dont_inherit=True, optimize=_optimize)

    def exec_module(self, module):
        super().exec_module(module)
        for owner in vars(module).values():
            for method in vars(owner).values() if isinstance(owner, type) else ():
                if hasattr(method, "_jsonrpc_expose"):
                    method.__annotations__ = typing.get_type_hints(method)


class ToadFinder(MetaPathFinder):
    """Finds Toad's modules for `LateAnnotations`."""

    def find_spec(self, name, path, target=None):
        spec = PathFinder.find_spec(name, path, target) if name.split(".")[0] == "toad" else None
        if spec is not None and isinstance(spec.loader, SourceFileLoader):
            spec.loader = LateAnnotations(spec.loader.name, spec.loader.path)
            # What other loads of Toad compiled is not used, and nothing is left for them.
            spec.cached = None
        return spec


if sys.version_info < (3, 14):
    # This and the pool that searches paths are all that it lacks on Python 3.13.
    sys.meta_path.insert(0, ToadFinder())
    concurrent.futures.InterpreterPoolExecutor = concurrent.futures.ThreadPoolExecutor
    sys.dont_write_bytecode = True

from xdg_base_dirs import xdg_config_home  # noqa: E402

from toad import cli, version  # noqa: E402
from toad.app import ToadApp  # noqa: E402
from toad.screens.permissions import PermissionsScreen  # noqa: E402
from toad.widgets.conversation import Conversation  # noqa: E402
from toad.widgets.question import Question  # noqa: E402


class Driver:
    """The user."""

    def __init__(self, pilot):
        self.pilot = pilot
        self.app = pilot.app

    @property
    def conversation(self):
        """The conversation, which lies below the screen of a question."""
        for screen in self.app.screen_stack:
            if found := screen.query(Conversation):
                return found.first()
        return None

    async def wait_for(self, what, condition):
        """Waits for a condition, and answers the questions meanwhile."""
        until = time.monotonic() + TIMEOUT_SECONDS
        while not condition():
            if time.monotonic() > until:
                raise SystemExit(f"waited in vain for {what}")
            await self.pilot.pause(0.05)
            asks = isinstance(self.app.screen, PermissionsScreen)
            if asks or isinstance(self.app.focused, Question) and not self.app.focused.selected:
                await self.pilot.press("a")

    async def prompt(self, text):
        """Types a prompt, and returns once the turn has begun."""
        self.conversation.focus_prompt()
        await self.pilot.press(*(" " if key == " " else key for key in text), "enter")
        await self.wait_for("the turn", lambda: self.conversation.turn == "agent")

    async def run(self):
        await self.wait_for("the agent", lambda: self.conversation and self.conversation.agent_ready)
        await self.prompt("go on")
        await self.wait_for("the end", lambda: self.conversation.turn == "client")
        await self.prompt("go on")
        await self.wait_for("the command", Path("started").exists)
        await self.pilot.press("escape", "escape")
        await self.wait_for("the end", lambda: self.conversation.turn == "client")


def run_headless(app, *_args, **_kwargs):
    async def run():
        async with app.run_test(size=(120, 40)) as pilot:
            await Driver(pilot).run()

    asyncio.run(run())


async def no_version_check():
    raise version.VersionCheckFailed("not in a test")


# Toad asks its makers for the newest version, and reports statistics to them.
version.check_version = no_version_check
settings = xdg_config_home() / "toad/toad.json"
settings.parent.mkdir(parents=True, exist_ok=True)
settings.write_text('{"statistics": {"allow_collect": false}}')
ToadApp.run = run_headless

cli.main(["acp", sys.argv[1], str(Path.cwd())])

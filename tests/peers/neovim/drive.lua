-- Drives a plugin of Neovim without a terminal: `nvim -l drive.lua PLUGIN AGENT`, in the project's directory.
--
-- The plugins are directories in BOWLINE_NVIM_PLUGINS, each named as its repository; what follows an @ is the version.
-- The file a.txt is opened and changed, and not saved. Two prompts are sent. Each question is answered with "allow
-- once". The second turn is cancelled once the file `started` exists.

local plugin, agent = _G.arg[1], _G.arg[2]
local TIMEOUT_SECONDS = 60

local version = ""
for name in vim.fs.dir(vim.env.BOWLINE_NVIM_PLUGINS) do
  vim.opt.runtimepath:append(vim.fs.joinpath(vim.env.BOWLINE_NVIM_PLUGINS, name))
  if vim.startswith(name, plugin) then
    version = name:match("@(.*)$") or ""
  end
end

-- What a plugin needs: `start` opens a chat, `prompt` sends a text, `is_busy` tells whether a turn runs, `answer`
-- presses the key of the question that is shown, if one is, and `cancel` cancels the turn.
local drivers = {}

-- Calls what a key is mapped to in a buffer.
local function press(buffer, key)
  local map = vim.api.nvim_buf_call(buffer, function()
    return vim.fn.maparg(key, "n", false, true)
  end)
  if map.buffer == 1 and map.callback then
    map.callback()
  end
end

drivers["codecompanion.nvim"] = function()
  local driver = { turns = 0, done = 0 }

  function driver.start()
    local adapter = function()
      local adapters = require("codecompanion.adapters")
      return adapters.extend("mistral_vibe", { name = "bowline", commands = { default = { agent } } })
    end
    require("codecompanion").setup({
      adapters = { acp = { bowline = adapter } },
      interactions = { chat = { adapter = "bowline" } },
    })
    vim.api.nvim_create_autocmd("User", {
      pattern = "CodeCompanionChatDone",
      callback = function()
        driver.done = driver.done + 1
      end,
    })
    driver.chat = require("codecompanion").chat()
    driver.accept = require("codecompanion.interactions.chat.tools.labels").keymaps().accept
  end

  function driver.prompt(text)
    driver.turns = driver.turns + 1
    driver.chat:add_buf_message({ role = "user", content = text })
    driver.chat:submit()
  end

  function driver.is_busy()
    return driver.done < driver.turns
  end

  function driver.answer()
    press(driver.chat.bufnr, driver.accept)
  end

  function driver.cancel()
    driver.chat:stop()
  end

  return driver
end

drivers["agentic.nvim"] = function()
  local driver = { turns = 0, session = nil }

  function driver.start()
    -- It gives the agent no other variables.
    local provider = { command = agent, args = {}, env = { HOME = vim.env.HOME } }
    require("agentic").setup({ provider = "bowline", acp_providers = { bowline = provider } })
    -- `setup` turns it on, and its log file cannot be written here.
    require("agentic.config").debug = false
    driver.session = require("agentic.session_manager"):new(vim.api.nvim_get_current_tabpage())
    driver.wait_for("the session", function()
      return driver.session.session_id
    end)
    local send = driver.session.agent.send_prompt
    driver.session.agent.send_prompt = function(self, session, prompt, callback)
      driver.turns = driver.turns + 1
      send(self, session, prompt, function(...)
        driver.turns = driver.turns - 1
        callback(...)
      end)
    end
  end

  function driver.prompt(text)
    vim.api.nvim_buf_set_lines(driver.session.widget.buf_nrs.input, 0, -1, false, { text })
    driver.session.widget:_submit_input()
  end

  function driver.is_busy()
    return driver.turns > 0
  end

  function driver.answer()
    local request = driver.session.permission_manager.current_request
    for number, option in pairs(request and request.option_mapping or {}) do
      for _, offered in ipairs(request.request.options) do
        if offered.optionId == option and offered.kind == "allow_once" then
          return press(driver.session.widget.buf_nrs.chat, tostring(number))
        end
      end
    end
  end

  function driver.cancel()
    driver.session:_cancel_session()
  end

  return driver
end

local driver = drivers[plugin]()

function driver.wait_for(what, condition)
  local until_time = vim.uv.now() + TIMEOUT_SECONDS * 1000
  while not condition() do
    if vim.uv.now() > until_time then
      error("waited in vain for " .. what)
    end
    vim.wait(50)
    if driver.is_busy() then
      driver.answer()
    end
  end
end

local function run()
  vim.cmd.edit("a.txt")
  vim.api.nvim_buf_set_lines(0, -1, -1, false, { "not saved yet" })
  vim.cmd.new()
  driver.start()
  driver.prompt("go on")
  driver.wait_for("the end", function()
    return not driver.is_busy()
  end)
  driver.prompt("go on")
  driver.wait_for("the command", function()
    return vim.uv.fs_stat("started")
  end)
  driver.cancel()
  driver.wait_for("the end", function()
    return not driver.is_busy()
  end)
  -- What a plugin sends when it cancels, and the agent's answer, pass after it has ended the turn for itself.
  vim.wait(1000)
  vim.fn.writefile({ version }, vim.fs.joinpath(vim.env.HOME, "version"))
end

local ok, reason = xpcall(run, debug.traceback)
if not ok then
  io.stderr:write(reason .. "\n")
end
vim.cmd(ok and "qall!" or "cquit!")

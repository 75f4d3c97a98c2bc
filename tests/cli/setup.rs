//! Tests of `bowline setup`: its output, and its effects on existing files.

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::PathBuf;

use expect_test::{Expect, expect};

use crate::fixture::CliFixture;

fn check(arguments: &[&str], expected: Expect) {
    expected.assert_eq(&CliFixture::new().run(arguments));
}

/// A home with Zed's settings in it.
fn fixture_with_settings(text: &str) -> (CliFixture, PathBuf) {
    let scene = CliFixture::new();
    let file = scene.home().join(".config/zed/settings.json");
    std::fs::create_dir_all(file.parent().unwrap()).unwrap();
    std::fs::write(&file, text).unwrap();
    (scene, file)
}

/// Returns the files beside a file, with their modes.
fn list_siblings(file: &std::path::Path) -> String {
    let mut found: Vec<String> = std::fs::read_dir(file.parent().unwrap())
        .unwrap()
        .map(|entry| {
            let entry = entry.unwrap();
            let mode = entry.path().symlink_metadata().unwrap().permissions().mode() & 0o777;
            format!("{mode:o} {}\n", entry.file_name().display())
        })
        .collect();
    found.sort();
    found.concat()
}

#[test]
fn each_editor_is_told_in_its_own_way() {
    check(
        &["setup", "zed"],
        expect![[r#"
        Zed: add this to $HOME/.config/zed/settings.json

        {
          "agent_servers": {
            "Bowline": {
              "type": "custom",
              "command": "$BOWLINE",
              "args": ["agent", "--shell"],
              "env": {}
            }
          }
        }

        To have it added: bowline setup zed --write
        Then open Zed's agent panel and begin a thread with Bowline. What the two say to each other: `dev: open acp logs`.
        --- 0
    "#]],
    );
    check(
        &["setup", "jetbrains", "--model", "anthropic/claude-sonnet-4-5"],
        expect![[r#"
            JetBrains IDEs: add this to $HOME/.jetbrains/acp.json

            {
              "agent_servers": {
                "Bowline": {
                  "command": "$BOWLINE",
                  "args": ["agent", "--shell", "--model", "anthropic/claude-sonnet-4-5"],
                  "env": {}
                }
              }
            }

            To have it added: bowline setup jetbrains --write --model anthropic/claude-sonnet-4-5
            Then choose Bowline in the AI Chat tool window.
            --- 0
        "#]],
    );
    check(
        &["setup", "neovim"],
        expect![[r#"
        Neovim: add one of these to the set-up of the plugin, as in ~/.config/nvim/init.lua

        With CodeCompanion.nvim:

        require("codecompanion").setup({
          adapters = {
            acp = {
              bowline = function()
                return require("codecompanion.adapters").extend("opencode", {
                  name = "bowline",
                  formatted_name = "Bowline",
                  commands = { default = { "$BOWLINE", "agent", "--shell" } },
                })
              end,
            },
          },
        })

        With avante.nvim:

        require("avante").setup({
          provider = "bowline",
          acp_providers = {
            ["bowline"] = {
              command = "$BOWLINE",
              args = { "agent", "--shell" },
            },
          },
        })

        Then `:CodeCompanionChat adapter=bowline`, or `:AvanteAsk`.
        --- 0
    "#]],
    );
    check(
        &["setup", "emacs", "--agent-name", "My Bowline", "--no-shell"],
        expect![[r#"
        Emacs: install agent-shell, and add this to your init file, as in ~/.emacs.d/init.el

        (with-eval-after-load 'agent-shell
          (add-to-list 'agent-shell-agent-configs
                       (agent-shell-make-agent-config
                        :identifier 'my-bowline
                        :mode-line-name "My Bowline"
                        :buffer-name "My Bowline"
                        :shell-prompt "My Bowline> "
                        :shell-prompt-regexp (regexp-quote "My Bowline> ")
                        :client-maker (lambda (buffer)
                                        (acp-make-client :command "$BOWLINE"
                                                         :command-params '("agent")
                                                         :context-buffer buffer)))))

        Then `M-x agent-shell`, and choose My Bowline.
        --- 0
    "#]],
    );
    check(
        &["setup", "vscode"],
        expect![[r#"
        Visual Studio Code: install the extension ACP Client (formulahendry.acp-client), and add this to $HOME/.config/Code/User/settings.json

        {
          "acp.agents": {
            "Bowline": {
              "command": "$BOWLINE",
              "args": ["agent", "--shell"],
              "env": {}
            }
          }
        }

        To have it added: bowline setup vscode --write
        Then run `ACP: Connect to Agent` from the command palette, and choose Bowline.
        --- 0
    "#]],
    );
}

#[test]
fn a_file_that_is_not_there_is_made_and_then_there_is_nothing_to_do() {
    let scene = CliFixture::new();
    expect![[r#"
        diff --git a$HOME/.jetbrains/acp.json b$HOME/.jetbrains/acp.json
        new file mode 100644
        --- /dev/null
        +++ b$HOME/.jetbrains/acp.json
        @@ -0,0 +1,9 @@
        +{
        +  "agent_servers": {
        +    "Bowline": {
        +      "command": "$BOWLINE",
        +      "args": ["agent", "--shell"],
        +      "env": {}
        +    }
        +  }
        +}
        --- 0
    "#]]
    .assert_eq(&scene.run(&["setup", "jetbrains", "--dry-run"]));
    assert!(!scene.home().join(".jetbrains").exists());
    expect![[r#"
        Added Bowline to $HOME/.jetbrains/acp.json
        Then choose Bowline in the AI Chat tool window.
        --- 0
    "#]]
    .assert_eq(&scene.run(&["setup", "jetbrains", "--write"]));
    let file = scene.home().join(".jetbrains/acp.json");
    expect![[r#"
        {
          "agent_servers": {
            "Bowline": {
              "command": "$BOWLINE",
              "args": ["agent", "--shell"],
              "env": {}
            }
          }
        }
    "#]]
    .assert_eq(&scene.normalize(&std::fs::read_to_string(&file).unwrap()));
    expect![[r#"
        Nothing to do: $HOME/.jetbrains/acp.json has it already.
        --- 0
    "#]]
    .assert_eq(&scene.run(&["setup", "jetbrains", "--write"]));
    expect![[r#"
        600 acp.json
    "#]]
    .assert_eq(&list_siblings(&file));
}

const ZED_SETTINGS: &str = r#"// Zed settings
//
{
    "vim_mode": true, // since 1998
    "agent_servers": {
        // tried it once
        "Other": { "command": "other", "args": ["acp",], },
    },

    /* keep */ "theme": "One Dark"
}
"#;

#[test]
fn what_a_person_wrote_stays() {
    let (scene, file) = fixture_with_settings(ZED_SETTINGS);
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o640)).unwrap();
    // Root may set up other users' editors: the owner of a file is kept.
    let is_root = std::os::unix::fs::chown(&file, Some(12_345), Some(54_321)).is_ok();
    expect![[r#"
        diff --git a$HOME/.config/zed/settings.json b$HOME/.config/zed/settings.json
        --- a$HOME/.config/zed/settings.json
        +++ b$HOME/.config/zed/settings.json
        @@ -5,6 +5,12 @@
             "agent_servers": {
                 // tried it once
                 "Other": { "command": "other", "args": ["acp",], },
        +        "Bowline": {
        +            "type": "custom",
        +            "command": "$BOWLINE",
        +            "args": ["agent", "--shell"],
        +            "env": {},
        +        },
             },

             /* keep */ "theme": "One Dark"
        --- 0
    "#]]
    .assert_eq(&scene.run(&["setup", "zed", "--write", "--dry-run"]).replace("\n \n", "\n\n"));
    assert_eq!(std::fs::read_to_string(&file).unwrap(), ZED_SETTINGS);
    expect![[r#"
        Added Bowline to $HOME/.config/zed/settings.json
        As it was: $HOME/.config/zed/settings.json.before-bowline
        Then open Zed's agent panel and begin a thread with Bowline. What the two say to each other: `dev: open acp logs`.
        --- 0
    "#]].assert_eq(&scene.run(&["setup", "zed", "--write"]));
    expect![[r#"
        // Zed settings
        //
        {
            "vim_mode": true, // since 1998
            "agent_servers": {
                // tried it once
                "Other": { "command": "other", "args": ["acp",], },
                "Bowline": {
                    "type": "custom",
                    "command": "$BOWLINE",
                    "args": ["agent", "--shell"],
                    "env": {},
                },
            },

            /* keep */ "theme": "One Dark"
        }
    "#]]
    .assert_eq(&scene.normalize(&std::fs::read_to_string(&file).unwrap()));
    expect![[r#"
        640 settings.json
        640 settings.json.before-bowline
    "#]]
    .assert_eq(&list_siblings(&file));
    let copy = file.with_file_name("settings.json.before-bowline");
    assert_eq!(std::fs::read_to_string(&copy).unwrap(), ZED_SETTINGS);
    for path in [&file, &copy] {
        let metadata = path.metadata().unwrap();
        assert!(!is_root || (metadata.uid(), metadata.gid()) == (12_345, 54_321), "{path:?}");
    }
    // A second agent beside the first; its backup does not replace the first one.
    expect![[r#"
        Added Offline to $HOME/.config/zed/settings.json
        As it was: $HOME/.config/zed/settings.json.before-bowline-2
        Then open Zed's agent panel and begin a thread with Offline. What the two say to each other: `dev: open acp logs`.
        --- 0
    "#]].assert_eq(&scene.run(&[
        "setup",
        "zed",
        "--write",
        "--agent-name",
        "Offline",
        "--model",
        "offline",
    ]));
    assert_eq!(std::fs::read_to_string(&copy).unwrap(), ZED_SETTINGS);
}

#[test]
fn a_link_to_the_file_stays_a_link() {
    let (scene, file) = fixture_with_settings("");
    let own = scene.base().join("dotfiles.json");
    std::fs::write(&own, "{}\n").unwrap();
    std::fs::remove_file(&file).unwrap();
    std::os::unix::fs::symlink(&own, &file).unwrap();
    expect![[r#"
        Added Bowline to $HOME/.config/zed/settings.json
        As it was: $BASE/dotfiles.json.before-bowline
        Then open Zed's agent panel and begin a thread with Bowline. What the two say to each other: `dev: open acp logs`.
        --- 0
    "#]].assert_eq(&scene.run(&["setup", "zed", "--write"]));
    assert_eq!(std::fs::read_link(&file).unwrap(), own);
    assert!(std::fs::read_to_string(&own).unwrap().contains("agent_servers"));
    std::fs::remove_file(&own).unwrap();
    expect![[r#"
        --- stderr
        bowline: nothing was written to $HOME/.config/zed/settings.json: it is a link that leads nowhere
        --- 1
    "#]]
    .assert_eq(&last_lines(&scene.run(&["setup", "zed", "--write"])));
}

/// Returns stderr and the exit status: the output above is the same as without `--write`.
fn last_lines(told: &str) -> String {
    told[told.find("--- stderr").unwrap_or_default()..].to_owned()
}

#[test]
fn what_cannot_be_understood_is_left_alone_and_the_way_by_hand_is_shown() {
    for (text, expected) in [
        (
            "{ \"theme\": One Dark }",
            expect![[r#"
                --- stderr
                bowline: nothing was written to $HOME/.config/zed/settings.json: line 1, column 12: Unexpected word
                --- 1
            "#]],
        ),
        (
            "{\"agent_servers\": {\"Bowline\": {\"command\": \"/elsewhere/bowline\"}}}",
            expect![[r#"
                --- stderr
                bowline: nothing was written to $HOME/.config/zed/settings.json: "Bowline" is there already, and says something else: remove it, or choose another --agent-name
                --- 1
            "#]],
        ),
        (
            "[]",
            expect![[r#"
                --- stderr
                bowline: nothing was written to $HOME/.config/zed/settings.json: it is no JSON object
                --- 1
            "#]],
        ),
    ] {
        let (scene, file) = fixture_with_settings(text);
        let told = scene.run(&["setup", "zed", "--write"]);
        assert!(told.starts_with("Zed: add this to $HOME/.config/zed/settings.json"), "{told}");
        expected.assert_eq(&last_lines(&told));
        assert_eq!(std::fs::read_to_string(&file).unwrap(), text);
        assert_eq!(list_siblings(&file).lines().count(), 1);
    }
    let (scene, file) = fixture_with_settings("");
    std::fs::write(&file, [b'{', 0xff, b'}']).unwrap();
    expect![[r#"
        --- stderr
        bowline: nothing was written to $HOME/.config/zed/settings.json: it is not UTF-8
        --- 1
    "#]]
    .assert_eq(&last_lines(&scene.run(&["setup", "zed", "--write"])));
    std::fs::remove_file(&file).unwrap();
    std::fs::create_dir(&file).unwrap();
    expect![[r#"
        --- stderr
        bowline: nothing was written to $HOME/.config/zed/settings.json: it is not a regular file
        --- 1
    "#]]
    .assert_eq(&last_lines(&scene.run(&["setup", "zed", "--write"])));
}

#[test]
fn programs_are_not_edited() {
    let scene = CliFixture::new();
    expect![[r#"
        --- stderr
        bowline: Neovim is configured by a program in Lua, which only you can change safely: add what is above
        --- 1
    "#]]
    .assert_eq(&last_lines(&scene.run(&["setup", "neovim", "--write"])));
    expect![[r#"
        --- stderr
        bowline: Emacs is configured by a program in Emacs Lisp, which only you can change safely: add what is above
        --- 1
    "#]].assert_eq(&last_lines(&scene.run(&["setup", "emacs", "--dry-run"])));
}

#[test]
fn another_file_can_be_named() {
    let scene = CliFixture::new();
    scene.write_file("codium.json", "{\n\t\"editor.fontSize\": 12\n}\n");
    expect![[r#"
        Added Bowline to codium.json
        As it was: $PROJECT/codium.json.before-bowline
        Then run `ACP: Connect to Agent` from the command palette, and choose Bowline.
        --- 0
    "#]]
    .assert_eq(&scene.run(&["setup", "vscode", "--write", "--file", "codium.json"]));
    expect![[r#"
        {
        	"editor.fontSize": 12,
        	"acp.agents": {
        		"Bowline": {
        			"command": "$BOWLINE",
        			"args": ["agent", "--shell"],
        			"env": {}
        		}
        	}
        }
    "#]]
    .assert_eq(&scene.normalize(&scene.read_file("codium.json")));
}

#[test]
fn wrong_use_is_one_clear_line() {
    check(
        &["setup", "zed", "--agent-name", " "],
        expect![[r#"
        --- stderr
        bowline: --agent-name takes one line of at most 60 characters
        --- 2
    "#]],
    );
    check(
        &["setup", "zed", "--model", ""],
        expect![[r#"
        --- stderr
        bowline: --model takes a name such as offline or anthropic/claude-sonnet-4-5
        --- 2
    "#]],
    );
    let scene = CliFixture::new();
    let mut command = scene.command(&["setup", "zed", "--write"]);
    command.env_remove("HOME");
    let output = scene.run_command(command, "");
    expect![[r#"
        --- stderr
        bowline: set HOME to an absolute path, or name the editor's file with --file
        --- 1
    "#]]
    .assert_eq(&last_lines(&scene.describe_output(&output)));
}

#[test]
fn a_link_in_the_path_is_what_editors_start() {
    let scene = CliFixture::new();
    let bin = scene.home().join("bin");
    std::fs::create_dir(&bin).unwrap();
    let link = bin.join("bowline");
    std::os::unix::fs::symlink(crate::fixture::bowline(), &link).unwrap();
    let told = |search: &std::path::Path| {
        let mut command = scene.command(&["setup", "jetbrains"]);
        command.env("PATH", search);
        let told = scene.describe_output(&scene.run_command(command, ""));
        told.lines()
            .filter(|line| line.contains("command"))
            .map(|line| format!("{}\n", line.trim()))
            .collect::<String>()
    };
    let mut lines = told(&bin);
    // A relative path is not used.
    lines += &told(std::path::Path::new("../home/bin"));
    // Nor is one that leads to another program.
    std::fs::remove_file(&link).unwrap();
    std::os::unix::fs::symlink("/bin/sh", &link).unwrap();
    lines += &told(&bin);
    expect![[r#"
        "command": "$HOME/bin/bowline",
        "command": "$BOWLINE",
        "command": "$BOWLINE",
    "#]]
    .assert_eq(&lines);
}

/// A home with a program `opencode`, and nothing else in the search path.
fn fixture_with_opencode() -> (CliFixture, impl Fn(&CliFixture, &[&str]) -> String) {
    let scene = CliFixture::new();
    let bin = scene.home().join("bin");
    std::fs::create_dir(&bin).unwrap();
    std::fs::write(bin.join("opencode"), "").unwrap();
    std::fs::set_permissions(bin.join("opencode"), std::fs::Permissions::from_mode(0o755)).unwrap();
    let run = move |scene: &CliFixture, arguments: &[&str]| {
        let mut command = scene.command(arguments);
        command.env("PATH", &bin);
        scene.describe_output(&scene.run_command(command, ""))
    };
    (scene, run)
}

#[test]
fn bowline_stands_between_an_editor_and_another_agent() {
    let (scene, run) = fixture_with_opencode();
    expect![[r#"
        Zed: add this to $HOME/.config/zed/settings.json

        {
          "agent_servers": {
            "opencode via Bowline": {
              "type": "custom",
              "command": "$BOWLINE",
              "args": ["proxy", "--", "$HOME/bin/opencode", "acp"],
              "env": {}
            }
          }
        }

        To have it added: bowline setup zed --write --proxy 'opencode acp'
        Then open Zed's agent panel and begin a thread with opencode via Bowline. What the two say to each other: `dev: open acp logs`.
        --- 0
    "#]].assert_eq(&run(&scene, &["setup", "zed", "--proxy", "opencode acp"]));
    expect![[r#"
        Emacs: install agent-shell, and add this to your init file, as in ~/.emacs.d/init.el

        (with-eval-after-load 'agent-shell
          (add-to-list 'agent-shell-agent-configs
                       (agent-shell-make-agent-config
                        :identifier 'oc
                        :mode-line-name "OC"
                        :buffer-name "OC"
                        :shell-prompt "OC> "
                        :shell-prompt-regexp (regexp-quote "OC> ")
                        :client-maker (lambda (buffer)
                                        (acp-make-client :command "$BOWLINE"
                                                         :command-params '("proxy" "--" "$HOME/bin/opencode" "acp")
                                                         :context-buffer buffer)))))

        Then `M-x agent-shell`, and choose OC.
        --- 0
    "#]].assert_eq(&run(&scene, &["setup", "emacs", "--proxy", "opencode acp", "--agent-name", "OC"]));
    expect![[r#"
        Added opencode via Bowline to $HOME/.config/zed/settings.json
        Then open Zed's agent panel and begin a thread with opencode via Bowline. What the two say to each other: `dev: open acp logs`.
        --- 0
    "#]].assert_eq(&run(&scene, &["setup", "zed", "--proxy", "opencode acp", "--write"]));
    expect![[r#"
        Nothing to do: $HOME/.config/zed/settings.json has it already.
        --- 0
    "#]]
    .assert_eq(&run(&scene, &["setup", "zed", "--proxy", "opencode acp", "--write"]));
    // Both can be configured at once.
    expect![[r#"
        Added Bowline to $HOME/.config/zed/settings.json
        As it was: $HOME/.config/zed/settings.json.before-bowline
        Then open Zed's agent panel and begin a thread with Bowline. What the two say to each other: `dev: open acp logs`.
        --- 0
    "#]].assert_eq(&run(&scene, &["setup", "zed", "--write"]));
    expect![[r#"
        Removed opencode via Bowline from $HOME/.config/zed/settings.json
        As it was: $HOME/.config/zed/settings.json.before-bowline-2
        --- 0
    "#]]
    .assert_eq(&run(&scene, &["setup", "zed", "--proxy", "opencode acp", "--remove"]));
    let file = scene.home().join(".config/zed/settings.json");
    expect![[r#"
        {
          "agent_servers": {
            "Bowline": {
              "type": "custom",
              "command": "$BOWLINE",
              "args": ["agent", "--shell"],
              "env": {}
            }
          }
        }
    "#]]
    .assert_eq(&scene.normalize(&std::fs::read_to_string(file).unwrap()));
    expect![[r#"
        --- stderr
        bowline: there is no program "no-such-agent": install it first, or give its path
        --- 1
    "#]]
    .assert_eq(&run(&scene, &["setup", "zed", "--proxy", "no-such-agent"]));
    expect![[r#"
        --- stderr
        bowline: a quote is not closed in the command 'opencode
        --- 2
    "#]]
    .assert_eq(&run(&scene, &["setup", "zed", "--proxy", "'opencode"]));
    expect![[r#"
        --- stderr
        bowline: the argument '--proxy <COMMAND>' cannot be used with '--model <NAME>' (see --help)
        --- 2
    "#]]
    .assert_eq(&run(&scene, &["setup", "zed", "--proxy", "opencode acp", "--model", "offline"]));
}

#[test]
fn mcp_clients_are_told_of_a_server() {
    let scene = CliFixture::new();
    for client in ["claude-desktop", "claude-code", "cursor"] {
        let told = scene.run(&["setup", client]);
        let expected = match client {
            "claude-desktop" => expect![[r#"
                Claude Desktop: add this to $HOME/.config/Claude/claude_desktop_config.json

                {
                  "mcpServers": {
                    "bowline": {
                      "command": "$BOWLINE",
                      "args": ["mcp", "--cwd", "$PROJECT", "--approve", "edits"],
                      "env": {}
                    }
                  }
                }

                To have it added: bowline setup claude-desktop --write
                Then quit Claude Desktop, and start it again.
                --- 0
            "#]],
            "claude-code" => expect![[r#"
                Claude Code: add this to $HOME/.claude.json

                {
                  "mcpServers": {
                    "bowline": {
                      "type": "stdio",
                      "command": "$BOWLINE",
                      "args": ["mcp", "--approve", "edits"],
                      "env": {}
                    }
                  }
                }

                Or have Claude Code do it:

                claude mcp add --scope user bowline -- $BOWLINE mcp --approve edits

                To have it added: bowline setup claude-code --write
                Then start `claude` in your project; `/mcp` shows whether it is connected.
                --- 0
            "#]],
            _ => expect![[r#"
                Cursor: add this to $PROJECT/.cursor/mcp.json

                {
                  "mcpServers": {
                    "bowline": {
                      "command": "$BOWLINE",
                      "args": ["mcp", "--cwd", "${workspaceFolder}", "--approve", "edits"],
                      "env": {}
                    }
                  }
                }

                To have it added: bowline setup cursor --write
                Then switch bowline on in Cursor's settings, under Tools & MCP.
                --- 0
            "#]],
        };
        expected.assert_eq(&told);
    }
    expect![[r#"
        Visual Studio Code: add this to $HOME/.config/Code/User/mcp.json

        {
          "servers": {
            "bowline": {
              "type": "stdio",
              "command": "$BOWLINE",
              "args": ["mcp", "--cwd", "${workspaceFolder}", "--approve", "edits", "--no-terminal"],
              "env": {}
            }
          }
        }

        To have it added: bowline setup vscode --write --mcp --no-shell
        Then run `MCP: List Servers` from the command palette, and start bowline.
        --- 0
    "#]]
    .assert_eq(&scene.run(&["setup", "vscode", "--mcp", "--no-shell"]));
    expect![[r#"
        Added bowline to $PROJECT/.cursor/mcp.json
        Then switch bowline on in Cursor's settings, under Tools & MCP.
        --- 0
    "#]]
    .assert_eq(&scene.run(&["setup", "cursor", "--write"]));
    expect![[r#"
        {
          "mcpServers": {
            "bowline": {
              "command": "$BOWLINE",
              "args": ["mcp", "--cwd", "${workspaceFolder}", "--approve", "edits"],
              "env": {}
            }
          }
        }
    "#]]
    .assert_eq(&scene.normalize(&scene.read_file(".cursor/mcp.json")));
    expect![[r#"
        --- stderr
        bowline: --mcp is not for Zed, where Bowline is an agent: use `bowline setup zed`
        --- 2
    "#]]
    .assert_eq(&scene.run(&["setup", "zed", "--mcp"]));
    expect![[r#"
        --- stderr
        bowline: --proxy is for editors that start agents; Claude Code is an MCP client
        --- 2
    "#]]
    .assert_eq(&scene.run(&["setup", "claude-code", "--proxy", "opencode acp"]));
}

#[test]
fn what_was_added_is_removed_and_the_rest_stays() {
    let before = "{\n  // mine\n  \"theme\": \"One\",\n  \"agent_servers\": {\n    \"Other\": {\"command\": \"x\"}, // keep\n  }\n}\n";
    let (scene, file) = fixture_with_settings(before);
    scene.run(&["setup", "zed", "--write"]);
    expect![[r#"
        diff --git a$HOME/.config/zed/settings.json b$HOME/.config/zed/settings.json
        --- a$HOME/.config/zed/settings.json
        +++ b$HOME/.config/zed/settings.json
        @@ -3,11 +3,5 @@
           "theme": "One",
           "agent_servers": {
             "Other": {"command": "x"}, // keep
        -    "Bowline": {
        -      "type": "custom",
        -      "command": "$BOWLINE",
        -      "args": ["agent", "--shell"],
        -      "env": {},
        -    },
           }
         }
        --- 0
    "#]]
    .assert_eq(&scene.run(&["setup", "zed", "--remove", "--dry-run"]));
    expect![[r#"
        Removed Bowline from $HOME/.config/zed/settings.json
        As it was: $HOME/.config/zed/settings.json.before-bowline-2
        --- 0
    "#]]
    .assert_eq(&scene.run(&["setup", "zed", "--remove"]));
    expect![[r#"
        {
          // mine
          "theme": "One",
          "agent_servers": {
            "Other": {"command": "x"}, // keep
          }
        }
    "#]]
    .assert_eq(&std::fs::read_to_string(&file).unwrap());
    expect![[r#"
        Nothing to do: $HOME/.config/zed/settings.json has no Bowline.
        --- 0
    "#]]
    .assert_eq(&scene.run(&["setup", "zed", "--remove"]));
    expect![[r#"
        --- stderr
        bowline: Neovim is configured by a program in Lua, which only you can change safely: remove what bowline setup neovim prints
        --- 1
    "#]].assert_eq(&last_lines(&scene.run(&["setup", "neovim", "--remove"])));
    let foreign = r#"{"agent_servers": {"Bowline": {"command": "/usr/bin/other"}}}"#;
    std::fs::write(&file, foreign).unwrap();
    expect![[r#"
        --- stderr
        bowline: nothing was written to $HOME/.config/zed/settings.json: "Bowline" starts another program: remove it by hand, or name Bowline's entry with --agent-name
        --- 1
    "#]].assert_eq(&scene.run(&["setup", "zed", "--remove"]));
    assert_eq!(std::fs::read_to_string(&file).unwrap(), foreign);
    std::fs::write(&file, "{ broken").unwrap();
    expect![[r#"
        --- stderr
        bowline: nothing was written to $HOME/.config/zed/settings.json: line 1, column 3: Expected string for object property
        --- 1
    "#]].assert_eq(&scene.run(&["setup", "zed", "--remove"]));
}

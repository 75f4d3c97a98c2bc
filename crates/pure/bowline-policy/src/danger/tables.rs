//! Tables of dangerous programs and variables.

use super::DangerSeverity::{self, Grave, Mild, Serious};

pub(super) const SHELLS: &[&str] = &["sh", "bash", "zsh", "dash", "ksh", "fish"];
/// Programs that run another program: their first non-option word is its name.
pub(super) const WRAPPERS: &[&str] = &[
    "env", "nohup", "time", "exec", "command", "builtin", "nice", "ionice", "timeout", "stdbuf", "setsid",
    "xargs", "then", "do", "{", "else", "!",
];

/// Dangers identified by the program name alone.
pub(super) const DANGEROUS_PROGRAMS: &[(&[&str], DangerSeverity, &str)] = &[
    (&["sudo", "doas", "su", "pkexec", "runas"], Grave, "runs with the rights of another user"),
    (
        &["mkfs", "fdisk", "sfdisk", "parted", "wipefs", "mkswap", "blkdiscard"],
        Grave,
        "formats or divides a disk",
    ),
    (&["shutdown", "reboot", "halt", "poweroff"], Grave, "ends this machine's work"),
    (&["insmod", "modprobe", "rmmod"], Grave, "changes the running kernel"),
    (
        &["useradd", "usermod", "userdel", "passwd", "chpasswd", "visudo"],
        Grave,
        "changes who may use this machine",
    ),
    (&["iptables", "nft", "ufw"], Serious, "changes the firewall"),
    (&["mount", "umount"], Serious, "changes what is mounted"),
    (&["crontab", "at", "batch"], Serious, "makes something run later"),
    (&["launchctl", "service"], Serious, "changes the services of this machine"),
    (&["eval"], Serious, "runs text that it puts together"),
    (&["killall", "pkill"], Serious, "ends processes by their name"),
    (&["shred", "srm"], Serious, "destroys files for good"),
    (&["ssh", "scp", "sftp", "rsync", "telnet", "ftp"], Mild, "reaches another machine"),
];

/// Dangers identified by the program name and its first argument.
pub(super) const DANGEROUS_SUBCOMMANDS: &[(&[&str], &[&str], DangerSeverity, &str)] = &[
    (&["npm", "pnpm", "yarn", "cargo", "poetry", "uv"], &["publish"], Serious, "publishes a package"),
    (&["twine"], &["upload"], Serious, "publishes a package"),
    (&["gem", "docker", "podman"], &["push"], Serious, "publishes what was built"),
    (
        &[
            "npm", "pnpm", "yarn", "bun", "pip", "pip3", "pipx", "gem", "cargo", "go", "apt", "apt-get",
            "dnf", "yum", "brew", "uv", "poetry",
        ],
        &["install", "i", "add", "ci"],
        Mild,
        "installs packages, whose scripts run",
    ),
    (&["npx", "bunx", "uvx"], &[], Mild, "runs a package, which it may download first"),
    (&["gpg", "gpg2"], &["--export-secret-keys"], Serious, "puts out private keys"),
];

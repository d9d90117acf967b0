"""Arguments of the commands that operate the proxy: ``tower rotate``."""

from __future__ import annotations

from tower.cli import rotate
from tower.cli.parser import Commands, Parser, add_command
from tower.cli.values import output_option


def add_operation_commands(commands: Commands[Parser]) -> None:
    """Add ``rotate`` and its commands."""
    command = add_command(commands, "rotate", "replace keys and CAs of the proxy while old and new ones work")
    inner = command.add_subparsers(title="commands", metavar="COMMAND", required=True, parser_class=Parser)
    for target, (summary, more) in rotate.TARGETS.items():
        one = add_command(inner, target, summary, more)
        end = one.add_mutually_exclusive_group()
        end.add_argument("--after", metavar="DURATION", help="latest end, such as 30d (default: none)")
        end.add_argument("--now", action="store_true", help="finish now, even if something lacks the new key")
        end.add_argument(
            "--cancel", action="store_true", help="return to the old key (not once it is replaced)"
        )
        one.set_defaults(run=rotate.rotate, target=target)
    status = add_command(inner, "status", "show rotations and what they wait for")
    output_option(status, "table", "wide", "json", "yaml")
    status.set_defaults(run=rotate.status)

"""`penstock completion`."""

from __future__ import annotations

import click
from click.shell_completion import ShellComplete, get_completion_class

from penstock.cli import output
from penstock.cli.options import json_option


@click.command(
    "completion",
    epilog="""\b
Examples:
  penstock completion bash > ~/.local/share/bash-completion/completions/penstock
  penstock completion zsh > ~/.zfunc/_penstock
  penstock completion fish > ~/.config/fish/completions/penstock.fish
""",
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@json_option
def command(shell: str, as_json: bool) -> None:
    """Print a script that lets a shell complete commands, options and files."""
    from penstock.cli.program import program

    kind = get_completion_class(shell)
    assert kind is not None, "click knows these shells"
    # bash's own source() would first run bash to check its version.
    script = ShellComplete.source(kind(program, {}, "penstock", "_PENSTOCK_COMPLETE"))
    if as_json:
        output.emit({"shell": shell, "script": script})
    else:
        click.echo(script, nl=False)

"""Write the reference pages that follow from the code: the command line and the diagnostics.

Run it after changing one: `python scripts/generate_reference.py`. With `--check` it only says whether the pages are
current. The hooks and the conformance kit have `scripts/generate_hook_reference.py`.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import click

from torchscan.cli import main as torchscan
from torchscan.contract.diagnostics import CODES
from torchscan.plugins.records import REASONS as PLUGIN_REASONS
from torchscan.report.causes import REMEDIES
from torchscan_native.transformer.boundaries import BOUNDARIES
from torchscan_native.transformer.mask_values import REASONS as TOKEN_REASONS

ROOT = Path(__file__).resolve().parents[1]
REFERENCE = ROOT / "docs" / "reference"
LAYERS = ROOT / "handlers_native" / "torchscan_native" / "layers"

NOTE = "<!-- Written by scripts/generate_reference.py. Change the {source}. -->"


def table(head: tuple[str, ...], rows: Iterator[tuple[str, ...]]) -> str:
    """Return a Markdown table."""
    lines = [head, tuple("---" for _ in head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


# -- the command line ------------------------------------------------------------------------------------------------

COMMAND_LINE = """\
# Command line

{note}

`torchscan COMMAND --help` says the same as this page; every command has that option. `python -m torchscan` is the same
program. Results go to standard output, messages and progress to standard error.

{commands}
"""


def command_line() -> str:
    """Return the page about the command line."""
    context = click.Context(torchscan, info_name="torchscan")
    parts = [section(torchscan, context, "torchscan")]
    for name, command in commands(torchscan, context):
        parts.append(section(command, click.Context(command, parent=context, info_name=name), f"torchscan {name}"))
    note = NOTE.format(source="commands in torchscan/cli*.py")
    return COMMAND_LINE.format(note=note, commands="\n\n".join(parts))


def commands(group: click.Group, context: click.Context) -> Iterator[tuple[str, click.Command]]:
    """Yield the commands of a group by name, which it imports for that."""
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        yield name, command


def section(command: click.Command, context: click.Context, title: str) -> str:
    """Return the part about one command."""
    usage = " ".join([title, *command.collect_usage_pieces(context)])
    parts = [f"## {title}", f"```text\n{usage}\n```"]
    parts += [" ".join(text.split()) for text in (command.help or "").split("\n\n")]
    options = [parameter for parameter in command.params if isinstance(parameter, click.Option)]
    parts.append(table(("option", "meaning", "default"), (row(option) for option in options if not option.hidden)))
    if isinstance(command, click.Group):
        said = (
            (f"[`{name}`](#torchscan-{name})", " ".join((each.help or "").partition("\n\n")[0].split()))
            for name, each in commands(command, context)
        )
        parts.append(table(("command", "does"), said))
    return "\n\n".join(parts)


def row(option: click.Option) -> tuple[str, ...]:
    """Return what the table says about an option."""
    names = ", ".join(f"`{name}`" for name in (*option.opts, *option.secondary_opts))
    if isinstance(option.type, click.Choice):
        names += f" {' or '.join(f'`{choice}`' for choice in option.type.choices)}"
    elif not option.is_flag:
        names += f" `{option.metavar or option.type.name.upper().removesuffix(' RANGE')}`"
    meaning = " ".join((option.help or "").split())
    if option.multiple:
        meaning += " May be repeated." if "repeated" not in meaning else ""
    default = "" if option.is_flag or not option.show_default else f"`{option.default}`"
    return names, meaning, default


# -- the diagnostics -------------------------------------------------------------------------------------------------

DIAGNOSTICS = """\
# Diagnostics

{note}

Whatever is not complete has a diagnostic. Each has a `code` that programs can branch on, a `message` for people, and
where a code has several causes a machine-readable `reason`. [Read a partial result](../how-to/read-a-partial-result.md)
shows how to go from a number to its cause; the fields are described in [the wire schema](wire-schema.md#diagnostics).

## Codes

{codes}

## Native Transformer boundaries

The `reason` of `unsupported_native_call`, for the six types of
[the Transformer derivation](../derivations/transformer.md). Outside of a boundary the affected metrics are unavailable,
never a number. The same reasons make the [token relation](../explanation/token-relations.md) of such a call
unavailable.

{boundaries}

## Layer reasons

The `reason` of `unavailable_module_metric` for the other layers of `torch.nn`
([where the formulas end](../derivations/rules.md#where-the-formulas-end)).

{layers}

Four reasons come from the engine, for handlers of anybody: `raised` and `invalid` where a handler failed as a whole,
`field` where one field broke the contract, and `missing` where it left out a metric that it owns.

## Spatial reasons

Why `receptive_field`, `effective_stride` and `effective_padding` are `not_applicable` in a row. It is expected: there
is no diagnostic, and `strict=True` does not fail.

{spatial}

## Token relation reasons

The `reason` of `unsupported_token_dependencies`, beside the boundaries above. The dense counts of such a call stay
complete.

{tokens}

A relation that a handler returned and that does not fit its call has the reason `invalid`; one that it gave as `None`,
`unavailable`.

## Plugin reasons

The `reason` of the three plugin codes.

{plugins}

Packs add reasons of their own; the message of such a diagnostic says what to do.
"""


def diagnostics() -> str:
    """Return the page about the diagnostics."""
    return DIAGNOSTICS.format(
        note=NOTE.format(source="tables that it names"),
        codes="\n\n".join(
            f"### {code}\n\n*When:* {sentence(when)}\n\n*Remedy:* {REMEDIES[code]}" for code, when in CODES.items()
        ),
        boundaries=reasons(BOUNDARIES),
        layers=reasons(layer_reasons("refusal")),
        spatial=reasons(layer_reasons("_expected")),
        tokens=reasons(TOKEN_REASONS),
        plugins=table(
            ("reason", "code", "when"),
            (
                (f"`{reason}`", f"[`{code}`](#{code})", sentence(when))
                for reason, (code, when) in PLUGIN_REASONS.items()
            ),
        ),
    )


def reasons(found: Mapping[str, str]) -> str:
    """Return a table of reasons."""
    return table(
        ("reason", "what was met, and the remedy"), ((f"`{name}`", sentence(text)) for name, text in found.items())
    )


def sentence(text: str) -> str:
    """Return `text` as a sentence; a name in front stays as it is spelt."""
    first = text.split()[0]
    start = text[0].upper() if first.strip(",").isalpha() else text[0]
    return f"{start}{text[1:].rstrip('.')}."


def layer_reasons(function: str) -> dict[str, str]:
    """Return reason to message of every call of `function` in the layer handlers, in alphabetical order.

    Args:
        function: the name of a function `(reason, message)`.

    """
    found: dict[str, set[str]] = {}
    for file in sorted(LAYERS.glob("*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == function:
                reason, message = node.args
                assert isinstance(reason, ast.Constant), f"{file}:{node.lineno}: the reason is no literal"
                found.setdefault(str(reason.value), set()).add(literal(message))
    return {reason: " Or: ".join(sorted(map(sentence, found[reason]))) for reason in sorted(found)}


def literal(message: ast.expr) -> str:
    """Return a string literal; what an f-string fills in becomes an ellipsis."""
    if isinstance(message, ast.JoinedStr):
        return "".join(str(part.value) if isinstance(part, ast.Constant) else "…" for part in message.values)
    assert isinstance(message, ast.Constant), "a message is no literal"
    return str(message.value)


#: File name to what writes it.
PAGES: Mapping[str, Callable[[], str]] = {"cli.md": command_line, "diagnostics.md": diagnostics}


def main() -> int:
    """Write the pages, or check them."""
    stale = []
    for name, page in PAGES.items():
        file, text = REFERENCE / name, page()
        if "--check" not in sys.argv[1:]:
            file.write_text(text, encoding="utf-8")
        elif not file.exists() or file.read_text(encoding="utf-8") != text:
            stale.append(name)
    if stale:
        print(f"out of date: {', '.join(stale)}; run python scripts/generate_reference.py")
    return bool(stale)


if __name__ == "__main__":
    raise SystemExit(main())

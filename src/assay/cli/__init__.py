"""The command line: parse, call, render. One module per group of commands."""

from __future__ import annotations

import signal
import sys
from collections.abc import Sequence
from typing import Annotated, Any, NoReturn

import typer

from assay import __version__
from assay.cli import (
    about,
    audit,
    bench,
    certify,
    demonstrate,
    evidence,
    gate,
    judge,
    mcp,
    render,
    reward,
    scoreboard,
    selftest,
    serve,
    tolerance,
)
from assay.cli.output import one_line
from assay.contract import cli as contract
from assay.errors import InputError

INTERRUPTED = 130
TERMINATED = 143
INPUT_AT_FAULT = 2
# the class that every fault of a command line derives from; typer exports only some of its children
_CommandLineFault: Any = typer.BadParameter.__mro__[2]

app = typer.Typer(
    name="assay", add_completion=False, no_args_is_help=True, rich_markup_mode=None,
    pretty_exceptions_enable=False,
    help="Decides whether a generated GPU kernel is the same program as its reference.",
    epilog="Exit status: 0 contract (or passed), 1 rejected (or failed), 3 nothing wrong found but "
           "undecided, 2 the task or the command line is at fault.",
)
app.command("verify")(judge.verify)
app.command("screen")(judge.screen)
app.command("render")(render.render)
app.command("diff")(render.diff)
app.command("gates")(about.gates)
app.command("explain")(about.explain)
app.command("schema")(about.schema)
app.command("doctor")(about.doctor)
app.command("selftest")(selftest.selftest)
app.command("scoreboard")(scoreboard.scoreboard)
app.command("demo")(demonstrate.demo)
app.command("gate")(gate.gate)
app.command("keygen")(certify.keygen)
app.command("certify")(certify.certify)
app.command("verify-certificate")(certify.verify_certificate)
app.command("evidence")(certify.evidence)
app.command("bench")(bench.bench)
app.command("reward")(reward.reward)
app.command("serve")(serve.serve)
app.command("mcp")(mcp.mcp)
app.command("replay")(evidence.replay)
app.command("shrink")(evidence.shrink)
app.add_typer(evidence.app, name="store")
app.command("oracle")(tolerance.oracle)
app.command("calibrate")(tolerance.calibrate)
app.command("prompt")(contract.prompt)
app.add_typer(contract.app, name="contract")
app.add_typer(audit.app, name="audit")


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"assay {__version__}")
        raise typer.Exit()


@app.callback()
def _options(
    version: Annotated[bool, typer.Option("--version", is_eager=True, callback=_print_version,
                                          help="Print the version.")] = False,
) -> None:
    pass


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run one command and exit with its status."""
    signal.signal(signal.SIGTERM, _terminated)
    sys.exit(_status(list(sys.argv[1:] if arguments is None else arguments)))


def _terminated(*_: object) -> None:
    # as an exception, so that workers and their folders are cleaned up on the way out
    raise SystemExit(TERMINATED)


def _status(arguments: list[str]) -> int:
    try:
        result = app(args=arguments, prog_name="assay", standalone_mode=False)
        sys.stdout.flush()
    except InputError as error:
        return _refused(str(error))
    except typer.Abort:
        return _interrupted()
    except KeyboardInterrupt:
        return _interrupted()
    except BrokenPipeError:
        # the reader of our output went away (`assay gates | head`): nothing left to say, nobody to say it to
        sys.stdout = open("/dev/null", "w")  # noqa: SIM115
        return 0
    except Exception as error:
        if not isinstance(error, _CommandLineFault):
            raise
        if type(error).__name__ == "NoArgsIsHelpError":
            # a bare `assay`: its message is the help itself
            print(error.format_message(), file=sys.stderr)
            return INPUT_AT_FAULT
        command = f" {arguments[0]}" if arguments and not arguments[0].startswith("-") else ""
        return _refused(f"{error.format_message().rstrip('.')} (see `assay{command} --help`)")
    return result if isinstance(result, int) else 0


def _refused(text: str) -> int:
    print(f"assay: {one_line(text)}", file=sys.stderr)
    return INPUT_AT_FAULT


def _interrupted() -> int:
    print("assay: interrupted", file=sys.stderr)
    return INTERRUPTED

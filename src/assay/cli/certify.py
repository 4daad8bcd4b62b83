"""`assay keygen`, `assay certify`, `assay verify-certificate` and `assay evidence`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from assay.cli.output import console, json_target
from assay.cli.progress import progress
from assay.errors import InputError

if TYPE_CHECKING:
    from assay.evidence.certificate import Sources
    from assay.report.model import Report

Reference = Annotated[Path, typer.Argument(metavar="REFERENCE", show_default=False,
                                           help="File with Model, get_inputs and get_init_inputs.")]
CandidateFile = Annotated[Path, typer.Argument(metavar="CANDIDATE", show_default=False, help="File with ModelNew.")]
ContractFile = Annotated[Path | None, typer.Option("--contract", metavar="FILE", show_default=False,
                                                   help="TOML with the obligations.")]
Device = Annotated[str, typer.Option(help="auto, cpu (device emulation) or cuda.")]
Tier = Annotated[str, typer.Option(help="quick, standard or deep.")]
Emulate = Annotated[str, typer.Option(help="Device that emulation answers as.")]
Sandbox = Annotated[str, typer.Option(help="How candidates are confined: auto, strict or off.")]


def keygen(
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE",
                                         help="The private key; the public one is put beside it as "
                                              ".pub.pem.")] = Path("assay-key.pem"),
) -> None:
    """Make a pair of Ed25519 keys for certificates.

    The private key is readable by its owner alone, and encrypted where ASSAY_KEY_PASSWORD is set.
    """
    from assay.evidence.dsse import make_keys

    public = output.with_name(f"{output.stem}.pub.pem")
    name = make_keys(output, public)
    print(f"{output}: private key, keep it secret\n{public}: public key, give it to whoever verifies\nkey id {name}")


def certify(
    reference: Reference,
    candidate: CandidateFile,
    key: Annotated[Path, typer.Option("--key", metavar="FILE", show_default=False,
                                      help="Private key made by `assay keygen`.")],
    output: Annotated[str, typer.Option("--output", "-o", metavar="FILE", show_default=False,
                                        help="Where the certificate goes; - for standard output.")],
    contract: ContractFile = None,
    report: Annotated[Path | None, typer.Option("--report", metavar="FILE", show_default=False,
                                                help="A report to reproduce: its seed is used again, and nothing is "
                                                     "signed unless the verdict comes out the same.")] = None,
    device: Device = "auto",
    tier: Tier = "standard",
    emulate: Emulate = "sm_90",
    sandbox: Sandbox = "auto",
) -> None:
    """Verify CANDIDATE, and sign a certificate if its label is `contract`.

    The verdict is always made anew: a signature says what this run saw, never what a file claims.
    Exit status: 0 certified, 1 refused, 2 the command line is at fault.
    """
    from assay.evidence import dsse
    from assay.evidence.certificate import Refused

    with json_target(output, "--output") as target:
        assert target is not None
        signer = dsse.private_key(key)
        given = _read_report(report)
        sources, found = _verified(reference, candidate, contract, device=device, tier=tier, emulate=emulate,
                                   sandbox=sandbox, given=given)
        out = console(error=target.stdout)
        try:
            target.write(_certificate(found, sources, signer, given))
        except Refused as reason:
            out.print(f"refused: {reason}", soft_wrap=True)
            raise typer.Exit(1) from None
    from assay.report.phrases import verdict_text

    out.print(f"certified: {verdict_text(found)}", soft_wrap=True)
    if given is not None:
        out.print("without a statistical claim: the seed is that of the report given, not one drawn here",
                  soft_wrap=True)


def _certificate(found: Report, sources: Sources, signer: Any, given: Report | None) -> str:
    """The certificate. Raises Refused."""
    from assay.evidence import certificate, dsse

    if given is not None and (changed := certificate.differences(found, given)):
        raise certificate.Refused(f"the report does not come out again: it differs in {', '.join(changed)}")
    return dsse.sign(certificate.statement_of(found, sources, seed_drawn_here=given is None), signer)


def _read_report(path: Path | None) -> Report | None:
    if path is None:
        return None
    from assay.cli.render import read_report

    return read_report(str(path))


def _verified(reference: Path, candidate: Path, contract: Path | None, *, given: Report | None = None,
              store: str | None = None, **wanted: Any) -> tuple[Sources, Report]:
    """The files as they were read, and a verdict on just them. Raises InputError when they change meanwhile."""
    from assay.evidence.certificate import read_sources
    from assay.run.process import Zygote

    sources = read_sources(reference, candidate, contract)
    with progress() as show:
        show("start", 0, 0)
        with Zygote() as zygote:
            from dataclasses import replace

            from assay import accept
            from assay.verify import verify_task

            task, found = accept.pair(reference, candidate)
            clauses = accept.contract(contract)
            options = accept.options(**wanted, seed=given.seed if given is not None else None, store=store)
            if given is not None:
                options = replace(options, nonce=given.seed_nonce)
            report = verify_task(task, found, contract=clauses, options=options, zygote=zygote, progress=show)
    if read_sources(reference, candidate, contract) != sources:
        raise InputError("a file changed while it was verified", str(candidate), "try again")
    from assay.report.model import Names

    options_said = ("--contract", str(contract)) if contract is not None else ()
    return sources, report.model_copy(update={"names": Names(str(reference), str(candidate), options_said)})


def verify_certificate(
    certificate: Annotated[Path, typer.Argument(metavar="CERT", show_default=False, help="The certificate.")],
    public_key: Annotated[Path, typer.Option("--public-key", metavar="FILE", show_default=False,
                                             help="The signer's public key, from a source that you trust.")],
    candidate: Annotated[Path | None, typer.Option(metavar="FILE", show_default=False,
                                                   help="Whether this is the certified file.")] = None,
    reference: Annotated[Path | None, typer.Option(metavar="FILE", show_default=False,
                                                   help="Whether this is the reference of the verdict.")] = None,
    contract: ContractFile = None,
) -> None:
    """Check the signature of a certificate, that it holds together, and that files still are what it is about.

    Exit status: 0 everything holds, 1 something does not, 2 a file cannot be read.
    """
    from assay.evidence import certificate as certificates
    from assay.evidence import dsse

    key = dsse.public_key(public_key)
    try:
        text = certificate.read_bytes()
        files = {name: path.read_bytes() if path is not None else None
                 for name, path in (("candidate", candidate), ("reference", reference), ("contract", contract))}
    except OSError as error:
        raise InputError(f"cannot read it: {error.strerror or error}", str(error.filename), "check the path") from None
    out = console()
    try:
        statement = dsse.opened(text, key)
        said = certificates.check(statement, **files, clauses=_clauses(contract))
    except dsse.NotValid as reason:
        out.print(f"not valid: {reason}", soft_wrap=True)
        raise typer.Exit(1) from None
    out.print(f"signed by key {dsse.key_id(key)}", soft_wrap=True)
    for line in said:
        out.print(line, soft_wrap=True)
    for name, data in files.items():
        if data is None:
            out.print(f"{name}: not given, so not compared", soft_wrap=True)
    out.print("valid")


def _clauses(contract: Path | None) -> dict[str, Any] | None:
    """What a contract says, in the form that certificates name; None for a file that is no contract."""
    if contract is None:
        return None
    from assay.contract import Contract

    try:
        return Contract.from_file(contract).model_dump(mode="json")
    except InputError:
        return None


def evidence(
    reference: Reference,
    candidate: CandidateFile,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE", show_default=False,
                                         help="The zip to write.")],
    contract: ContractFile = None,
    key: Annotated[Path | None, typer.Option("--key", metavar="FILE", show_default=False,
                                             help="Private key; with it the bundle holds a certificate.")] = None,
    store: Annotated[str | None, typer.Option(metavar="DIR", show_default=False,
                                              help="Store with the failures of this reference; .assay by "
                                                   "default.")] = None,
    device: Device = "auto",
    tier: Tier = "standard",
    emulate: Emulate = "sm_90",
    sandbox: Sandbox = "auto",
) -> None:
    """Verify CANDIDATE and bundle everything about the verdict for a reviewer or buyer.

    Exit status: 0 contract, 1 rejected, 3 undecided; the bundle is written in each case, and holds a certificate
    only in the first. 2 the command line is at fault.
    """
    from assay.cli.evidence import directory
    from assay.evidence import dsse

    signer = dsse.private_key(key) if key is not None else None
    with json_target(str(output), "--output") as target:
        assert target is not None
        sources, found = _verified(reference, candidate, contract, device=device, tier=tier, emulate=emulate,
                                   sandbox=sandbox)
        signed, public = None, None
        if signer is not None and found.ok:
            from cryptography.hazmat.primitives import serialization

            signed = _certificate(found, sources, signer, None)
            public = signer.public_key().public_bytes(serialization.Encoding.PEM,
                                                      serialization.PublicFormat.SubjectPublicKeyInfo)
        from assay.evidence.dossier import dossier

        data = dossier(found, sources, certificate=signed, public_key=public,
                       corpus=_corpus(directory(store), store is not None, found.task.sha256))
        target.write_bytes(data)
    from assay.report.phrases import verdict_text

    console().print(f"{output}: {verdict_text(found)}" + ("" if signed else "; not certified"), soft_wrap=True)
    raise typer.Exit({"contract": 0, "rejected": 1, "screened": 3}[found.label.value])


def _corpus(folder: str | None, asked: bool, task: str) -> dict[str, bytes]:
    """The failures on record. A store that is not there is an error only where it was asked for."""
    from assay.evidence import Store
    from assay.evidence.dossier import failure_corpus

    if folder is None or (not asked and not Path(folder).exists()):
        return {}
    with Store.open(folder) as store:
        return failure_corpus(store, task)

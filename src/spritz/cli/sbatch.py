"""sbatch: submit a batch script.

Source: sbatch(1); texts and exit codes as Slurm 22.05 has them.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from msgspec.structs import replace

from spritz.cli.call.clusters import chosen
from spritz.cli.call.context import Context
from spritz.cli.call.options import run_parse
from spritz.cli.jobs.filters import filters_of
from spritz.cli.jobs.submit import components, request_context, spec, values, variables
from spritz.cli.jobs.submit import script as scripts
from spritz.cli.jobs.submit.refusals import Refusal
from spritz.cli.jobs.submit.rows import rows_of
from spritz.client.command.sync import connect_controller, submit_key
from spritz.client.errors import ClientError, RemoteError
from spritz.client.locate import locate_controller
from spritz.model.commands.job import JobSubmitted, SubmitHetJob, SubmitJob
from spritz.model.errors import SpritzError

if TYPE_CHECKING:
    from spritz.cli.jobs.filters.chain import Filters
    from spritz.cli.jobs.submit.values import Values
    from spritz.client.command.sync import Connection
    from spritz.client.locate import ControllerConfig

OPTIONS = rows_of("b")

_PACKJOB = 'Warning: the "packjob" component separator is being deprecated. Please, use "hetjob" instead.'
_SYNOPSIS = "[OPTIONS(0)...] [ : [OPTIONS(N)...]] script(0) [args(0)...]"


def main(argv: list[str], context: Context) -> int:
    """0; 1 for a refusal (SLURM_EXIT_ERROR); 255 for a wrong command line; with --wait the job's own status."""
    return values.run_main(_main, argv, context)


def _show_options(merged: Values, context: Context) -> None:
    """Print the options, as -v does; with -vv the environment too."""
    from spritz.cli.jobs.submit import listing

    listing.show(merged, context)
    if len(merged["verbose"]) > 1:
        from spritz.cli.jobs.launch import verbose

        verbose.report_environment(context, merged.get("propagate"))


def _main(argv: list[str], context: Context) -> int:
    parsed = run_parse(OPTIONS, argv, context, stop_early=True, exit_code=255)
    if isinstance(parsed, int):
        return parsed
    options_given, operands = parsed
    options = values.from_parsed(options_given)
    parts = [options]
    if operands[:1] == [":"]:
        more = components.parse(OPTIONS, operands[1:], context)
        if isinstance(more, int):
            return more
        parts += more[0]
        options, operands = components.command_options(parts), more[1]
    if options.keys() & {"version", "help", "usage"}:
        from spritz.cli.jobs.launch import help_text

        return help_text.answer("sbatch", _SYNOPSIS, OPTIONS, options, context)
    if "wrap" in options:
        if operands:
            raise SpritzError("Script arguments not permitted with --wrap option")
        script = scripts.wrapped(options["wrap"])
    else:
        script = scripts.read(operands[0] if operands else None, context)
    several = in_force(parts, options, script, context)
    if isinstance(several, int):
        return several
    filtering = filters_of("sbatch", OPTIONS, context)
    if filtering is not None:
        script_argv = (script.path, *operands[1:])
        weakest = filtering.defaults()
        several = [
            filtering.before(values.merge(weakest, component), script_argv, offset)
            for offset, component in enumerate(several)
        ]
    merged = several[0]
    clusters: list[ControllerConfig] = []
    if "clusters" in merged:
        clusters = chosen(merged["clusters"], context)
    if "verbose" in merged:
        _show_options(merged, context)
    if merged.get("gres", "").lower() == "help":
        from spritz.cli.jobs.submit.announce import gres_help

        return gres_help(context)
    try:
        arguments = tuple(operands[1:])
        request: SubmitJob | SubmitHetJob
        if len(several) > 1:
            request = _components(several, script, arguments, argv, context)
        else:
            request = _request(merged, script, arguments, argv, context)
        if clusters:
            from spritz.cli.jobs.submit.first_cluster import placed

            request, merged["clusters"] = placed(clusters, request, context)
        return _submit(request, merged, context, filtering)
    except Refusal as error:
        raise _failed(error) from error


def in_force(parts: list[Values], options: Values, script: scripts.BatchScript, context: Context) -> list[Values] | int:
    """Command line over environment over the script's lines, for each component; an int is the exit status."""
    from_environment = variables.read("sbatch", OPTIONS, context.environ)
    if "wrap" in options:
        in_script: list[Values] = [{}]
    else:
        read = _script_values(script, values.merge(from_environment, options), context)
        if isinstance(read, int):
            return read
        in_script = read
    if len(parts) == len(in_script) == 1:
        return [values.merge(in_script[0], values.merge(from_environment, options))]

    parts[0] = options
    return components.merge_components(from_environment, in_script, parts)


def _script_values(script: scripts.BatchScript, outside: Values, context: Context) -> list[Values] | int:
    """The values of the #SBATCH lines, component by component."""
    components: list[Values] = [scripts.foreign_values(script, outside)]
    for words in scripts.option_words(script):
        line = run_parse(OPTIONS, words, context, stop_early=True, exit_code=255)
        if isinstance(line, int):
            return line
        options, stray = line
        if stray and stray[0] in ("hetjob", "packjob"):
            if stray[0] == "packjob":
                context.info(_PACKJOB)
            components.append({})
            continue
        if stray:
            raise SpritzError(f"Invalid directive found in batch script: {stray[0]}", exit_code=255)
        for key, value in options:
            values.put(components[-1], key, value)
    return components


def _components(
    several: list[Values], script: scripts.BatchScript, arguments: tuple[str, ...], argv: list[str], context: Context
) -> SubmitHetJob:
    """All components; the first one brings the script."""
    requests = [_request(merged, script, arguments, argv, context) for merged in several]
    first, *others = requests
    bare = [replace(other, script=b"", environment=(), test_only=False) for other in others]
    return SubmitHetJob(components=(first, *bare))


def _request(
    merged: Values, script: scripts.BatchScript, arguments: tuple[str, ...], argv: list[str], context: Context
) -> SubmitJob:
    defaults: dict[str, object] = {
        "name": script.name,
        "batch": True,
        "arguments": arguments,
        "command": " ".join([script.path, *arguments]) if script.path else "",
        "submit_line": " ".join(["sbatch", *argv]),
        "submit_host": os.uname().nodename,
        "submit_session": context.session,
        "work_dir": context.cwd,
        "umask": request_context.umask(),
        "limits": request_context.limits(merged.get("propagate")),
        "limits_asked": "propagate" in merged,
        "export": merged.get("export", ""),
    }
    fields = spec.fields_of(merged, spec.source_of(context), defaults=defaults)
    warning = spec.fewer_nodes(fields)
    if warning and "quiet" not in merged:
        context.info(warning)
    return SubmitJob(
        spec=spec.job_spec(fields),
        script=script.content,
        environment=request_context.encoded(_environment(merged, context)),
        test_only="test-only" in merged,
        submit_key=submit_key(),
    )


def _environment(merged: Values, context: Context) -> dict[str, str]:
    export = merged.get("export")
    environ = request_context.without_enclosing_job(request_context.exported(context, export))
    if "export-file" in merged:
        slurm_variables = {name: value for name, value in environ.items() if name.startswith("SLURM_")}
        environ = {**slurm_variables, **request_context.environment_file(merged["export-file"])}
    if request_context.needs_login_environment(export) or "get-user-env" in merged:
        timeout, mode = request_context.user_env_option(merged.get("get-user-env", ""))
        environ = {**request_context.login_environment(merged.get("uid"), mode=mode, seconds=timeout), **environ}
        environ["SLURM_GET_USER_ENV"] = "1"
    if export:
        environ["SLURM_EXPORT_ENV"] = export
    if "hint" in merged:
        environ["SLURM_HINT"] = merged["hint"]
    environ["SLURM_PRIO_PROCESS"] = str(os.getpriority(os.PRIO_PROCESS, 0))
    environ["SLURM_SUBMIT_DIR"] = context.cwd
    environ["SLURM_SUBMIT_HOST"] = os.uname().nodename
    return environ


def _submit(
    request: SubmitJob | SubmitHetJob, merged: Values, context: Context, filtering: Filters | None = None
) -> int:
    with connect_controller() as controller:
        if "test-only" in merged:
            from spritz.cli.jobs.submit.announce import test_only

            return test_only(controller, request, context)
        reply = _submitted(controller, request, merged)
        for message in reply.messages:
            context.info(message)
        if filtering is not None:
            for offset in range(len(request.components) if isinstance(request, SubmitHetJob) else 1):
                filtering.after(reply.job_id, offset=offset)
        _announce(reply, merged, context)
    if "wait" in merged:
        from spritz.cli.jobs.submit.announce import await_end

        context.stdout.flush()
        return await_end(reply.job_id)
    return 0


def _submitted(controller: Connection, request: SubmitJob | SubmitHetJob, merged: Values) -> JobSubmitted:
    """The answer; `merged` gets the name of another cluster of the federation that took the job. Raises SpritzError."""
    try:
        return _answer(controller, request)
    except RemoteError as error:
        from spritz.cli.jobs.submit.first_cluster import taken_elsewhere

        def again() -> JobSubmitted:
            with connect_controller() as other:
                return _answer(other, request)

        try:
            reply = taken_elsewhere(error, request, again)
        except RemoteError as refusal:
            raise _failed(refusal) from refusal
        merged["clusters"] = locate_controller().cluster_name
        return reply


def _answer(controller: Connection, request: SubmitJob | SubmitHetJob) -> JobSubmitted:
    try:
        return controller.call(request, JobSubmitted)
    except RemoteError:
        raise
    except ClientError as error:
        from spritz.client.command.submission_retry import ask_again

        return ask_again(request, error)


def _failed(error: SpritzError) -> SpritzError:
    """A refusal in sbatch's words; one about GRES stands alone, as Slurm finds it before it submits."""
    alone = error.code == "ESLURM_INVALID_GRES"
    message = error.message if alone else f"Batch job submission failed: {error.message}"
    return SpritzError(message, code=error.code, hint=error.hint, details=error.details)


def _announce(reply: JobSubmitted, merged: Values, context: Context) -> None:
    cluster = merged.get("clusters", "")
    if "parsable" in merged:
        context.out(f"{reply.job_id};{cluster}\n" if cluster else f"{reply.job_id}\n")
    elif "quiet" not in merged:
        context.out(f"Submitted batch job {reply.job_id}{f' on cluster {cluster}' if cluster else ''}\n")


def entry() -> None:
    from spritz.cli.call.entry import run

    run("sbatch", main)

"""TPE by Optuna: the next point, from the files of the trials so far.

Optuna's study exists in memory, for one query. It is built from the trials' files, so there is no storage that could be
locked, damaged or out of date.
"""

from __future__ import annotations

import warnings
import zlib
from collections.abc import Iterable
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from spritz.experiments.errors import ExperimentError
from spritz.experiments.sweeps.plan import Plan
from spritz.experiments.sweeps.space import Parameter, Value
from spritz.experiments.sweeps.trials import Trial
from spritz.extras import pip_install

if TYPE_CHECKING:
    import optuna


def need_optuna() -> None:
    """Raises ExperimentError, with the extra to install, if Optuna is missing."""
    if find_spec("optuna") is None:
        raise ExperimentError("method: tpe needs Optuna", hint=pip_install("experiments"))


def ask(plan: Plan, trials: Iterable[Trial], index: int) -> dict[str, Value]:
    """Parameters for trial `index`: the same for the same seed and the same reports."""
    need_optuna()

    study = study_of(plan, (trial for trial in trials if trial.index != index), seed=_seed(plan, index))
    drawn: optuna.trial.Trial = study.ask(distributions(plan.parameters))
    return {name: plain(value) for name, value in drawn.params.items()}


def study_of(plan: Plan, trials: Iterable[Trial], *, seed: int = 0, storage: Any = None, name: Any = None) -> Any:
    """An Optuna study with these trials."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        sampler = optuna.samplers.TPESampler(seed=seed, constant_liar=True)
    study = optuna.create_study(
        direction="maximize" if plan.maximize else "minimize", sampler=sampler, storage=storage, study_name=name
    )
    space = distributions(plan.parameters)
    for trial in sorted(trials, key=lambda trial: trial.index):
        if set(trial.parameters) != set(space):
            continue
        state, value = _state(trial)
        study.add_trial(
            optuna.trial.create_trial(
                state=state,
                value=value,
                params=trial.parameters,
                distributions=space,
                intermediate_values=trial.reports,
                user_attrs={"run": trial.directory.name},
            )
        )
    return study


def _state(trial: Trial) -> tuple[Any, float | None]:
    from optuna.trial import TrialState

    if trial.state == "COMPLETED" and trial.value is not None:
        return TrialState.COMPLETE, trial.value
    if trial.state == "PRUNED" and trial.reports:
        return TrialState.PRUNED, None
    return (TrialState.RUNNING if trial.state in ("RUNNING", "WAITING") else TrialState.FAIL), None


def distributions(parameters: Iterable[Parameter]) -> dict[str, Any]:
    """Parameter name -> the Optuna distribution with its bounds, step and scale."""
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    by_name: dict[str, Any] = {}
    for parameter in parameters:
        if parameter.values:
            by_name[parameter.name] = CategoricalDistribution(parameter.values)
            continue
        # Optuna warns if the step does not divide the range; like Optuna's, our grid ends at the last whole step.
        high = (
            parameter.low + parameter.step * int((parameter.high - parameter.low) / parameter.step + 1e-9)
            if parameter.step
            else parameter.high
        )
        if parameter.integer:
            by_name[parameter.name] = IntDistribution(
                int(parameter.low), int(high), log=parameter.log, step=int(parameter.step) or 1
            )
        else:
            by_name[parameter.name] = FloatDistribution(
                parameter.low, high, log=parameter.log, step=parameter.step or None
            )
    return by_name


def plain(value: Any) -> Value:
    unwrapped: Value = value.item() if hasattr(value, "item") else value
    return unwrapped


def _seed(plan: Plan, index: int) -> int:
    return zlib.crc32(f"{plan.seed}:{index}".encode())

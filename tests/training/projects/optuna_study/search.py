"""A study that goes on where its database is."""

import optuna

optuna.logging.set_verbosity(optuna.logging.WARNING)
study = optuna.create_study(storage="sqlite:///optuna.db", study_name="s", load_if_exists=True)
study.optimize(lambda trial: (trial.suggest_float("x", -1, 1) - 0.5) ** 2, n_trials=3)
print("trials", len(study.trials))

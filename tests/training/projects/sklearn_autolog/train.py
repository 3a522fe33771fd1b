"""MLflow's autolog into ./mlruns, and a model beside the program."""

import pickle

import mlflow
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression

mlflow.set_experiment("iris")
mlflow.sklearn.autolog(log_models=False)
x, y = load_iris(return_X_y=True)
with mlflow.start_run():
    model = LogisticRegression(max_iter=200).fit(x, y)
with open("model.pkl", "wb") as file:
    pickle.dump(model, file)
print(f"accuracy {model.score(x, y):.2f}")

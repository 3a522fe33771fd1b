"""Hydra changes into outputs/DATE/TIME."""

import os

import hydra


@hydra.main(version_base=None, config_path="conf", config_name="config")
def main(settings) -> None:
    print("width", settings.model.width, "lr", settings.lr)
    with open("result.txt", "w") as file:
        file.write(os.path.basename(os.path.dirname(os.path.dirname(os.getcwd()))))


main()

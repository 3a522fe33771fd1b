"""`python -m trainer.train`: a package at the project's root that logs to a file."""

import logging
import sys

from trainer.data import NUMBERS

logging.basicConfig(filename="train.log", level=logging.INFO)
logging.info("sum %s", sum(NUMBERS))
print("sum", sum(NUMBERS) * int(sys.argv[1]))

"""Write train.bin and meta.pkl beside this file, as the README says to do before the first training."""

import os
import pickle

import numpy as np

text = "to be or not to be, that is the question. " * 200
letters = sorted(set(text))
ids = np.array([letters.index(letter) for letter in text], dtype=np.uint16)
here = os.path.dirname(__file__)
ids.tofile(os.path.join(here, "train.bin"))
with open(os.path.join(here, "meta.pkl"), "wb") as file:
    pickle.dump({"vocab_size": len(letters)}, file)

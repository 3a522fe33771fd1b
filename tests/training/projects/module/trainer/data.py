NUMBERS = (1, 2, 3)

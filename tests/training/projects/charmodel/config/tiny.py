out_dir = "out-tiny"
dataset = "chars"
max_iters = 20

import sys

print("loss", 1 / float(sys.argv[2]))

import scaling

print("factor", scaling.FACTOR)

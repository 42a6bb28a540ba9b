import json
import os
import time

path = "/scratch/progress.json"
halves = json.load(open(path)) if os.path.exists(path) else 0
time.sleep(5)
json.dump(halves + 1, open(path, "w"))
print(f"{halves + 1} of 2")

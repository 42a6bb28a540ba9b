import os

os.makedirs("/scratch/logs", exist_ok=True)
for number in range(400):
    with open(f"/scratch/logs/{number:03}.log", "w") as log:
        for line in range(50):
            log.write("ERROR disk full\n" if number % 37 == 5 and line == 20 else f"INFO {line}\n")
print(len(os.listdir("/scratch/logs")))

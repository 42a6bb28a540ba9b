import csv
import io
from collections import defaultdict

from tools.files import read_text_file

text = read_text_file(path="FILES/orders.csv")["content"]
total = defaultdict(float)
for row in csv.DictReader(io.StringIO(text)):
    total[row["customer"], row["date"][:7]] += float(row["amount"])
for (customer, month), amount in sorted(total.items(), key=lambda item: -item[1])[:3]:
    print(customer, month, amount)

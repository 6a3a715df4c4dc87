"""The demo's job, as an agent would write it: runs in a sandbox that sees only the volume, at /mnt/data/1.

Reads orders.csv, drops rows that repeat another row whole, and writes clean.csv and summary.md beside it.
"""
import collections
import csv
import decimal
import sys

data = sys.argv[1] if len(sys.argv) > 1 else "/mnt/data/1"

with open(data + "/orders.csv", newline="", encoding="utf-8") as f:
    header, *rows = csv.reader(f)
clean = list(dict.fromkeys(map(tuple, rows)))

with open(data + "/clean.csv", "w", newline="", encoding="utf-8") as f:
    csv.writer(f, lineterminator="\n").writerows([header, *clean])

quantity, amount, customer = (header.index(name) for name in ("quantity", "amount", "customer"))
items = sum(int(row[quantity]) for row in clean)
total = sum(decimal.Decimal(row[amount]) for row in clean)
by_customer = collections.Counter()
for row in clean:
    by_customer[row[customer].replace("|", "\\|").replace("\n", " ")] += decimal.Decimal(row[amount])

with open(data + "/summary.md", "w", encoding="utf-8") as f:
    f.write("# Orders\n\n")
    f.write(f"- orders: {len(clean)}\n- items: {items}\n- total: {total}\n")
    f.write(f"- duplicate rows dropped: {len(rows) - len(clean)}\n\n")
    f.write("| customer | amount |\n|---|---|\n")
    for name, value in by_customer.most_common(10):
        f.write(f"| {name} | {value} |\n")

print(f"{len(rows)} rows read, {len(clean)} kept")

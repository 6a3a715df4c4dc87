"""make_orders.py SEED ROWS CSV EXPECTED - a table of random orders, and the figures that a report on it must show.

The figures are counted while the rows are made, not by reading the table: EXPECTED gets the
lines "orders N", "items N" and "total N". Names hold commas, quotes, line ends and non-ASCII letters; about a quarter of the rows repeat another.
"""
import csv
import random
import sys

seed, rows, table, expected = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4]
rng = random.Random(seed)
names = ["Ana", "Bo", "Chen", "Dara", 'Eli, Jr.', 'Fay "Fi" O\'Neil', "Gül", "何", "Two\nlines", "  blanks  ", "a|b", ""]
goods = ["notebook", "pen set", "desk lamp", "mug", "backpack", "chair; oak", "5' cable"]

made, sums = [], {"orders": 0, "items": 0, "total": 0}
for number in range(rows):
    if made and rng.random() < 0.25:
        made.append(rng.choice(made))
        continue
    quantity, amount = rng.randint(1, 9), rng.randint(1, 500)
    # The number makes each of these rows differ from all others.
    made.append([10000 + number, f"2026-{rng.randint(1, 12):02}-{rng.randint(1, 28):02}", rng.choice(names),
                 rng.choice(goods), quantity, amount])
    sums["orders"] += 1
    sums["items"] += quantity
    sums["total"] += amount

with open(table, "w", newline="", encoding="utf-8") as f:
    writer = csv.writer(f, lineterminator="\n")
    writer.writerow(["order_id", "date", "customer", "item", "quantity", "amount"])
    writer.writerows(made)
with open(expected, "w", encoding="utf-8") as f:
    f.writelines(f"{name} {value}\n" for name, value in sums.items())
